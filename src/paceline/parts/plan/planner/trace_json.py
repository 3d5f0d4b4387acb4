"""The workload as plain data and back: schema "paceline.trace/1"."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from paceline.errors import UsageError
from paceline.parts.plan.planner.workload import Precision, Workload

SCHEMA = "paceline.trace/1"
_FROM_ONE_ON = ("batch", "microbatches")
# Every other null is an unknown value, as a missing one is.
_NEVER_NULL = "microbatches"


def to_plain(workload: Workload) -> dict[str, Any]:
    """All of the workload, as JSON values.

    Holds:   from_plain(to_plain(w)) == w
    """
    return {"schema": SCHEMA, "outcome": "traced", **msgspec.to_builtins(workload)}


def from_plain(plain: object) -> Workload:
    """The workload of a trace, or of one that was saved. Fields it does not know are left out; missing ones are unknown.

    Raises:  UsageError P06: not of this schema, or a value that cannot be
    """
    if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA:
        seen = plain.get("schema", "no schema") if isinstance(plain, Mapping) else type(plain).__name__
        raise _refused(f"this is no trace of schema {SCHEMA}", str(seen))
    values = {name: value for name, value in plain.items() if value is not None or name == _NEVER_NULL}
    replicas = plain.get("replicas")
    for name in ("gradient_as_bucket_view", "lazy_bucket_allocation"):
        if isinstance(replicas, Mapping) and replicas.get(name) is not None:
            values.setdefault(name, bool(replicas[name]))
    try:
        values["operations"] = [_with_precision(row) for row in values.get("operations", ())]
        workload = msgspec.convert(values, Workload)
        _check_numbers(workload)
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        raise _refused("the trace has a value that cannot be", str(error)) from None
    return workload


def _with_precision(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is computed without matrix products has no precision of its own."""
    return {**row, "precision": row.get("precision") or str(Precision.FP32)}


def _check_numbers(workload: Workload) -> None:
    for field in fields(workload):
        value = getattr(workload, field.name)
        if isinstance(value, int | float) and not int(field.name in _FROM_ONE_ON) <= value < math.inf:
            raise ValueError(f"{field.name} is {value!r}")


def _refused(what: str, saw: str) -> UsageError:
    return UsageError("P06", what, saw=saw, next="paceline plan --save-trace FILE train.py")
