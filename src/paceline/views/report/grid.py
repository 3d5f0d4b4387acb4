"""The map of a run: one row for each rank, one byte for each part of the time, one plane for each thing that a map can show."""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from paceline.recording.step_columns import StepColumns, TimeAxis

NOTHING = 0
"""Nothing is recorded here."""
NOT_JUDGED = 254
"""The rank worked here, and this cannot be said of it."""
STOOD = 255
"""The rank was there and no step ended."""
_MOST = 253
SHARE, LOG2 = "u8-share", "u8-log2-3"
"""Encodings: 1 to 253 are 0 to 100 %; 1 to 64 are 1/8 to 8 times `base_seconds`."""
_LEVELS = 64
_OCTAVES = 3.0
# The share that the darkest cell stands for: the largest, at least this one. If no rank is late, the largest has a quarter of the shade.
_LEAST_DARKEST, _PALE = 0.3, 4.0
# A step that lasts so much longer than the median step, and at least so long, is one during which the rank stood.
_STOOD_TIMES, _STOOD_SECONDS = 8.0, 1.0
# Events after which nobody expects a step.
_ENDS = frozenset({"stopping", "attempt_ended", "run_finished"})


@dataclass(frozen=True, slots=True)
class Life:
    """One process of a rank."""

    host: str
    """Its host."""
    from_ns: int
    """When it joined, Unix time."""
    to_ns: int
    """When it ended, or was told to."""
    is_done: bool
    """It ended by itself without a fault: the time after its last step is no stall."""


def grid_facts(
    steps: Sequence[StepColumns],
    late: Sequence[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]],
    axis: TimeAxis,
    late_ranks: Sequence[int] = (),
) -> dict[str, Any]:
    """Rows and planes of the map. `late`: rows of rank, host and share by column, null where it is not known.

    `late_ranks`: the ranks that are late beyond chance.

    Holds:   each plane has rows x columns bytes; STOOD is at the same places in each
    """
    lives = _lives(events, axis)
    late_of = {row["rank"]: row for row in late}
    steps_of: dict[int, list[StepColumns]] = {}
    for one in steps:
        steps_of.setdefault(one.rank, []).append(one)
    base_seconds = _base_seconds(steps)
    planes: dict[str, list[bytes]] = {"late": [], "step": [], "slowest": []}
    rows = []
    for rank in sorted({*lives, *late_of, *steps_of}):
        of_rank = sorted(steps_of.get(rank, ()), key=lambda one: one.attempt)
        host = lives[rank][-1].host if rank in lives else (of_rank[-1].host if of_rank else late_of[rank]["host"])
        rows.append({"rank": rank, "host": host})
        row = _Row(of_rank, lives.get(rank, ()), axis, base_seconds)
        planes["late"].append(row.shares(late_of.get(rank, {}).get("share")))
        planes["step"].append(row.times(row.mean_seconds))
        planes["slowest"].append(row.times(row.longest_seconds))
    return {
        "rows": rows,
        "base_seconds": base_seconds,
        "has_lateness": bool(late),
        "late_ranks": list(late_ranks),
        "darkest_share": _darkest_share(late, is_anybody_late=bool(late_ranks)),
        "planes": {
            name: {
                "encoding": SHARE if name == "late" else LOG2,
                "cells64": base64.b64encode(b"".join(cells)).decode(),
            }
            for name, cells in planes.items()
        },
    }


def cells_of(grid: Mapping[str, Any], plane: str, columns: int) -> list[bytes]:
    """The bytes of each row."""
    whole = base64.b64decode(grid["planes"][plane]["cells64"])
    return [whole[at : at + columns] for at in range(0, len(whole), columns)] if columns else []


def value_of(grid: Mapping[str, Any], plane: str, cell: int) -> float | None:
    """The value of a cell between 0 and 1: of a SHARE plane the share, of a LOG2 plane the place in its range; None if it has none."""
    if not NOTHING < cell <= _MOST:
        return None
    most = _MOST if grid["planes"][plane]["encoding"] == SHARE else _LEVELS
    return (cell - 1) / (most - 1)


