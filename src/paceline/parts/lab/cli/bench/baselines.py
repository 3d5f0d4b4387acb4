"""Writes results of `paceline bench`, and compares one with an earlier one that --baseline names."""

import argparse
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from paceline.cli.picture_file import write_picture
from paceline.cli.values import fail_on
from paceline.errors import NotEnoughEvidence, UsageError
from paceline.parts.comm.planner.regression import Baseline, Figure, Regression, compare
from paceline.parts.lab.nccl_tests import BenchRow, BenchWorld, Table, own_timing, size_text
from paceline.parts.lab.views.bench import comparison_facts, comparison_lines
from paceline.recording.writer import write_json

FAILURES = ("worse", "wrong", "slow")
_ANY = "any"
# Options of `paceline run` that change the network. A result with another network answers another question.
_NETWORK = ("--network", "--local-hosts", "--local_hosts")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """The figures for one question."""

    name: str
    """A text that distinguishes this question from the others of the same bench; empty if there is only one question."""
    key: Mapping[str, Any]
    """Values that must be equal in two results before they can be compared."""
    points: Mapping[str, Figure]
    """Label (a size, a pair of hosts, a strategy) -> its figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResult:
    """A result and its comparison with an earlier one."""

    result: BenchResult
    """The figures of this bench."""
    past: Baseline
    """The result that --baseline names."""
    comparison: Regression
    """The changes: worse, better or unchanged."""
    confirmed: bool = False
    """Whether a figure that looked worse was measured twice."""


def results_of(table: Table, argv: Sequence[str]) -> list[BenchResult]:
    """One result for each type, reduction and root: the medians of torch's own call, by size."""
    groups: dict[tuple[str, str, int], list[BenchRow]] = {}
    for row in table.rows:
        groups.setdefault((row.type, row.operation, row.root), []).append(row)
    return [
        BenchResult(
            name=" ".join([kind, operation, *([f"root {root}"] if root >= 0 else [])]) if len(groups) > 1 else "",
            key=question_key(
                table.collective,
                table.world,
                argv,
                type=kind,
                operation=operation,
                root=root,
                aggregate=table.asked["aggregate"],
            ),
            points=_points(rows, table.collective),
        )
        for (kind, operation, root), rows in groups.items()
    ]


def question_key(what: str, world: BenchWorld, argv: Sequence[str], **more: Any) -> dict[str, Any]:
    """The values that must be equal to compare two results: the question, the machines, the emulated network."""
    return {
        "what": what,
        "backend": world.backend,
        "device": world.device,
        "machines": sorted({rank.machine for rank in world.ranks}),
        "hosts": len(world.hosts),
        "ranks": world.size,
        "network": network_argv(argv),
        **more,
    }


def network_argv(argv: Sequence[str]) -> list[str]:
    """The options of `paceline run` that shape hosts and links, each with its value."""
    found = []
    for place, word in enumerate(argv):
        if word.startswith(_NETWORK):
            name, _, value = word.partition("=")
            found.append(f"{name}={value or (argv[place + 1] if place + 1 < len(argv) else '')}")
    return sorted(found)


def judge(result: BenchResult, args: argparse.Namespace) -> JudgedResult | None:
    """Compare with --baseline; None without it.

    Raises:  UsageError X06: --baseline names no result, or a result without a common figure
    """
    if not args.baseline:
        return None
    past = _from_file(Path(args.baseline), result)
    return JudgedResult(result=result, past=past, comparison=compare(result.points, past))


def fail_conditions(args: argparse.Namespace) -> frozenset[str]:
    """Raises:  UsageError U03: --fail-on has a word that a bench cannot find, or `worse` without --baseline."""
    wanted = _asked(args)
    if "worse" in wanted and not args.baseline:
        raise UsageError(
            "U03",
            "--fail-on worse compares with an earlier result",
            saw="no --baseline",
            next="-J FILE writes one, --baseline FILE reads it",
        )
    return frozenset(FAILURES) if _ANY in wanted else wanted


def _asked(args: argparse.Namespace) -> frozenset[str]:
    return fail_on(args.fail_on, (*FAILURES, _ANY))


