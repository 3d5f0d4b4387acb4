"""Makes the job for an engine from the command line of `paceline submit`."""

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paceline.cli.job.job import job_file_of
from paceline.cli.job.options import VERB, parse_run
from paceline.cli.values import bad_value, variable
from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.job_file import HostSetup
from paceline.launch.prepare import check_data
from paceline.launch.program import require_program
from paceline.parts.engines.submission import Submission
from paceline.recording.runs import runs_root
from paceline.spelling import as_typed

# Options that the engine sets: how hosts meet, their names, where they record.
OF_THE_ENGINE = (
    "node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone", "local_addr", "store_port",
    "network", "run_id",
    "token_file", "no_token", "base_dir", "opt_ml",
)  # fmt: skip
# Options of `paceline run` that say nothing about a job that an engine runs.
OF_RUN_ALONE = ("job", "json_file", "no_check", "web")


def key_and_value(text: str) -> tuple[str, str]:
    """An option of the engine, from `--option KEY=VALUE`.

    Raises:  UsageError U03: not in this form
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(
            "U03",
            f"--option {text!r} is not KEY=VALUE",
            next=f"--option {shlex.quote(name or 'KEY')}=VALUE instead of --option {shlex.quote(text)}",
        )
    return name, value


def submission_of(
    args: argparse.Namespace, run_id: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[Submission, Path, Path]:
    """The job, the directory of its code, and the folder for its recording.

    Raises:  UsageError: everything that `paceline run` would refuse, and options that the engine sets
    """
    run_args = parse_run([*args.run_argv, *args.script_argv], {})
    here = args.engine == "local"
    _refuse_the_engines(run_args, but=("opt_ml",) if here else ())
    _count_local_hosts(run_args, args.engine)
    file = job_file_of(run_args, args.typed)
    # A dry run sends no request, and none to stores of data either.
    check_data(replace(file, setup=HostSetup(urls_are_checked=args.dry_run)), environ)
    require_program(file.job, environ)
    if file.job.min_hosts != file.job.max_hosts:
        raise UsageError(
            "U05",
            f"--nnodes {run_args.nnodes}: an engine starts a fixed number of hosts",
            saw=f"{file.job.min_hosts} to {file.job.max_hosts}",
            next=f"paceline submit --nnodes {file.job.max_hosts} ...",
        )
    directory, program = _code(file.job.program, file.job.contract.code_dir)
    # The code directory is shipped, and the job runs in it.
    contract = replace(file.job.contract, code_dir=None, opt_ml=False, shown_at_opt_ml=run_args.opt_ml)
    submission = Submission(
        file=replace(file, job=replace(file.job, program=program, contract=contract), run_id=run_id, run_dir=None),
        hosts=_hosts(file.job.max_hosts, args.hosts),
        environment=dict(variable(text, environ) for text in args.env),
        retries=_retries(args.retries),
        engine_options=dict(options),
    )
    root = Path(file.run_dir) if file.run_dir else runs_root(environ=environ)
    return submission, directory, root.absolute()


def _refuse_the_engines(run_args: argparse.Namespace, but: tuple[str, ...]) -> None:
    for row in (*VERB.options, *VERB.keys):
        if row.dest in but or getattr(run_args, row.dest) == row.unset:
            continue
        option = row.in_messages
        if row.dest in OF_RUN_ALONE:
            raise UsageError(
                "U05",
                f"{option} is an option of paceline run alone",
                saw=f"{option} for a job that an engine runs",
                next=f"leave {option} out",
            )
        if row.dest in OF_THE_ENGINE:
            raise UsageError(
                "U05",
                f"{option} cannot be set here: the engine decides it",
                saw=as_typed(option, getattr(run_args, row.dest)),
                next=f"leave {option} out; --nnodes says how many hosts there are",
            )


def _count_local_hosts(run_args: argparse.Namespace, engine: str) -> None:
    """On the engine local, hosts are hosts of this machine: --local-hosts N is its --nnodes N."""
    count = run_args.local_hosts
    if count is None:
        return
    if engine != "local":
        raise UsageError(
            "U05",
            f"--local-hosts makes hosts on this machine, and the engine {engine} has hosts of its own",
            saw=f"--local-hosts {count}",
            next="leave --local-hosts out; --nnodes says how many hosts there are",
        )
    if count < 1:
        raise bad_value("--local-hosts", count, "a number of hosts", "2")
    if run_args.nnodes not in ("1:1", str(count)):
        raise UsageError(
            "U05",
            f"--local-hosts makes {count} hosts, and --nnodes asks for {run_args.nnodes}",
            saw=f"--local-hosts {count} --nnodes {run_args.nnodes}",
            next="leave --nnodes out",
        )
    run_args.nnodes, run_args.local_hosts = str(count), None


def _code(program: Program, source_dir: str | None) -> tuple[Path, Program]:
    here = Path.cwd()
    if program.kind in (ProgramKind.MODULE, ProgramKind.EXECUTABLE):
        return Path(source_dir or here), program
    if source_dir is not None:
        return Path(source_dir), program
    script = Path(program.target).absolute()
    root = here if script.is_relative_to(here) else script.parent
    return root, Program(kind=program.kind, target=script.relative_to(root).as_posix(), arguments=program.arguments)


def _hosts(counted: int, named: str | None) -> int:
    if named is None:
        return counted
    hosts = [host for host in named.split(",") if host]
    if counted not in (1, len(hosts)):
        raise UsageError(
            "U05",
            f"--hosts names {len(hosts)} hosts, and --nnodes asks for {counted}",
            saw=f"--hosts {named} --nnodes {counted}",
            next="leave --nnodes out",
        )
    return len(hosts)


def _retries(number: int) -> int:
    if number < 0:
        raise UsageError("U03", f"--retries {number} is not 0 or more", saw=str(number), next="--retries 1")
    return number
