"""The workload as plain data and back: schema "paceline.trace/1"."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from paceline.errors import UsageError
from paceline.planner.workload import Assumption, OperationCounts, Precision, Strategy, Workload

SCHEMA = "paceline.trace/1"
_COUNTS = frozenset(
    (
        "parameter_count",
        "parameter_bytes",
        "gradient_bytes",
        "gradient_tensors",
        "optimizer_bytes",
        "activation_bytes",
        "peak_fixed_bytes",
        "batch",
        "microbatches",
        "samples_per_epoch",
        "loader_workers",
        "batch_bytes",
        "largest_group_bytes",
        "largest_tensor_bytes",
        "transient_bytes",
        "peak_bytes",
    )
)
_FROM_ONE_ON = frozenset(("batch", "microbatches"))
_NUMBERS = frozenset(("flops", "loading_seconds"))


def to_plain(workload: Workload) -> dict[str, Any]:
    """Everything of it, as JSON can hold it.

    Holds:   from_plain(to_plain(w)) == w
    """
    return {"schema": SCHEMA, "outcome": "traced", **asdict(workload)}


def from_plain(plain: object) -> Workload:
    """The workload of a trace, or of one that was saved. Fields it does not know are left out; missing ones are unknown.

    Raises:  UsageError P06: not of this schema, or a value that cannot be
    """
    if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA:
        seen = plain.get("schema", "no schema") if isinstance(plain, Mapping) else type(plain).__name__
        raise UsageError(
            "P06",
            f"this is no trace of schema {SCHEMA}",
            saw=str(seen),
            next="paceline plan --save-trace FILE train.py",
        )
    known = {field.name for field in fields(Workload)}
    values = {name: value for name, value in plain.items() if name in known}
    replicas = plain.get("replicas")
    if isinstance(replicas, Mapping) and replicas.get("gradient_as_bucket_view") is not None:
        values.setdefault("gradient_as_bucket_view", bool(replicas["gradient_as_bucket_view"]))
    try:
        _check_numbers(values)
        precision = values.get("precision")
        autocast = values.get("autocast")
        values |= {
            "bucket_bytes": tuple(int(size) for size in values.get("bucket_bytes") or ()),
            "precision": Precision(precision) if precision else None,
            "autocast": None if autocast is None else bool(autocast),
            "strategy": Strategy(values.get("strategy") or "ddp"),
            "operations": tuple(_operations(row) for row in values.get("operations") or ()),
            "assumptions": tuple(Assumption(**row) for row in values.get("assumptions") or ()),
        }
        return Workload(**values)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            "P06",
            "the trace has a value that cannot be",
            saw=str(error),
            next="paceline plan --save-trace FILE train.py",
        ) from None


def _check_numbers(values: Mapping[str, Any]) -> None:
    if values.get("microbatches", 1) is None:
        raise ValueError("microbatches is null")
    for name in (_COUNTS | _NUMBERS) & values.keys():
        value = values[name]
        if value is None:
            continue
        kind = int if name in _COUNTS else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or not int(name in _FROM_ONE_ON) <= value < math.inf:
            raise ValueError(f"{name} is {value!r}")


def _operations(row: Mapping[str, Any]) -> OperationCounts:
    return OperationCounts(
        name=str(row["name"]),
        kind=str(row["kind"]),
        precision=Precision(row["precision"] or "fp32"),
        count=int(row["count"]),
        flops=float(row["flops"]),
        moved_bytes=float(row["moved_bytes"]),
    )