class _Row:
    """The steps of one rank, of all its processes."""

    def __init__(
        self, steps: Sequence[StepColumns], lives: Sequence[Life], axis: TimeAxis, base_seconds: float | None
    ) -> None:
        self._base_seconds = base_seconds
        columns = axis.columns
        width_seconds = (axis.to_ns - axis.from_ns) / columns / 1e9
        self.mean_seconds: list[float | None] = [None] * columns
        self.longest_seconds: list[float | None] = [None] * columns
        self._is_there = [False] * columns
        self._stood = [False] * columns
        stood_seconds = max(_STOOD_TIMES * (base_seconds or 0.0), _STOOD_SECONDS)
        for one in steps:
            known = [column for column in range(columns) if one.counts[column]]
            for before, column in zip([None, *known], known, strict=False):
                self.mean_seconds[column] = one.totals_ns[column] / one.counts[column] / 1e9
                self.longest_seconds[column] = one.longest_ns[column] / 1e9
                # The step that ended here went through the parts before.
                through = range(column if before is None else before + 1, column)
                is_stood = len(through) * width_seconds >= stood_seconds
                for between in through:
                    self.mean_seconds[between] = self.longest_seconds[between] = self.longest_seconds[column]
                    self._stood[between] = is_stood
            if known:
                self._is_there[known[0] : known[-1] + 1] = [True] * (known[-1] + 1 - known[0])
        self._after_the_last_step(steps, lives, axis, stood_seconds / max(width_seconds, 1e-9))

    def _after_the_last_step(
        self, steps: Sequence[StepColumns], lives: Sequence[Life], axis: TimeAxis, stood_columns: float
    ) -> None:
        # The columns of a process lie within its life; a life without steps stood before the first one, which is the start.
        lasts = [max(column for column, count in enumerate(one.counts) if count) for one in steps if any(one.counts)]
        for life in lives:
            begin, end = axis.column(life.from_ns), axis.column(life.to_ns)
            last = max((column for column in lasts if begin <= column <= end), default=None)
            if last is None or life.is_done or end - last < stood_columns:
                continue
            self._stood[last + 1 : end + 1] = [True] * (end - last)

    def times(self, values: Sequence[float | None]) -> bytes:
        """The row of a LOG2 plane."""
        return bytes(
            STOOD
            if stood
            else NOTHING
            if value is None or not self._base_seconds
            else _log2(value / self._base_seconds)
            for value, stood in zip(values, self._stood, strict=True)
        )

    def shares(self, values: Sequence[float | None] | None) -> bytes:
        """The row of a SHARE plane. A value of a stretch that began before the first step counts from that step on."""
        known = values or [None] * len(self._stood)
        has_steps = any(self._is_there)
        return bytes(
            STOOD
            if stood
            else NOTHING
            if not is_there and (has_steps or value is None)
            else NOT_JUDGED
            if value is None
            else _share(value)
            for value, stood, is_there in zip(known, self._stood, self._is_there, strict=True)
        )


def _darkest_share(late: Sequence[Mapping[str, Any]], *, is_anybody_late: bool) -> float:
    largest = min(max((share for row in late for share in row["share"] if share is not None), default=0.0), 1.0)
    return max(_LEAST_DARKEST, largest) if is_anybody_late else max(1.0, _PALE * largest)


def _share(value: float) -> int:
    return 1 + round((_MOST - 1) * min(max(value, 0.0), 1.0))


def _log2(ratio: float) -> int:
    octaves = math.log2(max(ratio, 2**-_OCTAVES))
    return 1 + min(max(round((octaves + _OCTAVES) / (2 * _OCTAVES) * (_LEVELS - 1)), 0), _LEVELS - 1)


def _base_seconds(steps: Sequence[StepColumns]) -> float | None:
    """The median over the parts of the time of a mean step."""
    found = [
        total / count / 1e9 for one in steps for total, count in zip(one.totals_ns, one.counts, strict=True) if count
    ]
    return median(found) if found else None


def _lives(events: Iterable[Mapping[str, Any]], axis: TimeAxis) -> dict[int, list[Life]]:
    """The processes of each rank, as the events tell."""
    lives: dict[int, list[Life]] = {}
    begun: dict[int, tuple[str, int]] = {}
    told_to_end: int | None = None

    def end(rank: int, at_ns: int, *, is_done: bool = False) -> None:
        host, since_ns = begun.pop(rank)
        lives.setdefault(rank, []).append(Life(host, since_ns, min(at_ns, told_to_end or at_ns), is_done))

    for event in events:
        name, at_ns, rank = event.get("event"), event.get("t_ns"), event.get("rank")
        if not isinstance(at_ns, int):
            continue
        if name in ("rank_started", "rank_joined") and isinstance(rank, int):
            begun.setdefault(rank, (str(event.get("host")), at_ns))
        elif name == "rank_exited" and rank in begun:
            stamp = event.get("time_ns")
            end(rank, stamp if isinstance(stamp, int) else at_ns, is_done=event.get("code") == 0)
        elif name == "host_lost":
            for lost in [rank for rank, (host, _) in begun.items() if host == event.get("host")]:
                end(lost, at_ns)
        elif name == "attempt_started":
            told_to_end = None
        elif name in _ENDS:
            told_to_end = told_to_end or at_ns
    for rank in list(begun):
        end(rank, axis.to_ns)
    return lives
