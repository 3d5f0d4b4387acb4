"""Look for mistakes in a script, in the user's own files that it imports, in its job and on this machine. No script is executed."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.cli.job.options import VERB as RUN
from paceline.cli.job.options import parse_run
from paceline.cli.option import Option, Verb
from paceline.cli.parsing import VerbParser, split_at_script
from paceline.cli.terminal import columns, use_color
from paceline.cli.values import fail_on
from paceline.facts import Job
from paceline.findings import Finding, Judgement, Severity, Verdict

_NEVER = "never"
_OF_THE_JOB = (
    "nnodes", "nproc-per-node", "master-addr", "module", "no-python", "run-path", "max-run", "hp", "hyperparameters", "hp-profile",
    "channel", "output", "checkpoints", "source-dir", "standalone", "local-hosts", "opt-ml",
)  # fmt: skip

VERB = Verb(
    "check",
    __doc__ or "",
    (
        ("paceline check", "this machine alone"),
        ("paceline check --nnodes 2 --nproc-per-node 8 train.py --lr 0.1", "as a job of 16 ranks"),
    ),
    (
        Option("hosts", "Look at these hosts over ssh, and let them connect to each other.", "HOST,..."),
        Option(
            "option",
            "An option of the ssh engine, with --hosts. May be repeated.",
            "KEY=VALUE",
            default=(),
            repeatable=True,
        ),
        Option("engine", "Where the job is to run, for the checks that depend on it.", "NAME", default="local"),
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
A comment `# paceline: ignore[K07] why` behind a line, or on the line above it, switches a check off there. With
`--hosts` the machines that are looked at are those, over ssh: each says what it has, and connects to the others. What could
not be looked at is listed as not judged. All checks are in [checks.md](checks.md).""",
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
    verdicts = verdicts_of(args)
    if args.sarif is not None:
        _write(args.sarif, sarif_text(verdicts))
    if args.json:
        print(json.dumps(checks_facts(verdicts)))
    else:
        print(checks_text(verdicts, width=columns(sys.stdout), color=use_color(args.color, sys.stdout)))
    found = [finding for verdict in verdicts for finding in verdict.findings]
    return int(any(finding.code in wanted or str(finding.severity) in wanted for finding in found))


def verdicts_of(args: argparse.Namespace) -> tuple[Verdict, ...]:
    """The verdicts of all checks on the job of the command line, and on this machine.

    Raises:  UsageError: the command line describes an impossible job
    """
    from paceline.cli.job.job import job_file_of
    from paceline.cli.job.submission import variable
    from paceline.cli.submit import planned
    from paceline.launch.program import require_program
    from paceline.rules.collect import before_of
    from paceline.rules.job_facts import checks_of

    # Without a script, only the machine is checked; any script name would do.
    run_args = parse_run([*args.run_argv, *(args.script_argv or ["script.py"])], {})
    file = job_file_of(run_args)
    of_the_host = _host_verdicts(args, file.job, file.ranks_per_host, run_args)
    if not args.script_argv:
        return of_the_host
    job = file.job
    require_program(job, os.environ)
    environment = dict(variable(text, os.environ) for text in args.env)
    before = before_of(
        engine=args.engine,
        instance_type=args.instance,
        hosts=job.max_hosts,
        ranks_per_host=file.ranks_per_host,
        program=job.program,
        directory=Path(job.contract.code_dir or Path.cwd()),
        channels=job.contract.channels,
        launcher="torch_distributed",
        max_run_seconds=job.max_run_seconds,
        checkpoint_url=job.checkpoint_url,
        environment=environment,
        hyperparameters=job.contract.hyperparameters,
        profile=job.contract.profile,
        plan=planned(args.instance, job.max_hosts, job.max_run_seconds, args.plan) if args.plan is not None else None,
    )
    by_hand = run_args.local_hosts is None and not run_args.standalone
    of_the_job = checks_of(
        replace(
            before,
            master_addr=job.master_addr if by_hand else None,
            has_opt_ml=job.contract.opt_ml or job.contract.shown_at_opt_ml,
        )
    )
    return (*of_the_job, *of_the_host)


def _host_verdicts(args: argparse.Namespace, job: Job, ranks: str, run_args: argparse.Namespace) -> tuple[Verdict, ...]:
    """The verdicts of the host checks on this machine, or on the hosts of --hosts."""
    import msgspec

    from paceline.probes.host_before import read_host
    from paceline.recording.runs import runs_root
    from paceline.rules.host_facts import HostFacts, HostsBefore, host_verdicts

    count = int(ranks) if ranks.isdecimal() else None
    if args.hosts is not None:
        return _of_named_hosts(args, count)
    meets_here = run_args.local_hosts is None and job.max_hosts > 1 and job.is_first
    ports = [job.agents_port] if meets_here and job.agents_port else []
    facts = read_host(os.uname().nodename, runs_root(environ=os.environ), ports)
    by_hand = 1 if run_args.local_hosts is not None else job.max_hosts
    here = (msgspec.convert(facts, HostFacts),)
    return host_verdicts(HostsBefore(hosts=here, host_count=by_hand, ranks_per_host=count))


def _of_named_hosts(args: argparse.Namespace, ranks: int | None) -> tuple[Verdict, ...]:
    """The verdicts of the checks on hosts that are reached over ssh, and why other hosts were not checked."""
    from paceline.cli.job.submission import key_and_value
    from paceline.launch.engines.ssh.check import look_at
    from paceline.launch.engines.ssh.options import read_settings
    from paceline.rules.host_facts import HostsBefore, host_verdicts

    options = {**dict(key_and_value(text) for text in args.option), "hosts": args.hosts}
    settings = read_settings(options)
    seen = look_at(settings, os.environ)
    before = HostsBefore(hosts=seen.hosts, host_count=len(settings.hosts), ranks_per_host=ranks, links=seen.links)
    refused: dict[str, list[Finding]] = {}
    for error in seen.refused:
        finding = Finding(code=error.code, severity=Severity.ERROR, what=error.what, saw=error.saw, next=error.next)
        refused.setdefault(error.code, []).append(finding)
    unseen = tuple(Verdict(code, Judgement.FIRED, tuple(findings)) for code, findings in sorted(refused.items()))
    return (*unseen, *(host_verdicts(before) if seen.hosts else ()))


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
