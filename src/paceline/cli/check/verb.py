"""Look for mistakes in a script, in the user's own files that it imports, in its job and on this machine. No script is executed."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.job.options import VERB as RUN
from paceline.cli.job.options import parse_run
from paceline.cli.parsing import VerbParser, split_at_script
from paceline.cli.terminal import columns, use_color
from paceline.cli.values import duration, fail_on
from paceline.errors import UsageError
from paceline.findings import Finding, Judgement, Severity, Verdict
from paceline.job_file import JobFile
from paceline.launch.engines.base import PLACES, load
from paceline.option import Option, Verb

if TYPE_CHECKING:
    from paceline.estimator.in_source import FoundEstimator

_NEVER = "never"
# A script without one of these words builds no estimator.
_BUILDS = ("sagemaker", "paceline")
# SageMaker's API on this machine: its jobs are SageMaker's, its machine is this one.
_JOBS_OF, _MACHINES = {"sagemaker-local": "sagemaker"}, {"sagemaker-local": "local"}
_OF_THE_JOB = (
    "nnodes", "nproc-per-node", "master-addr", "module", "no-python", "run-path", "max-run", "hp", "hyperparameters", "hp-profile",
    "channel", "output", "checkpoints", "source-dir", "standalone", "local-hosts", "opt-ml",
)  # fmt: skip

VERB = Verb(
    "check",
    __doc__ or "",
    (
        ("paceline check --nnodes 2 --nproc-per-node 8 train.py --lr 0.1", "as a job of 16 ranks"),
        ("paceline check --engine slurm --nnodes 2 --option partition=gpu", "the nodes of a job"),
    ),
    (
        Option("hosts", "Look at these hosts over ssh, and let them connect to each other.", "HOST,..."),
        Option(
            "option",
            "An option of the engine. May be repeated.",
            "KEY=VALUE",
            default=(),
            repeatable=True,
        ),
        Option(
            "engine",
            "Where the job is to run. The hosts that it would get there are looked at.",
            "|".join((*PLACES, "sagemaker-local")),
            default="local",
        ),
        Option("wait", "How long to wait for hosts that other jobs use.", "DURATION", default="30s"),
        Option("instance", "The machine type of every host.", "TYPE"),
        Option(
            "plan",
            "Options of `paceline plan`, such as '--trace step.json --steps 9000': the planner's answer for the machine type, "
            "the hosts and --max-run is checked too.",
            "OPTIONS",
        ),
        Option(
            "env",
            "A variable for every rank, with this shell's value where none is given. May be repeated.",
            "NAME[=VALUE]",
            default=(),
            repeatable=True,
        ),
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
    script_place=1,
    usage="paceline check [OPTIONS] [OPTIONS OF run] [SCRIPT [ARGUMENTS ...]]",
    passed_on=tuple(row for row in RUN.options if row.name in _OF_THE_JOB),
    epilog="The options of `paceline run` that describe a job are taken too, so that its checks know of how many ranks it is.",
    page="""\
Each finding names its file and line, and has a page: `paceline explain K07`. The files that the script imports are
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
    from paceline.views.sarif import sarif_text

    wanted = _fail_on(args.fail_on)
    estimators = _estimators(args)
    verdicts = _verdicts_of_estimators(*estimators) if estimators else verdicts_of(args)
    if args.sarif is not None:
        _write(args.sarif, sarif_text(verdicts))
    if args.json:
        print(json.dumps(checks_facts(verdicts)))
    else:
        for one in estimators[0] if estimators else ():
            its_script = f", and its script {one.script}" if one.script else ""
            print(f"paceline  {one.place} builds {one.class_name}(): its job is checked{its_script}")
        print(checks_text(verdicts, width=columns(sys.stdout), color=use_color(args.color, sys.stdout)))
    found = [finding for verdict in verdicts for finding in verdict.findings]
    return int(any(finding.code in wanted or str(finding.severity) in wanted for finding in found))


def _estimators(args: argparse.Namespace) -> tuple[Sequence["FoundEstimator"], Path] | None:
    """The estimators that the named script or notebook builds, and the directory in which it lies; None: it builds none, or is not there.

    Raises:  UsageError U02: a notebook that builds none, or cannot be read
    """
    from paceline.estimator.in_source import cells_of, estimators_in

    name = args.script_argv[0] if args.script_argv else ""
    path = Path(name)
    is_notebook = path.suffix == ".ipynb"
    if not path.is_file() or not (is_notebook or path.suffix == ".py"):
        return None
    cells = cells_of(path, name)
    found = estimators_in(cells) if any(word in cell.text for cell in cells for word in _BUILDS) else []
    if is_notebook and not found:
        raise UsageError(
            "U02",
            f"{name} is a notebook, and its cells build no estimator",
            saw=f"{len(cells)} cells of code",
            next="paceline check train.py, with the script that the job runs",
        )
    return (found, path.absolute().parent) if found else None


