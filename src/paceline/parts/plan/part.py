"""A job that does not fit into memory or into its time limit is told before it starts."""

from collections.abc import Sequence

from paceline.findings import Rule
from paceline.part import InCheck, Part


class Planning(Part):
    def checks(self) -> Sequence[Rule]:
        # A run loads this part, and not the planner.
        from paceline.parts.plan import k04_memory, k05_time_limit

        return k04_memory.RULE, k05_time_limit.RULE

    def in_check(self) -> InCheck:
        from paceline.parts.plan.check import PlanInCheck

        return PlanInCheck()


PART = Planning()
