"""Keeps how ranks ended as their agents have judged it, which may be while the next attempt runs."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.root_cause import with_early_ends
from paceline.facts import RankExit

# An agent judges an exit within seconds. A host that is lost never says how its ranks ended.
LATE_SECONDS = 10.0
_POLL_SECONDS = 0.05


@dataclass(slots=True)
class LateExits:
    """The judged exits of the attempts whose end is not concluded yet."""

    # Attempt -> rank -> how it ended.
    _judged: dict[int, dict[int, RankExit]] = field(default_factory=dict)

    def take(self, exit: RankExit) -> None:
        """Keep how a rank ended, as its agent has judged it."""
        self._judged.setdefault(exit.attempt, {})[exit.rank] = exit

    def as_judged(self, exits: Collection[RankExit]) -> tuple[RankExit, ...]:
        """The exits, in the same order, as far as they have been judged by now."""
        return tuple(self._judged.get(exit.attempt, {}).get(exit.rank, exit) for exit in exits)

    async def with_exits(self, case: Case, ranks: Collection[int]) -> Case:
        """The case of an attempt, with the exits of these ranks, which are waited for."""
        judged = self._judged.setdefault(case.attempt, {})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LATE_SECONDS
        while not set(ranks) <= set(judged) and loop.time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        exits = tuple(judged.values())
        return replace(case, exits=with_early_ends(exits), tails={exit.rank: exit.tail for exit in exits if exit.tail})

    def forget(self, attempt: int) -> None:
        """Exits of this attempt and those before are not needed any more."""
        self._judged = {number: exits for number, exits in self._judged.items() if number > attempt}
