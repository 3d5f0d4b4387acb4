"""Whether one run makes its steps faster than another one, by how much, and in which part of the step. Pure.

Only chance within the two runs is in the interval: two runs of the same job on the same machines differ as well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import hypot
from statistics import fmean
from typing import Any

import msgspec

from paceline.diagnosis.case import Estimate
from paceline.diagnosis.slow.noise import blocks, estimate
from paceline.diagnosis.slow.steady_step import WARMUP_STEPS
from paceline.facts import Evidence, RankRecord, Step

PARTS = ("compute", "data", "exposed communication", "checkpoint")
# A difference that is surely smaller than this is none.
_SAME_FRACTION = 0.02
# The part that has this share of the difference is named.
_MOST_OF_IT = 0.5
# Of a rendezvous: what differs from run to run anyway, or is named otherwise.
_OF_THE_RUN = frozenset({"rank", "world_size", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"})
# Variables that change how a job runs; others name the run and its hosts.
_OF_THE_SETUP = re.compile(
    r"(NCCL|GLOO|UCX|FI|PYTORCH|OMP|MKL|KMP|OPENBLAS|CUDA)_|TORCH(?!ELASTIC_RUN_ID)|PACELINE_|(LD_PRELOAD|LD_LIBRARY_PATH|MALLOC_CONF)\Z"
)
_MOST_PATHS = 5
_NS = 1e9


class PaceAnswer(StrEnum):
    """How the second run compares with the first."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChange:
    """The time of a mean step, or of a part of it, in two runs. None: not known."""

    name: str
    """"step", or one of PARTS."""
    before_seconds: float | None
    """In the first run."""
    after_seconds: float | None
    """In the second run."""
    low_seconds: float | None = None
    """Low end of the interval of the difference."""
    high_seconds: float | None = None
    """High end of the interval of the difference."""

    @property
    def moved_seconds(self) -> float:
        return (self.after_seconds or 0.0) - (self.before_seconds or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """A fact in which the two runs differ."""

    name: str
    """What it is."""
    before: str | None
    """In the first run; None: not known, or not there."""
    after: str | None
    """In the second run."""


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs side by side."""

    answer: PaceAnswer
    """`slower`, `faster`, `same` or `cannot tell`: the second run beside the first."""
    step: PartChange
    """A mean step."""
    parts: tuple[PartChange, ...]
    """The parts of a mean step."""
    mostly: str | None
    """The part that has most of the difference; None: no part has, or there is no difference."""
    before_steps: int
    """Steps of the first run that are compared."""
    after_steps: int
    """Steps of the second run that are compared."""
    differences: tuple[RunDifference, ...] = ()
    """What else differs."""


def compare_runs(
    before: Evidence, after: Evidence, hosts: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
) -> RunComparison:
    """Two runs, by the steps of their newest attempts after the warm-up. `hosts`: host.json and environment.json of the first host of each.

    Holds:   compare_runs(x, x).answer is never SLOWER or FASTER; compare_runs(b, a) has the opposite answer
    """
    first, second = _steps(before.ranks), _steps(after.ranks)
    step = _change("step", [sum(parts) for parts in first], [sum(parts) for parts in second])
    parts = tuple(
        _change(name, [row[at] for row in first], [row[at] for row in second]) for at, name in enumerate(PARTS)
    )
    answer = _answer(step)
    return RunComparison(
        answer=answer,
        step=step,
        parts=parts,
        mostly=_mostly(step, parts) if answer in (PaceAnswer.SLOWER, PaceAnswer.FASTER) else None,
        before_steps=len(first),
        after_steps=len(second),
        differences=tuple(_differences(_described(before, hosts[0]), _described(after, hosts[1]))),
    )


def _steps(ranks: Sequence[RankRecord]) -> list[tuple[float, ...]]:
    """The parts of each step after the warm-up that all ranks have made, as means over the ranks, in seconds."""
    newest = max((record.attempt for record in ranks if record.steps), default=0)
    by_rank = [
        {step.index: step for step in record.steps} for record in ranks if record.attempt == newest and record.steps
    ]
    if not by_rank:
        return []
    common = sorted(set.intersection(*(set(steps) for steps in by_rank)))
    return [_parts([steps[index] for steps in by_rank]) for index in common if index > WARMUP_STEPS]


def _parts(steps: Sequence[Step]) -> tuple[float, ...]:
    rows = [
        (
            max(step.duration_ns - step.data_ns - step.communication_ns - step.checkpoint_ns, 0),
            step.data_ns,
            step.communication_ns,
            step.checkpoint_ns,
        )
        for step in steps
    ]
    return tuple(fmean(column) / _NS for column in zip(*rows, strict=True))


def _change(name: str, before: Sequence[float], after: Sequence[float]) -> PartChange:
    means = [fmean(values) if values else None for values in (before, after)]
    first, second = (estimate(blocks(values), comparisons=1 + len(PARTS)) for values in (before, after))
    if first is None or second is None:
        return PartChange(name=name, before_seconds=means[0], after_seconds=means[1])
    return _with_interval(name, first, second)


def _with_interval(name: str, first: Estimate, second: Estimate) -> PartChange:
    difference = second.seconds - first.seconds
    off = hypot(first.high - first.seconds, second.high - second.seconds)
    return PartChange(
        name=name,
        before_seconds=first.seconds,
        after_seconds=second.seconds,
        low_seconds=difference - off,
        high_seconds=difference + off,
    )


def _answer(step: PartChange) -> PaceAnswer:
    if step.low_seconds is None or step.high_seconds is None or not step.before_seconds:
        return PaceAnswer.CANNOT_TELL
    same = _SAME_FRACTION * step.before_seconds
    if -same <= step.low_seconds and step.high_seconds <= same:
        return PaceAnswer.SAME
    if step.low_seconds > 0:
        return PaceAnswer.SLOWER
    return PaceAnswer.FASTER if step.high_seconds < 0 else PaceAnswer.CANNOT_TELL


def _mostly(step: PartChange, parts: Sequence[PartChange]) -> str | None:
    whole = step.moved_seconds
    largest = max(parts, key=lambda part: part.moved_seconds / whole)
    is_sure = largest.low_seconds is not None and largest.high_seconds is not None
    is_sure = is_sure and (largest.low_seconds or 0.0) * (largest.high_seconds or 0.0) > 0
    return largest.name if is_sure and largest.moved_seconds / whole >= _MOST_OF_IT else None


# -------------------------------------------------------------------------------------------------------- what else differs


def _described(evidence: Evidence, host: Mapping[str, Any]) -> dict[str, str]:
    """What a run is made of, as far as its recording says it."""
    run = evidence.run
    found = {"command": " ".join(run.command), "hosts": str(len(evidence.hosts)), "paceline": run.version or ""}
    worlds = {record.world_size for record in evidence.ranks if record.world_size}
    if worlds:
        found["ranks"] = str(max(worlds))
    for event in evidence.events:
        told = event.get("rendezvous")
        if event["event"] == "rank_joined" and isinstance(told, Mapping):
            found |= {str(name): str(value) for name, value in told.items() if name not in _OF_THE_RUN}
    for name in (
        "machine",
        "kernel",
        "cpu_count",
        "python",
        "python_version",
        "torch",
        "cuda",
        "driver",
        "instance_type",
        "commit",
    ):
        if isinstance(host.get(name), str | int):
            found[name.removesuffix("_version")] = str(host[name])
    dirty = host.get("dirty")
    if isinstance(dirty, list) and dirty:
        shown = ", ".join(str(path) for path in dirty[:_MOST_PATHS])
        found["dirty"] = shown + (f" and {len(dirty) - _MOST_PATHS} more" if len(dirty) > _MOST_PATHS else "")
    variables = host.get("variables")
    if isinstance(variables, Mapping):
        found |= {str(name): str(value) for name, value in variables.items() if _OF_THE_SETUP.match(str(name))}
    return {name: value for name, value in found.items() if value}


_NAMES = {
    "script_crc": "text of the script",
    "code_crc": "the script's other files",
    "code_files": "number of these files",
    "cpu_count": "CPUs",
    "instance_type": "instance type",
    "commit": "commit of the code",
    "dirty": "files that differ from the commit",
}


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[RunDifference]:
    return [
        RunDifference(name=_NAMES.get(name, name), before=before.get(name), after=after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]
