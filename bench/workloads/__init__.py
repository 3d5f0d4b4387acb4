"""Workloads of published measurements, built from torch alone, and what tracing them gave.

`load()` reads `traced.json` and needs no torch; `python bench/workloads/make.py` writes that file again.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.parts.plan.planner.workload import OperationCounts, Precision, Workload

TRACED = Path(__file__).with_name("traced.json")


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A workload in one of the two precisions that were traced. `prepared`: devices -> (peak, resident) bytes of preparing an epoch."""

    name: str
    family: str
    half: bool
    workload: Workload
    prepared: dict[int, tuple[int, int]]


def load(path: Path = TRACED) -> dict[tuple[str, bool], Traced]:
    """(name, half precision or not) -> the traced workload."""
    entries = json.loads(path.read_text(encoding="utf-8"))["workloads"]
    return {(each["name"], each["half"]): _traced(each) for each in entries}


def with_precision(workload: Workload, precision: Precision) -> Workload:
    """The same trace computed in another precision of the same sizes: fp32 as TF32, bf16 as fp16."""

    def same(of: Precision) -> bool:
        return (of in (Precision.FP32, Precision.TF32)) == (precision in (Precision.FP32, Precision.TF32))

    operations = tuple(
        replace(each, precision=precision if same(each.precision) else each.precision) for each in workload.operations
    )
    return replace(workload, precision=precision, operations=operations)


def _traced(entry: dict[str, Any]) -> Traced:
    operations = tuple(
        OperationCounts(
            name=each["name"],
            kind=each["kind"],
            precision=Precision.FP16 if each["half"] else Precision.FP32,
            count=each["count"],
            flops=each["flops"],
            moved_bytes=each["moved_bytes"],
        )
        for each in entry["operations"]
    )
    given = {key: value for key, value in entry["workload"].items() if value is not None}
    workload = Workload(**given, precision=Precision.FP16 if entry["half"] else Precision.FP32, operations=operations)
    prepared = {int(count): (peak, left) for count, (peak, left) in entry["prepared"].items()}
    return Traced(name=entry["name"], family=entry["family"], half=entry["half"], workload=workload, prepared=prepared)
