"""Compares the marks of all ranks: what they train with at the same step. Pure."""

from collections import Counter
from collections.abc import Mapping
from math import isclose
from typing import Any

from paceline.diagnosis.case import Case, Replica

# The first step says little: DDP has not recorded it yet, and gradients may be accumulated over several.
SURE_STEP = 16
# Settings from a schedule may differ in the last digits between machines.
_ALIKE = 1e-6


def marks_at(case: Case, step: int) -> dict[int, Replica]:
    """Rank -> its mark at this step, for ranks that have one."""
    return {rank: mark for rank, marks in case.replicas.items() for mark in marks if mark.step == step}


def common_steps(case: Case) -> tuple[int, ...]:
    """The steps at which every rank of the job has a mark, in order; none if a rank has none or the job has one rank."""
    size = case.world_size
    if not size or size < 2:
        return ()
    counts = Counter(mark.step for marks in case.replicas.values() for mark in marks)
    return tuple(sorted(step for step, count in counts.items() if count == size))


def first_and_last(case: Case) -> tuple[dict[int, Replica], dict[int, Replica]] | None:
    """Rank -> its mark at the first and at the last step at which every rank has one; None before a step that says enough."""
    steps = common_steps(case)
    if not steps or steps[-1] < SURE_STEP:
        return None
    return marks_at(case, steps[0]), marks_at(case, steps[-1])


def different_settings(one: Replica, other: Replica) -> tuple[str, ...]:
    """Differences between the optimizers of two ranks, as text: "lr 0.001 against 0.01"."""
    return tuple(
        f"{name} {_text(a[name])} against {_text(b[name])}"
        for a, b in zip(one.settings, other.settings, strict=False)
        for name in a
        if name in b and not _are_alike(a[name], b[name])
    )


def sides(marks: Mapping[int, Replica]) -> list[tuple[int, ...]]:
    """Ranks whose optimizers have the same settings, the fewest first; of equally many, those with the higher ranks first."""
    found: list[list[int]] = []
    for rank, mark in marks.items():
        side = next((side for side in found if not different_settings(marks[side[0]], mark)), None)
        if side is None:
            found.append([rank])
        else:
            side.append(rank)
    return sorted(map(tuple, found), key=lambda ranks: (len(ranks), -ranks[0]))


def made_at(what: str, line: str) -> tuple[str, ...]:
    """Where the script makes this, as a line of what was seen; () where it is not known."""
    return (f"{what} is made at {line}",) if line else ()


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        return isclose(one, other, rel_tol=_ALIKE, abs_tol=1e-15)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    return bool(one == other)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
