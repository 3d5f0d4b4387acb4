"""A plan for a program: paceline.plan/2. An unknown value is null."""

from dataclasses import fields
from typing import Any

import msgspec

from paceline.parts.plan.planner.advice import Advice
from paceline.parts.plan.planner.answer import Memory, Row
from paceline.parts.plan.planner.choice import MachineChoice
from paceline.parts.plan.planner.evaluate import Plan, explained

SCHEMA = "paceline.plan/2"


def plan_json(plan: Plan, *, explain: bool = False) -> dict[str, Any]:
    """The whole answer; with `explain`, each row carries its formulas."""
    rows = [row_facts(row) for row in plan.rows]
    if explain:
        for facts, row in zip(rows, plan.rows, strict=True):
            facts["formulas"] = msgspec.to_builtins(explained(plan, row))
    return {
        "schema": SCHEMA,
        "rows": rows,
        "warnings": list(plan.warnings),
        "choice": _choice(plan.choice, plan.rows),
        "advice": [_advice(advice) for advice in plan.advice],
        "assumptions": msgspec.to_builtins(plan.assumptions),
        "not_judged": list(plan.not_judged),
    }


def row_facts(row: Row) -> dict[str, Any]:
    """One row; times of a step in seconds, of the job in hours."""
    machines, step = row.machines, row.step
    return {
        "instance_type": machines.of_type.name if machines.of_type is not None else None,
        "accelerator": machines.device.name if machines.device is not None else None,
        "hosts": machines.hosts,
        "devices": machines.devices,
        "devices_per_host": machines.devices_per_host,
        "zones": machines.zones,
        "step_seconds": step.seconds if step else None,
        "step_seconds_low": step.low_seconds if step else None,
        "step_seconds_high": step.high_seconds if step else None,
        "tier": step.tier if step else None,
        "terms_seconds": dict(step.terms) if step else None,
        **_fields(row, "machines", "step"),
        "memory": memory_facts(row.memory),
    }


def memory_facts(memory: Memory) -> dict[str, Any]:
    """The verdict and what it was judged by."""
    return _fields(memory, "assumed")


def _fields(of: Any, *left_out: str) -> dict[str, Any]:
    return {one.name: msgspec.to_builtins(getattr(of, one.name)) for one in fields(of) if one.name not in left_out}


def _choice(choice: MachineChoice, rows: tuple[Row, ...]) -> dict[str, Any]:
    return {
        "row": _place(choice.row, rows),
        "name": choice.row.name if choice.row else None,
        "hosts": choice.row.machines.hosts if choice.row else None,
        "reason": choice.why,
        "code": choice.code or None,
        "nearest_row": _place(choice.nearest, rows),
    }


def _place(wanted: Row | None, rows: tuple[Row, ...]) -> int | None:
    return next((place for place, row in enumerate(rows) if row is wanted), None)


def _advice(advice: Advice) -> dict[str, Any]:
    return _fields(advice, "before", "after", "aim") | {
        "step_seconds_before": advice.before.step.seconds if advice.before.step else None,
        "step_seconds_after": advice.after.step.seconds if advice.after.step else None,
        "usd_before": advice.before.usd,
        "usd_after": advice.after.usd,
        "memory_after": advice.after.memory.verdict,
    }