def _verdicts_of_estimators(found: Sequence["FoundEstimator"], directory: Path) -> tuple[Verdict, ...]:
    """The verdicts on all of their jobs, one for each check."""
    from paceline.estimator.in_source import verdicts_of_estimator

    of_code: dict[str, list[Verdict]] = {}
    for one in found:
        for verdict in verdicts_of_estimator(one, directory):
            of_code.setdefault(verdict.code, []).append(verdict)
    return tuple(_together(verdicts) for _, verdicts in sorted(of_code.items()))


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    findings = tuple(dict.fromkeys(finding for verdict in verdicts for finding in verdict.findings))
    if findings:
        return replace(verdicts[0], judgement=Judgement.FIRED, findings=findings, missing="")
    unseen = next((verdict for verdict in verdicts if verdict.judgement is Judgement.NOT_JUDGED), None)
    return unseen or verdicts[0]


def verdicts_of(args: argparse.Namespace) -> tuple[Verdict, ...]:
    """The verdicts of all checks on the job of the command line, and on this machine.

    Raises:  UsageError: the command line describes an impossible job
    """
    from paceline.cli.job.job import job_file_of
    from paceline.cli.job.submission import key_and_value, variable
    from paceline.cli.submit import planned
    from paceline.launch.program import require_program
    from paceline.probes.environment import read_cpu
    from paceline.probes.gpus import has_accelerator
    from paceline.probes.torch_version import read_torch
    from paceline.rules.collect import before_of
    from paceline.rules.job_facts import checks_of

    # Without a script, only the machine is checked; any script name would do.
    run_args = parse_run([*args.run_argv, *(args.script_argv or ["script.py"])], {})
    file = job_file_of(run_args)
    options = dict(key_and_value(text) for text in args.option)
    if args.hosts is not None:
        options["hosts"] = args.hosts
    of_the_host = _host_verdicts(args, file, run_args, options)
    if not args.script_argv:
        return of_the_host
    job = file.job
    require_program(job, os.environ)
    environment = dict(variable(text, os.environ) for text in args.env)
    instance = args.instance or options.get("instance_type")
    is_here = args.engine == "local" and args.hosts is None and instance is None
    before = before_of(
        engine=_JOBS_OF.get(args.engine, args.engine),
        instance_type=instance,
        hosts=job.max_hosts,
        ranks_per_host=file.ranks_per_host,
        program=job.program,
        directory=Path(job.contract.code_dir or Path.cwd()),
        channels=job.contract.channels,
        launcher="torch_distributed",
        torch_version=read_torch().version if args.engine == "local" and instance is None else None,
        cpus_per_host=read_cpu()["usable_count"] if is_here and has_accelerator() is False else None,
        max_run_seconds=job.max_run_seconds,
        checkpoint_url=job.checkpoint_url,
        environment=environment,
        hyperparameters=job.contract.hyperparameters,
        profile=job.contract.profile,
        plan=planned(instance, job.max_hosts, job.max_run_seconds, args.plan) if args.plan is not None else None,
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
    return (*of_the_job, *of_the_host)


def _host_verdicts(
    args: argparse.Namespace, file: JobFile, run_args: argparse.Namespace, options: Mapping[str, str]
) -> tuple[Verdict, ...]:
    """The verdicts of the host checks on the hosts that the job would get, and why other hosts were not checked."""
    from paceline.launch.engines.host_check import look_at
    from paceline.launch.engines.submission import Submission
    from paceline.rules.host_facts import HostsBefore, host_verdicts, hosts_not_judged

    name = "ssh" if args.hosts is not None else _MACHINES.get(args.engine, args.engine)
    # A host of a job by hand looks at itself: the others are looked at where they are.
    by_hand = run_args.local_hosts is None and file.job.max_hosts > 1
    job = file.job if by_hand and file.job.is_first else replace(file.job, agents_port=None)
    asked = Submission(file=replace(file, job=job), hosts=job.max_hosts, engine_options=options)
    seen = look_at(load(name, os.environ, options), asked, duration("--wait", args.wait, example="5m", zero=True))
    refused: dict[str, list[Finding]] = {}
    for error in seen.refused:
        finding = Finding(code=error.code, severity=Severity.ERROR, what=error.what, saw=error.saw, next=error.next)
        refused.setdefault(error.code, []).append(finding)
    unseen = tuple(Verdict(code, Judgement.FIRED, tuple(findings)) for code, findings in sorted(refused.items()))
    if not seen.hosts:
        return (*unseen, *hosts_not_judged(seen.unknown or "the hosts of the job: none could be looked at"))
    count = 1 if run_args.local_hosts is not None else max(job.max_hosts, len(seen.hosts) + len(seen.refused))
    ranks = int(file.ranks_per_host) if file.ranks_per_host.isdecimal() else None
    before = HostsBefore(hosts=seen.hosts, host_count=count, ranks_per_host=ranks, links=seen.links)
    return (*unseen, *host_verdicts(before))


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
