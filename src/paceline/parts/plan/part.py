"""A job that does not fit into memory or into its time limit is told before it starts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paceline.option import Option
from paceline.part import CheckPart, Part, PartVerb

if TYPE_CHECKING:
    from paceline.findings import Rule

PLAN = Option(
    "plan",
    "Options of `paceline plan`, such as '--trace step.json --steps 9000': the planner's answer for the machine type, "
    "the hosts and --max-run is checked too.",
    "OPTIONS",
)


class Planning(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "plan": PartVerb(
                about="predict what a job needs, how fast it runs and what it costs", module="paceline.parts.plan.cli"
            ),
        }

    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"instance": (PLAN,)} if verb == "check" else {}

    def checks(self) -> Sequence["Rule"]:
        # A run loads this part, and not the planner.
        from paceline.parts.plan import k04_memory, k05_time_limit

        return k04_memory.RULE, k05_time_limit.RULE

    def on_check(self) -> CheckPart:
        from paceline.parts.plan.check import PlanOnCheck

        return PlanOnCheck()


PART = Planning()
