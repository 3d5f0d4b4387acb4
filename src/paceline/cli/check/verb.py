"""Look for mistakes in a script, in the user's own files that it imports, in its job and on this machine. No script is executed."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.cli.job.keys import refuse_former
from paceline.cli.job.options import VERB as RUN
from paceline.cli.job.options import parse_run
from paceline.cli.parsing import VerbParser, split_at_script
from paceline.cli.terminal import columns, use_color
from paceline.cli.values import fail_on, variable
from paceline.findings import Severity, Verdict
from paceline.job_file import JobFile
from paceline.option import ENV, Option, Verb
from paceline.part import BuiltJobs, first_answer, parts, with_options_of_parts

_NEVER = "never"
_OF_THE_JOB = (
    "nnodes", "nproc-per-node", "master-addr", "module", "no-python", "run-path", "max-run", "hp", "channel", "output",
    "checkpoints", "source-dir", "standalone", "local-hosts", "set",
)  # fmt: skip

VERB = Verb(
    "check",
    __doc__ or "",
    (
        ("paceline check --nnodes 2 --nproc-per-node 8 train.py --lr 0.1", "as a job of 16 ranks"),
        ("paceline check --engine slurm --nnodes 2 --option partition=gpu", "the nodes of a job"),
    ),
    with_options_of_parts(
        "check",
        (
            Option("instance", "The machine type of every host.", "TYPE"),
            ENV,
            Option(
                "fail-on",
                "Exit with 1 where this was found: error, warning, a code (K07), or never. May be repeated.",
                "WHAT",
                default=(),
                default_text="error",
                repeatable=True,
            ),
            Option("sarif", "Write what was found to FILE as SARIF 2.1.0, for editors and code hosts.", "FILE"),
        ),
    ),
    script_place=1,
    usage="paceline check [OPTIONS] [OPTIONS OF run] [SCRIPT [ARGUMENTS ...]]",
    passed_on=tuple(row for row in RUN.options if row.name in _OF_THE_JOB),
    epilog="The options of `paceline run` that describe a job are taken too, so that its checks know of how many ranks it is.",
    page="""\
