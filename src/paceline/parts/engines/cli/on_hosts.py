"""`paceline run --hosts`: runs the job on hosts over SSH. This process prints the output, and Ctrl-C ends the job on all hosts."""

import argparse
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.cli.job.json_file import answer_file, write_answer
from paceline.cli.job.keys import without_key
from paceline.cli.job.options import VERB
from paceline.cli.parsing import parted, split_at_script
from paceline.cli.progress import ProgressLine
from paceline.errors import PacelineError, UsageError
from paceline.parts.engines import jobs
from paceline.parts.engines.base import load
from paceline.parts.engines.cli.submission import key_and_value, submission_of
from paceline.parts.engines.detached import KEEPER_LOG, DetachedEngine, say_end
from paceline.parts.engines.package import package
from paceline.parts.engines.submission import Package, Submission
from paceline.process_identity import start_ticks
from paceline.recording.evidence import evidence
from paceline.recording.runs import new_run_id, newest_try
from paceline.views.progress import BYTES

_ONLY_HERE = ("hosts", "option", "env")
# Options that would set in another way how the hosts meet.
_OTHER_WAYS = (
    "local-hosts", "nnodes", "node-rank", "standalone", "rdzv-backend", "rdzv-endpoint", "rdzv-conf", "rdzv-id",
    "master-addr", "master-port",
)  # fmt: skip


def run_on_hosts(args: argparse.Namespace) -> int:
    """Ship the code, run the job on the named hosts, and return its exit code when it has ended.

    Raises:  UsageError: refused before anything was started; HostLost: a host was lost
    """
    _refuse_without_hosts(args)
    _refuse_other_ways(args)
    answer = answer_file(args.json_file)
    options = {**dict(key_and_value(text) for text in args.option or ()), "hosts": args.hosts}
    engine: Any = load("ssh", os.environ, options)
    argv, script = split_at_script(VERB.rows, args.argv)
    asked = argparse.Namespace(
        engine="ssh",
        run_argv=_without_ours(argv),
        script_argv=script,
        typed=("run", *args.argv),
        hosts=args.hosts,
        env=args.env or [],
        retries=0,
        dry_run=False,
    )
    job, directory, root = submission_of(asked, new_run_id(), options, os.environ)
    engine.plan(job)
    run_dir = jobs.make_run_dir(root, job.run_id, job.file.run_dir_mode)
    try:
        job = replace(job, package=_packed(directory, run_dir, args))
        code = _hold(engine, job, run_dir)
    except PacelineError as error:
        if (run_dir / "run.json").exists():
            say_end(run_dir, error.exit_code, f"{error.what}: {error.saw}")
        else:
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    say_end(run_dir, code)
    if answer is not None:
        write_answer(answer, evidence(newest_try(run_dir)))
    return code


def _packed(directory: Path, run_dir: Path, args: argparse.Namespace) -> Package:
    with ProgressLine("packing the code", unit=BYTES, shown=args.progress != "off") as progress:
        return package(directory, run_dir / jobs.CODE_FILE, packed=progress.at)


def _hold(engine: DetachedEngine, job: Submission, run_dir: Path) -> int:
    """Run the job in this process. The run's directory names this process, so that other terminals find the job."""
    handle = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "machine": os.uname().nodename}
    (run_dir / KEEPER_LOG).touch(mode=0o600)
    jobs.note(job, engine.name, handle, run_dir)
    return engine.hold(engine.plan(job), run_dir, os.environ)


def _refuse_without_hosts(args: argparse.Namespace) -> None:
    if args.hosts is not None:
        return
    if args.env:
        raise UsageError(
            "U05",
            "--env is for other hosts, and --hosts is not given",
            saw="on this host the ranks have the variables of this shell",
            # The value is nobody's to read; see probes.environment.without_secrets.
            next=f"{args.env[0].partition('=')[0]}=VALUE in front of the command, in place of --env",
        )
    if args.option:
        raise UsageError(
            "U05",
            "--option is for other hosts, and --hosts is not given",
            saw=f"--option {args.option[0].partition('=')[0]}=...",
            next="paceline run --hosts node1,node2 --option ...",
        )


def _refuse_other_ways(args: argparse.Namespace) -> None:
    for row in VERB.options:
        if row.name in _OTHER_WAYS and getattr(args, row.dest) != row.unset:
            option = f"--{row.name}"
            raise UsageError(
                "U05",
                f"--hosts says how hosts meet, and {option} says it otherwise",
                saw=f"--hosts {args.hosts} {option} {getattr(args, row.dest)}",
                next=f"leave {option} out",
            )


def _without_ours(argv: list[str]) -> list[str]:
    others = parted((row for row in VERB.options if row.name in _ONLY_HERE), argv)[1]
    return without_key("json_file", others)
