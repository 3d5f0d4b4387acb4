"""A standstill that lasts: when its ranks are looked at again, what of it is news, and when a stall is confirmed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.diagnosis.case import Level, Standstill
from paceline.diagnosis.looks import Look
from paceline.diagnosis.standstill import with_looks
from paceline.recording.rank_sets import named_ranks

MOST_SUSPECTS = 8
# After the first look: a second one that confirms, then some while it is young, then few.
_NEXT_LOOK_SECONDS = (2.0, 5.0, 5.0, 10.0, 30.0)
_CONFIRMED_AFTER_LOOKS = 2
# A look lasts half a second, and what comes in bursts may rest for as long.
_SECOND_OPINION_SECONDS = 1.3
_MOST_MISSES = 2


@dataclass(slots=True)
class Standing:
    """`found_late`: who was late before anybody looked. `now`: what the newest look that counts made of it."""

    now: Standstill
    found_late: tuple[int, ...]
    looks: int = 0
    stalls_in_a_row: int = 0
    misses: int = 0
    next_look_at: float = 0.0

    def is_due(self, found: Standstill, at: float) -> bool:
        """Whether it is time for another look: somebody else is late now, or the last look is old. `at`: monotonic seconds."""
        return found.late != self.found_late or at >= self.next_look_at

    def looked(self, found: Standstill, looks: Sequence[Look], at: float) -> bool | None:
        """Take a look in, and say whether it is news: a standstill of another level or other late ranks.

        None: it does not count. No suspect was seen in it, or it shows a stall of ranks that had been getting on until now, which
        a second one has to confirm.
        """
        if not _were_seen(found, looks) and self.misses < _MOST_MISSES:
            self.misses += 1
            self.next_look_at = at + _SECOND_OPINION_SECONDS
            return None
        self.misses = 0
        before = self.now if self.looks else None
        judged = with_looks(found, {look.rank: look for look in looks}, before)
        if judged.level is Level.STALL and not _were_seen(found, looks):
            # A host too busy to look is no proof that nothing moves there.
            judged = replace(judged, level=Level.WAITING, progress=("not judged: no look at them came back",))
        stalls = judged.level is Level.STALL
        self.stalls_in_a_row = self.stalls_in_a_row + 1 if stalls else 0
        if stalls and before is not None and before.level is Level.WAITING and self.stalls_in_a_row == 1:
            self.next_look_at = at + _SECOND_OPINION_SECONDS
            return None
        self.next_look_at = at + _NEXT_LOOK_SECONDS[min(self.looks, len(_NEXT_LOOK_SECONDS) - 1)]
        self.looks += 1
        self.found_late, self.now = found.late, judged
        return before is None or (before.level, before.late) != (judged.level, judged.late)

    @property
    def is_confirmed(self) -> bool:
        """Whether two looks in a row saw nothing move."""
        return self.stalls_in_a_row >= _CONFIRMED_AFTER_LOOKS

    def why(self) -> str:
        """The stall in a few words, for a reason of the job's end."""
        late = self.now.late
        if not late:
            return "every rank has stood still"
        return f"{named_ranks(late)} {'has' if len(late) == 1 else 'have'} stood still while others wait"


def _were_seen(found: Standstill, looks: Sequence[Look]) -> bool:
    wanted = found.late or found.waiting
    return not wanted or any(look.rank in wanted for look in looks)


def suspects(found: Standstill) -> list[int]:
    """Who is looked at: those that others wait for, and one that waits for comparison; where nobody is late, those that wait."""
    if not found.late:
        return list(found.waiting[:MOST_SUSPECTS])
    return [*found.late[:MOST_SUSPECTS], *found.waiting[:1]]