Each finding names its file and line, and has a page: `paceline help K07`. The files that the script imports are
looked at too, where they lie below its directory and are imported for certain; what is found in them is a warning.
A script or a notebook that builds an estimator of SageMaker (`Estimator`, `PyTorch`, `TensorFlow`, `ModelTrainer`) is a job: each is
checked as `fit()` would check it, with its own script; values that are known only when it runs are listed as not judged.
A comment `# paceline: ignore[K07] why` behind a line, or on the line above it, switches a check off there. With
`--hosts` or `--engine` the hosts of the job are looked at: each says what it has, and connects to the others. Slurm and Ray
are asked for the nodes that the job would get, and get them back after seconds. If no nodes are free within `--wait`, nothing
stays in the queue. What could not be looked at is listed as not judged. All checks are in [checks.md](checks.md), and what
each engine does in [engines.md](engines.md#a-look-at-the-hosts-before-the-job).""",
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of `paceline check`: its own, and those of `paceline run` in `args.run_argv`.

    Raises:  UsageError U01, U03
    """
    refuse_former(VERB.name, (*RUN.rows, *VERB.rows), argv)
    ours, script = split_at_script((*RUN.rows, *VERB.rows), argv)
    args, run_argv = VerbParser(VERB, passed_on=RUN.rows).parse_own(ours)
    args.run_argv = run_argv
    args.script_argv = script
    return args


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit code 1 if --fail-on names one of them.

    Raises:  UsageError: the command line describes an impossible job
    """
    from paceline.views.checks import checks_facts, checks_text
    from paceline.views.documents import json_text
    from paceline.views.sarif import sarif_text

    wanted = _fail_on(args.fail_on)
    built = _built_by(args)
    verdicts = built.verdicts if built is not None else verdicts_of(args)
    if args.sarif is not None:
        _write(args.sarif, sarif_text(verdicts))
    if args.json:
        print(json_text(checks_facts(verdicts)))
    else:
        for line in built.lines if built is not None else ():
            print(line)
        print(checks_text(verdicts, width=columns(sys.stdout), color=use_color(args.color, sys.stdout)))
    found = [finding for verdict in verdicts for finding in verdict.findings]
    return int(any(finding.code in wanted or str(finding.severity) in wanted for finding in found))


def _built_by(args: argparse.Namespace) -> BuiltJobs | None:
    """The jobs that the named script or notebook builds; None: it builds none, or is not there."""
    name = args.script_argv[0] if args.script_argv else ""
    path = Path(name)
    if not path.is_file():
        return None
    return first_answer(part.on_check().built_by(path, name) for part in parts())


def verdicts_of(args: argparse.Namespace) -> tuple[Verdict, ...]:
    """The verdicts of all checks on the job of the command line, and on this machine.

    Raises:  UsageError: the command line describes an impossible job
    """
    from paceline.cli.job.job import job_file_of
    from paceline.launch.program import require_program
    from paceline.probes.environment import read_cpu
    from paceline.probes.gpus import has_accelerator
    from paceline.probes.torch_version import read_torch
    from paceline.rules.collect import before_of
    from paceline.rules.job_facts import checks_of

    # Without a script, only the machine is checked; any script name would do.
    run_args = parse_run([*args.run_argv, *(args.script_argv or ["script.py"])], {})
    file = job_file_of(run_args)
    settings = vars(args)
    place = first_answer(part.on_check().elsewhere(settings, os.environ) for part in parts())
    # A host of a job by hand looks at itself: the others are looked at where they are.
    is_first = run_args.local_hosts is None and file.job.max_hosts > 1 and file.job.is_first
    asked = file if is_first else replace(file, job=replace(file.job, agents_port=None))
    of_the_hosts = tuple(place.hosts(asked)) if place is not None else _of_this_host(asked, run_args.local_hosts)
    if not args.script_argv:
        return of_the_hosts
    job = file.job
    require_program(job, os.environ)
    environment = dict(variable(text, os.environ) for text in args.env)
    instance = args.instance or (place.machine if place is not None else None)
    engine = place.engine if place is not None else "local"
    is_here = place is None and instance is None
    before = before_of(
        engine=engine,
        instance_type=instance,
        hosts=job.max_hosts,
        ranks_per_host=file.ranks_per_host,
        program=job.program,
        directory=Path(job.contract.code_dir or Path.cwd()),
        channels=job.contract.channels,
        launcher="torch_distributed",
        torch_version=read_torch().version if engine == "local" and instance is None else None,
        cpus_per_host=read_cpu().usable_count if is_here and has_accelerator() is False else None,
        max_run_seconds=job.max_run_seconds,
        checkpoint_url=job.checkpoint_url,
        environment=environment,
        hyperparameters=job.contract.hyperparameters,
        profile=job.contract.profile,
        plan=first_answer(part.on_check().plan(settings, job, instance) for part in parts()),
    )
    # Elsewhere the engine says where the hosts meet.
    by_hand = is_here and run_args.local_hosts is None and not run_args.standalone
    of_the_job = checks_of(
        replace(
            before,
            master_addr=job.master_addr if by_hand else None,
            has_opt_ml=job.contract.opt_ml or job.contract.shown_at_opt_ml,
        )
    )
    return (*of_the_job, *of_the_hosts)


def _of_this_host(file: JobFile, local_hosts: int | None) -> tuple[Verdict, ...]:
    from paceline.rules.collect import this_host
    from paceline.rules.host_facts import HostsBefore, host_verdicts

    ranks = int(file.ranks_per_host) if file.ranks_per_host.isdecimal() else None
    count = 1 if local_hosts is not None else file.job.max_hosts
    return host_verdicts(HostsBefore(hosts=(this_host(file, os.environ),), host_count=count, ranks_per_host=ranks))


def _fail_on(texts: Sequence[str]) -> frozenset[str]:
    from paceline.rules.host_facts import all_host_checks
    from paceline.rules.job_facts import all_checks

    words = (*(str(one) for one in (Severity.ERROR, Severity.WARNING)), _NEVER)
    codes = tuple(check.code for check in (*all_checks(), *all_host_checks()))
    return fail_on(texts or (str(Severity.ERROR),), (*words, *codes), shown=(*words, "codes"))


def _write(name: str, text: str) -> None:
    from paceline.launch.disk import refused_by_disk

    with refused_by_disk("the SARIF file", "paceline check --sarif /a/directory/with/room/check.sarif ..."):
        Path(name).write_text(text, encoding="utf-8")