def conclude(
    args: argparse.Namespace,
    results: Sequence[BenchResult],
    judged: Sequence[JudgedResult],
    facts: dict[str, Any],
    show: Callable[[list[str]], None],
    picture: Callable[[], str],
    *,
    found: Collection[str] = (),
) -> int:
    """Print the answer in each requested form, choose the exit code.

    `facts`: the content of --json without the comparisons; `show`: prints the text, and gets the lines about the baseline; `picture`: the
    content of --svg; `found`: which of "wrong" and "slow" apply.

    Raises:  UsageError U22: a file could not be written; NotEnoughEvidence X06: --fail-on worse, and no figure could be judged
    """
    facts = facts | result_json(results) | comparisons_json(judged)
    if args.output_file:
        _write(Path(args.output_file), facts)
    if args.json:
        print(json.dumps(facts), flush=True)
    else:
        show(
            [
                line
                for one in judged
                for line in comparison_lines(one.result.name, one.comparison, confirmed=one.confirmed)
            ]
        )
    if args.svg:
        write_picture(args.svg, picture(), as_json=args.json)
    worse = {"worse"} if any(one.comparison.worse for one in judged) else set()
    if fail_conditions(args) & {*found, *worse}:
        return 1
    _refuse_unjudged(args, judged)
    return 0


def _write(path: Path, facts: dict[str, Any]) -> None:
    try:
        write_json(path, facts)
    except OSError as error:
        raise UsageError(
            "U22", f"{path} cannot be written", saw=str(error.strerror), next="-J another-file.json"
        ) from error


def _refuse_unjudged(args: argparse.Namespace, judged: Sequence[JudgedResult]) -> None:
    if "worse" in _asked(args) and not any(one.comparison.changes for one in judged):
        raise NotEnoughEvidence(
            "X06",
            "it is not known whether it became slower",
            saw="no figure could be judged",
            next="more iterations: -n 100",
        )


def _points(rows: Sequence[BenchRow], collective: str) -> dict[str, Figure]:
    by_size: dict[int, list[BenchRow]] = {}
    for row in rows:
        by_size.setdefault(row.size_bytes, []).append(row)
    found = {}
    for size, same in by_size.items():
        timings = [own_timing(row, collective) for row in same]
        found[size_text(size)] = Figure(
            seconds=median(one.median_us for one in timings) / 1e6,
            mad_seconds=median(one.mad_us for one in timings) / 1e6,
            count=sum(one.iterations for one in timings),
        )
    return found


def result_json(results: Sequence[BenchResult]) -> dict[str, Any]:
    """The part of a written result that --baseline reads later."""
    return {
        "made_ns": time.time_ns(),
        "figures": [
            {
                "key": dict(one.key),
                "points": {label: [at.seconds, at.mad_seconds, at.count] for label, at in one.points.items()},
            }
            for one in results
        ],
    }


def comparisons_json(judged: Sequence[JudgedResult]) -> dict[str, Any]:
    """The part of a written result that compares it with the one of --baseline."""
    return {
        "comparisons": [
            {"name": one.result.name, "comparison": comparison_facts(one.comparison, confirmed=one.confirmed)}
            for one in judged
        ]
    }


def read_baseline(path: Path) -> dict[str, Any]:
    """The content of the file that --baseline names.

    Raises:  UsageError X06: it cannot be read
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            "X06", f"--baseline {path} cannot be read", saw=str(error), next="paceline bench ... -J FILE writes one"
        ) from None
    return document if isinstance(document, dict) else {}


def _from_file(path: Path, result: BenchResult) -> Baseline:
    """The result in a file that -J wrote."""
    document = read_baseline(path)
    same = ("what", "type", "operation", "root", "script")
    listed = document.get("figures")
    for part in reversed(listed) if isinstance(listed, list) else ():
        key, points = (part.get(name) if isinstance(part, dict) else None for name in ("key", "points"))
        if not isinstance(key, dict) or not isinstance(points, dict):
            continue
        points = _figures(points)
        if all(key.get(name) == result.key.get(name) for name in same) and set(points) & set(result.points):
            made_ns = document.get("made_ns")
            return Baseline(made_ns=made_ns if isinstance(made_ns, int) else 0, points=points)
    asked = " ".join(str(result.key[name]) for name in same if result.key.get(name) not in (None, "none", -1))
    raise UsageError(
        "X06",
        f"--baseline {path} holds nothing to compare with",
        saw=f"asked: {asked}, {', '.join(list(result.points)[:6])}",
        next="give the result of the same question: paceline bench ... -J FILE writes one",
    )


def _figures(plain: Mapping[str, Any]) -> dict[str, Figure]:
    """What can be read of them: the file may have been edited by hand."""
    return {
        label: Figure(seconds=float(one[0]), mad_seconds=float(one[1]), count=int(one[2]))
        for label, one in plain.items()
        if isinstance(one, list)
        and len(one) == 3
        and all(type(number) in (int, float) for number in one)
        and one[0] > 0
    }
