"""Time collectives as nccl-tests does, on any backend; find slow pairs of hosts; compare gradient strategies on a script; rehearse it."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.cli.picture_file import refuse_impossible
from paceline.parts.lab.cli.bench.options import STEP, form, parse_argv
from paceline.parts.lab.cli.bench.options import VERB as VERB
from paceline.parts.lab.cli.rehearse import verb as rehearse

if TYPE_CHECKING:
    from paceline.facts import Job
    from paceline.parts.lab.cli.bench.question import BenchQuestion


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options, the thing to measure, and the words that are passed on to `paceline run`.

    Raises:  UsageError U01 to U03: an unknown or invalid option; nothing to measure
    """
    if form(argv) is rehearse.FORM:
        return rehearse.parse(argv)
    args = parse_argv(argv)
    args.argv = tuple(argv)
    return args


def run(args: argparse.Namespace) -> int:
    """Measure, print, and compare with the result of --baseline.

    Raises:  UsageError: refused before anything was started; NotEnoughEvidence X05: the ranks ended early, X06: nothing to compare with
    """
    if getattr(args, "rehearse", False):
        return rehearse.run(args)
    from pathlib import Path

    from paceline.parts.lab.cli.bench.baselines import fail_conditions, read_baseline

    fail_conditions(args)
    refuse_impossible(args.svg)
    if args.baseline:
        read_baseline(Path(args.baseline))
    if args.what == STEP:
        from paceline.parts.lab.cli.bench.step import run_step

        return run_step(args, os.environ, tell)
    from paceline.parts.lab.cli.bench.question import question_of
    from paceline.parts.lab.cli.bench.table import run_collective, run_pairs

    question = question_of(args)
    argv, job = _prepared(args, question)
    if question.pairs:
        return run_pairs(args, question, argv, tell)
    return run_collective(args, question, argv, job, tell)


def tell(line: str) -> None:
    """Print one line on stderr, beside the answer."""
    print(line, file=sys.stderr, flush=True)


def _prepared(args: argparse.Namespace, question: "BenchQuestion") -> tuple[tuple[str, ...], "Job"]:
    """The arguments of `paceline run` before its program. Everything that `paceline run` would refuse is refused here."""
    from paceline.cli.run import verb as run_verb
    from paceline.parts.lab.cli.bench.question import PROGRAM, refuse_one_rank, refuse_root, with_ranks

    argv = with_ranks(args, os.environ)
    if not any(word.partition("=")[0] == "--name" for word in argv):
        argv = ("--name", f"bench-{question.collective}", *argv)
    job = run_verb.would_run((*argv, "-m", PROGRAM), os.environ)
    refuse_one_rank(job)
    if job.min_hosts == job.max_hosts:
        refuse_root(question, job.max_hosts * job.ranks_per_host)
    return argv, job
