"""Plans a job on the machines that an estimator names, from a trace that `paceline plan --save-trace` wrote."""

import json
from collections.abc import Mapping
from pathlib import Path

from paceline.catalog.lookup import capacity_bytes, find_accelerator, find_machine_type
from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Row
from paceline.parts.plan.planner.evaluate import evaluate
from paceline.parts.plan.planner.fleet import Fleet, candidates_of_type
from paceline.parts.plan.planner.question import Goal, PlanLimits, PlanQuestion
from paceline.parts.plan.planner.trace_json import from_plain
from paceline.parts.plan.planner.workload import Workload
from paceline.spelling import nearest

_EXAMPLE = "planner={'trace': 'step.json', 'steps': 9000}"
_KEYS = ("trace", "steps", "epochs", "samples")


def planned_row(plan: object, instance_type: str | None, hosts: int, max_run_seconds: float | None) -> Row | None:
    """The planner's expectation for these hosts; None if there is no plan.

    `plan`: the value of planner=, a dict with `trace`, a file, and the length of the training: `steps`, or `epochs` and `samples`.
    Raises:  UsageError U31: not such a dict, or no machine type that the catalogue has; P06: not a saved trace
    """
    if plan is None:
        return None
    workload, goal = _asked(plan)
    machine = find_machine_type(instance_type) if instance_type else None
    if machine is None:
        raise UsageError(
            "U31",
            "planner= is about a machine type of the catalogue",
            saw=f"instance_type={instance_type!r}",
            next="instance_type='ml.g5.12xlarge', or leave planner out",
        )
    name = machine.accelerator
    device = (find_accelerator(name) or Accelerator(name=name)) if name else None
    fleet = Fleet(hosts=(hosts,))
    candidates = tuple(candidates_of_type(machine, device, fleet, capacity_bytes=capacity_bytes(machine)))
    limits = PlanLimits(max_run_seconds=max_run_seconds)
    return evaluate(PlanQuestion(workload=workload, candidates=candidates, goal=goal, limits=limits)).rows[0]


def _asked(plan: object) -> tuple[Workload, Goal]:
    if not isinstance(plan, Mapping) or "trace" not in plan:
        raise UsageError("U31", "planner= is a dict with a trace", saw=repr(plan)[:80], next=_EXAMPLE)
    for key in plan:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            saw = f"the nearest one is {near}" if near else f"it has {', '.join(_KEYS)}"
            raise UsageError("U31", f"planner= has no {key!r}", saw=saw, next=_EXAMPLE)
        if key != "trace" and not _is_count(plan[key], whole=key != "epochs"):
            raise UsageError(
                "U31", f"planner= has a {key!r} that is no number above 0", saw=repr(plan[key]), next=_EXAMPLE
            )
    goal = Goal(steps=plan.get("steps"), epochs=plan.get("epochs"), samples=plan.get("samples"))
    return _workload(Path(str(plan["trace"]))), goal


def _is_count(value: object, *, whole: bool) -> bool:
    kinds = int if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and value > 0


def _workload(file: Path) -> Workload:
    try:
        return from_plain(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        saw = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
        next_step = f"paceline plan --save-trace {file} train.py"
        raise UsageError(
            "U31", f"planner= names a trace that cannot be read: {file}", saw=str(saw), next=next_step
        ) from error
