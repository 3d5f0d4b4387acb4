"""Bandwidth of a sendrecv between every two hosts, as a matrix, and the pairs that stand out."""

from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.parts.lab.nccl_tests import BenchWorld, size_text
from paceline.parts.lab.slow_pairs import Pair, Slow
from paceline.parts.lab.views.bench import SCHEMA, world_facts
from paceline.views.table import table
from paceline.views.units import count, counted

# A matrix with more columns is not readable; then the slowest pairs are listed.
_MOST_COLUMNS = 16
_LISTED = 20


def pairs_text(pairs: Sequence[Pair], slow: Sequence[Slow] | None, world: BenchWorld, *, width: int = 100) -> str:
    """GB/s of each direction above the diagonal, the time of the smallest message in us below it; then the slow pairs."""
    members = list(dict.fromkeys(name for pair in pairs for name in (pair.a, pair.b)))
    first = (
        f"# sendrecv between each two of {count(len(members))} {_kind(world)}, backend {world.backend}; GB/s each way of "
        f"{size_text(pairs[0].size_bytes)}, below the diagonal us of the smallest message"
    )
    shown = _matrix(pairs, members, width) if len(members) <= _MOST_COLUMNS else _list(pairs, width)
    return "\n".join([first, shown, *(f"# {line}" for line in slow_lines(slow, len(pairs)))])


def slow_lines(slow: Sequence[Slow] | None, pairs: int) -> list[str]:
    """One line for each outlier: "slow: algo-1 - algo-3: 0.12 GB/s, others 1.1"."""
    if slow is None:
        return [f"not judged: {counted(pairs, 'pair')} cannot tell which of them is slow"]
    if not slow:
        return ["no pair stands out"]
    return [f"slow: {_who(one)}: {_speed(one.worst)} GB/s, others {_speed(one.others)}" for one in slow]


def pairs_json(
    pairs: Sequence[Pair], slow: Sequence[Slow] | None, world: BenchWorld, asked: dict[str, Any]
) -> dict[str, Any]:
    """Every pair, and the outliers; `slow` null: too few pairs to judge."""
    return {
        "schema": SCHEMA,
        "collective": "sendrecv",
        "asked": asked,
        "world": world_facts(world),
        "pairs": msgspec.to_builtins(pairs),
        "slow": msgspec.to_builtins(slow),
    }


def _matrix(pairs: Sequence[Pair], members: Sequence[str], width: int) -> str:
    of = {(pair.a, pair.b): pair for pair in pairs} | {(pair.b, pair.a): pair for pair in pairs}
    rows = []
    for row, name in enumerate(members):
        cells = [
            "-" if column == row else _cell(of.get((name, other)), below=column < row)
            for column, other in enumerate(members)
        ]
        rows.append([name, *cells])
    needed = max(width, 12 * (len(members) + 1))
    return table(["", *members], rows, right=frozenset(members), width=needed)


def _list(pairs: Sequence[Pair], width: int) -> str:
    slowest = sorted(pairs, key=lambda pair: pair.gb_per_second)[:_LISTED]
    rows = [[pair.name, _speed(pair.gb_per_second), f"{pair.latency_seconds * 1e6:.1f}"] for pair in slowest]
    return table(["SLOWEST PAIRS", "GB/S", "US"], rows, right=frozenset({"GB/S", "US"}), width=width)


def _cell(pair: Pair | None, *, below: bool) -> str:
    if pair is None:
        return ""
    return f"{pair.latency_seconds * 1e6:.1f}" if below else _speed(pair.gb_per_second)


def _who(one: Slow) -> str:
    if one.between:
        return " - ".join("{" + ", ".join(group) + "}" for group in one.between)
    return f"{one.members[0]} with every other" if len(one.members) == 1 else " - ".join(one.members)


def _speed(gb_per_second: float) -> str:
    return f"{gb_per_second:.3g}"


def _kind(world: BenchWorld) -> str:
    return "hosts" if len(world.hosts) > 1 else "ranks"
