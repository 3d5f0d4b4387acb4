"""`paceline plan --against RUN` compares the plan for a recorded run's machines with that run's measurements."""

import argparse
import json
import sys

from paceline.errors import NotEnoughEvidence, UsageError
from paceline.parts.plan.planner.answer import Row
from paceline.parts.plan.planner.evaluate import Plan
from paceline.parts.plan.planner.observed import ObservedRun, observed, step_count, too_few


def hold_against(args: argparse.Namespace) -> Plan:
    """Make the plan, print it beside the run, and return it. If the options name no shape, the plan has the run's shape.

    Raises:  UsageError X06: no row of the plan has that shape, or the run has no shape; NotEnoughEvidence X06: the run has too few steps
    """
    seen = _seen(args.against)
    from paceline.parts.plan.cli.question import question_of
    from paceline.parts.plan.planner.against import compare
    from paceline.parts.plan.planner.evaluate import evaluate

    hosts, per_host = _shape(seen)
    args.hosts = args.hosts or str(hosts)
    args.devices_per_host = args.devices_per_host or str(per_host)
    plan = evaluate(question_of(args))
    row = _row(plan, seen)
    comparison = compare(row, seen, plan.question.measurements, startup_seconds=plan.question.expenses.startup_seconds)
    if args.json:
        from paceline.parts.plan.views.against import against_facts
        from paceline.parts.plan.views.plan_json import plan_json

        print(json.dumps({**plan_json(plan, explain=args.explain), "against": against_facts(comparison)}))
        return plan
    from paceline.cli.terminal import ascii_only, columns
    from paceline.parts.plan.views.against import against_text

    print(against_text(comparison, width=columns(sys.stdout), ascii_only=ascii_only(sys.stdout)))
    return plan


def _seen(run: str) -> ObservedRun:
    from paceline.recording.evidence import evidence

    found = evidence(run)
    seen = observed(found)
    if seen is None:
        raise NotEnoughEvidence(
            "X06",
            f"run {found.run.id} has too few steps to be compared with a plan",
            saw=too_few(step_count(found.ranks)),
            next="paceline ps, for a run that trained longer",
        )
    return seen


def _shape(seen: ObservedRun) -> tuple[int, int]:
    hosts, devices = seen.measurement.hosts, seen.measurement.devices
    if devices % hosts:
        raise UsageError(
            "X06",
            f"run {seen.run} does not have the same number of ranks on each host",
            saw=f"{devices} ranks on {hosts} hosts; a plan is of equal hosts",
            next="paceline ps, for a run with the same number of ranks on each host",
        )
    return hosts, devices // hosts


def _row(plan: Plan, seen: ObservedRun) -> Row:
    hosts, per_host = _shape(seen)
    rows = [row for row in plan.rows if (row.machines.hosts, row.machines.devices_per_host) == (hosts, per_host)]
    if len({row.name for row in rows}) != 1:
        shapes = sorted({f"{row.machines.hosts}x{row.machines.devices_per_host}" for row in plan.rows})
        several = f"{len(rows)} machine types of that shape" if rows else f"the plan has {', '.join(shapes)}"
        raise UsageError(
            "X06",
            f"the plan has not one row for run {seen.run}, {hosts} x {per_host} ranks",
            saw=several,
            next="--instance NAME of the machines that it ran on"
            if rows
            else f"--host-counts {hosts} --devices-per-host {per_host}",
        )
    return rows[0]
