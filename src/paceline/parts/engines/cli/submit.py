"""Give a training job to an engine: this machine, hosts over SSH, Ray, Slurm or SageMaker. It is the same job everywhere."""

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.cli.job.engine_logs import print_logs
from paceline.cli.job.keys import refuse_former
from paceline.cli.job.options import VERB as RUN
from paceline.cli.parsing import VerbParser, split_at_script
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import columns, use_color
from paceline.errors import PacelineError, UsageError
from paceline.facts import Status
from paceline.launch.disk import refused_by_disk
from paceline.option import ENV, Option, Verb
from paceline.parts.engines import jobs
from paceline.parts.engines.base import PLACES, load
from paceline.parts.engines.cli.submission import OF_RUN_ALONE, OF_THE_ENGINE, key_and_value, submission_of
from paceline.parts.engines.package import package
from paceline.parts.engines.submission import Submission
from paceline.parts.engines.views.submit import Taken, request_facts, request_text, submitted_facts, submitted_text
from paceline.recording.runs import new_run_id
from paceline.rules.collect import before_of
from paceline.rules.job_facts import checks_of, refusal
from paceline.views.checks import checks_text
from paceline.views.progress import BYTES

VERB = Verb(
    "submit",
    __doc__ or "",
    (
        ("paceline submit --engine slurm --nnodes 2 --nproc-per-node 8 train.py", "two nodes of the cluster"),
        ("paceline submit --engine slurm --nnodes 2 --dry-run train.py", "show what would be asked, ask nothing"),
    ),
    (
        Option(
            "engine",
            "Where the job is to run.",
            "|".join(PLACES),
        ),
        Option("dry-run", "Print what the engine would be asked, and ask nothing."),
        Option("follow", "Stay, print the output, return the job's exit code."),
        Option("hosts", "The hosts, for the engine ssh.", "HOST,..."),
        Option("option", "An option of the engine. May be repeated.", "KEY=VALUE", default=(), repeatable=True),
        ENV,
        Option(
            "retries",
            "How often the job is started anew after a lost host or a preemption. --max-restarts is for failures of the script.",
            "N",
            default=0,
            kind=int,
        ),
        Option(
            "plan",
            "Options of `paceline plan`, such as '--trace step.json --steps 9000': the planner's answer for these machines, "
            "hosts and --max-run is checked too.",
            "OPTIONS",
        ),
        Option(
            "ignore",
            "Files that are not shipped. May be repeated. .pacelineignore holds such patterns, one a line.",
            "PATTERN",
            default=(),
            repeatable=True,
        ),
    ),
    script_place=1,
    usage="paceline submit --engine NAME [OPTIONS] [OPTIONS OF run] SCRIPT [ARGUMENTS ...]",
    passed_on=tuple(row for row in RUN.options if row.dest not in (*OF_THE_ENGINE, *OF_RUN_ALONE)),
    epilog="Every option of `paceline run` is taken too, except those that say how hosts meet: the engine says that.",
    page="""\
It returns as soon as the engine has taken the job. The directory you stand in is shipped as it is; `ps`, `logs`,
`why` and `stop` then work on the job wherever it runs. Every option of [`paceline run`](#paceline-run) is taken,
except those that say how hosts meet: the engine says that. What each engine needs and can do is in
[engines.md](engines.md).""",
)


