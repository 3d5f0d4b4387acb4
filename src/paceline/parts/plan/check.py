"""`paceline check --plan`: a plan of the job on its machines, by which K04 and K05 judge."""

from collections.abc import Mapping
from typing import Any

from paceline.facts import Job
from paceline.part import CheckPart
from paceline.parts.plan.cli.planned import planned
from paceline.parts.plan.planner.answer import Row


class PlanOnCheck(CheckPart):
    def plan(self, args: Mapping[str, Any], job: Job, machine: str | None) -> Row | None:
        return None if args["plan"] is None else planned(machine, job.max_hosts, job.max_run_seconds, args["plan"])
