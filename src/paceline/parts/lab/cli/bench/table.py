"""Measures a collective size by size, or a sendrecv pair by pair, prints rows as they arrive, compares them with an earlier result."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from paceline import __version__
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import columns
from paceline.facts import Job
from paceline.parts.comm.planner.regression import Figure, compare, confirmed
from paceline.parts.lab.cli.bench.baselines import BenchResult, JudgedResult, conclude, judge, question_key, results_of
from paceline.parts.lab.cli.bench.collective_run import BenchOutput, measure
from paceline.parts.lab.cli.bench.question import BenchQuestion
from paceline.parts.lab.nccl_tests import Table, size_bytes, wrong_elements
from paceline.parts.lab.slow_pairs import slow_pairs
from paceline.parts.lab.views.bench import footer, header, row_line, table_json
from paceline.parts.lab.views.bench_pairs import pairs_json, pairs_text
from paceline.parts.lab.views.bench_picture import collective_svg, pairs_svg

Tell = Callable[[str], None]
_ELSEWHERE = "paceline  rank 0 is on another host, which has the answer"


def run_collective(args: argparse.Namespace, question: BenchQuestion, argv: Sequence[str], job: Job, tell: Tell) -> int:
    """Print the table, row after row as it is measured. Figures that look worse than before are measured a second time.

    Raises:  as `measure` and `conclude`
    """
    with ProgressLine(f"bench {question.collective}", unit="cells", shown=not args.json) as progress:
        found = measure(
            question, argv, os.environ, on_answer=_printer(args, question, progress), tell=_beside(progress, tell)
        )
    if found.world is None:
        tell(_ELSEWHERE)
        return 0
    table = _table(question, found, args)
    wrong = wrong_elements(table.rows)
    if not args.json:
        print(footer(table), flush=True)
    results = results_of(table, argv)
    judged = [one for result in results if (one := judge(result, args)) is not None]
    if job.max_hosts == 1 or _starts_all_hosts(argv):
        judged = [_confirmed(args, question, argv, one, tell) for one in judged]
    failed = {"wrong"} if wrong else ()
    return conclude(
        args, results, judged, table_json(table), _say_baselines, lambda: collective_svg(table), found=failed
    )


def run_pairs(args: argparse.Namespace, question: BenchQuestion, argv: Sequence[str], tell: Tell) -> int:
    """Print the matrix of pairs, and which pairs are slow.

    Raises:  as `measure` and `conclude`
    """
    with ProgressLine("bench pairs", unit="pairs", shown=not args.json) as progress:

        def count(kind: str, found: BenchOutput) -> None:
            progress.at(len(found.pairs), _pair_count(found))

        found = measure(question, argv, os.environ, on_answer=count, tell=_beside(progress, tell))
    if found.world is None:
        tell(_ELSEWHERE)
        return 0
    world, pairs, slow = found.world, found.pairs, slow_pairs(found.pairs)
    points = {
        pair.name: Figure(seconds=pair.seconds, mad_seconds=pair.mad_seconds, count=pair.iterations) for pair in pairs
    }
    result = BenchResult(name="", key=question_key("pairs", world, argv, size=question.sizes[-1]), points=points)
    judged = [one] if (one := judge(result, args)) is not None else []

    def show(baselines: list[str]) -> None:
        print(pairs_text(pairs, slow, world, width=columns(sys.stdout)))
        _say_baselines(baselines)

    facts = pairs_json(pairs, slow, world, question.plain())
    failed = {"slow"} if slow else ()
    return conclude(args, [result], judged, facts, show, lambda: pairs_svg(pairs, slow), found=failed)


def _printer(
    args: argparse.Namespace, question: BenchQuestion, progress: ProgressLine
) -> Callable[[str, BenchOutput], None]:
    def show(kind: str, found: BenchOutput) -> None:
        if args.json or found.world is None:
            return
        progress.at(len(found.rows) + len(found.left), question.cell_count(found.world.size))
        with progress.hidden():
            if kind == "world":
                print(header(question.collective, found.world, question.plain(), __version__), flush=True)
            if kind == "row":
                print(row_line(found.rows[-1], question.collective, found.world.size), flush=True)

    return show


def _beside(progress: ProgressLine, tell: Tell) -> Tell:
    """`tell`, for lines that may come while the line of the progress is on the terminal."""

    def told(line: str) -> None:
        with progress.hidden():
            tell(line)

    return told


def _pair_count(found: BenchOutput) -> int | None:
    """How many pairs there are: those of hosts, or of the ranks of one host."""
    if found.world is None:
        return None
    ends = len(found.world.hosts) if len(found.world.hosts) > 1 else found.world.size
    return ends * (ends - 1) // 2


def _table(question: BenchQuestion, found: BenchOutput, args: argparse.Namespace) -> Table:
    assert found.world is not None
    asked = {**question.plain(), "command": shlex.join(["paceline", "bench", *args.argv])}
    return Table(
        collective=question.collective,
        world=found.world,
        rows=tuple(found.rows),
        left=tuple(found.left),
        asked=asked,
    )


def _confirmed(
    args: argparse.Namespace, question: BenchQuestion, argv: Sequence[str], first: JudgedResult, tell: Tell
) -> JudgedResult:
    """Measure again what looks worse: on a busy machine, most of it is not confirmed."""
    if not first.comparison.worse:
        return first
    labels = [change.label for change in first.comparison.worse]
    tell(f"paceline  slower than before at {', '.join(labels)}; measuring that once more")
    key = first.result.key
    narrow = replace(
        question,
        sizes=tuple(size_bytes(label) or 0 for label in labels),
        types=(key["type"],),
        operations=(key["operation"],) if key["operation"] != "none" else question.operations,
        roots=(key["root"],) if key["root"] >= 0 else question.roots,
        cycles=1,
    )
    with ProgressLine("measuring again", unit="cells", shown=not args.json) as progress:

        def count(kind: str, found: BenchOutput) -> None:
            progress.at(len(found.rows), len(labels))

        found = measure(narrow, argv, os.environ, on_answer=count)
    (second, *_) = results_of(_table(narrow, found, args), argv)
    again = compare(second.points, first.past)
    return replace(first, comparison=confirmed(first.comparison, again), confirmed=True)


def _starts_all_hosts(argv: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in ("--local-hosts", "--local_hosts") for word in argv)


def _say_baselines(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"# baseline: {line}")