def pass_checks(job: Submission, engine: str, directory: Path, color: str, plan: str | None) -> None:
    """Check the job as it would be submitted. `directory`: the directory of its code. `plan`: arguments of `paceline plan`, from --plan.

    Raises:  UsageError K..: an error that stops the job; P.., U..: the plan cannot be made
    """
    expected = None
    if plan is not None:
        from paceline.parts.plan.cli.planned import planned

        expected = planned(job.engine_options.get("instance_type"), job.hosts, job.max_run_seconds, plan)
    verdicts = checks_of(
        before_of(
            engine=engine,
            instance_type=job.engine_options.get("instance_type"),
            hosts=job.hosts,
            ranks_per_host=job.ranks_per_host,
            program=job.program,
            directory=directory,
            channels=job.channels,
            launcher="torch_distributed",
            max_run_seconds=job.max_run_seconds,
            checkpoint_url=job.checkpoint_url,
            environment=job.environment,
            hyperparameters=job.hyperparameters,
            profile=job.profile,
            plan=expected,
        )
    )
    if error := refusal(verdicts):
        raise error
    more = f"paceline check {shlex.quote(job.program.target)}"
    text = checks_text(verdicts, width=columns(sys.stderr), color=use_color(color, sys.stderr), more=more)
    print(text, file=sys.stderr)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of `paceline submit`: its own, and those of `paceline run` in `args.run_argv`.

    Raises:  UsageError U01, U02, U03
    """
    refuse_former(VERB.name, (*RUN.rows, *VERB.rows), argv)
    ours, script = split_at_script((*RUN.rows, *VERB.rows), argv)
    args, run_argv = VerbParser(VERB, passed_on=RUN.rows).parse_own(ours)
    args.run_argv = run_argv
    if args.engine is None:
        raise UsageError(
            "U03",
            "--engine says where the job is to run, and is not given",
            saw=f"engines are {', '.join(PLACES)}",
            next=f"paceline submit --engine local {shlex.join(argv)}",
        )
    if not script:
        raise UsageError(
            "U02",
            "no training script was given",
            saw=f"paceline submit {' '.join(argv)}",
            next="paceline submit --engine local train.py",
        )
    args.script_argv = script
    args.typed = ("submit", *argv)
    return args


def run(args: argparse.Namespace) -> int:
    """Package, plan and submit; with --follow, wait until the job has ended and return its exit code.

    Raises:  PacelineError: refused; nothing remains on disk
    """
    options = dict(key_and_value(text) for text in args.option)
    if args.hosts is not None:
        options["hosts"] = args.hosts
    engine = load(args.engine, os.environ, options)
    run_id = new_run_id()
    job, directory, root = submission_of(args, run_id, options, os.environ)
    pass_checks(job, engine.name, directory, args.color, args.plan)
    if args.dry_run:
        request = engine.plan(job)
        asked = (request.engine, request.document, request.files)
        print(json.dumps(request_facts(run_id, *asked)) if args.json else request_text(*asked))
        return 0
    run_dir = jobs.make_run_dir(root, run_id, job.file.run_dir_mode)
    job = _packaged(job, directory, run_dir, args)
    with ProgressLine(f"submitting to {engine.name}", unit=BYTES, shown=not args.json) as progress:
        jobs.submit_job(job, engine, run_dir, progress.at)
    taken = _taken(job, engine.name, run_dir)
    print(json.dumps(submitted_facts(taken)) if args.json else submitted_text(taken))
    return _follow(run_dir) if args.follow else 0


def _packaged(job: Submission, directory: Path, run_dir: Path, args: argparse.Namespace) -> Submission:
    try:
        with (
            refused_by_disk("the job's code", "paceline submit --run-dir /a/directory/with/room ..."),
            ProgressLine("packing the code", unit=BYTES, shown=not args.json) as progress,
        ):
            return replace(job, package=package(directory, run_dir / jobs.CODE_FILE, args.ignore, packed=progress.at))
    except PacelineError:
        shutil.rmtree(run_dir)
        raise


def _taken(job: Submission, engine: str, run_dir: Path) -> Taken:
    taken = Taken(
        run_id=job.run_id, engine=engine, hosts=job.hosts, ranks_per_host=job.ranks_per_host, directory=str(run_dir)
    )
    if job.package is None:
        return taken
    return replace(
        taken,
        code_directory=job.package.directory,
        code_file_count=job.package.file_count,
        code_bytes=job.package.size_bytes,
        commit=job.package.commit,
        dirty=job.package.dirty,
    )


def _follow(run_dir: Path) -> int:
    try:
        # The live output of the user's own ranks, in the same form as in `paceline run`.
        seen = print_logs(run_dir, follow=True, raw=True)
    except KeyboardInterrupt:
        print(f"{run_dir.name} goes on; watch it with: paceline logs -f {run_dir.name}", file=sys.stderr)
        raise
    if seen.exit_code:
        print(f"{run_dir.name} ended: {seen.status}, exit {seen.exit_code}  {seen.reason}", file=sys.stderr)
    return seen.exit_code if seen.exit_code is not None else int(seen.status is not Status.COMPLETED)
