"""A standstill that lasts: whom to look at next, what of it is news, and the evidence by which it is a hang."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from paceline.diagnosis.case import Confirmation, Heartbeat, Level, Stall
from paceline.diagnosis.hang.confirmation import MOST_SEEN, confirmed
from paceline.diagnosis.hang.stall import ALONE_SECONDS, with_looks
from paceline.diagnosis.hang.stillness import Still, seen_still
from paceline.diagnosis.snapshots import RankSnapshot

# Of more ranks some of each state, and others the next time.
MOST_LOOKED_AT = MOST_SEEN
# After the first look: a second one that confirms, then some while it is young, then few.
_NEXT_LOOK_SECONDS = (2.0, 5.0, 5.0, 10.0, 30.0)
# A look lasts half a second, and what comes in bursts may rest for as long.
_SECOND_OPINION_SECONDS = 1.3
_MOST_MISSES = 2
# Of ranks that all wait and never rest all at once, after so many more looks.
_MOST_DOUBTS = 3


@dataclass(slots=True)
class StallTracker:
    """One stall and the snapshots that were taken in it."""

    now: Stall
    """The stall, as the snapshots so far show it."""
    found_late: tuple[int, ...]
    """The ranks that were late when the newest snapshots were asked for."""
    began_at: float = 0.0
    """When it was found, in monotonic seconds."""
    looks: int = 0
    """Rounds of snapshots that counted."""
    misses: int = 0
    """Rounds in a row in which no suspect was seen."""
    doubts: int = 0
    """Rounds in which every rank waited and not every rank had rested since the round before."""
    next_look_at: float = 0.0
    """When the next snapshots are due, in monotonic seconds."""
    is_said: bool = False
    """It has been recorded."""
    is_confirmed: bool = False
    """It has been recorded as a confirmed hang."""
    leaving: frozenset[int] = frozenset()
    """The late ranks whose interpreter was ending when the stall was last recorded."""
    seen: dict[int, RankSnapshot] = field(default_factory=dict)
    """Rank -> its newest snapshot."""
    still: dict[int, Still] = field(default_factory=dict)
    """Rank -> the snapshots between which nothing moved in it. Ranks in which something moved are left out."""
    _rounds: dict[int, int] = field(default_factory=dict)
    _was_a_stall: bool = False

    def is_due(self, found: Stall, at: float) -> bool:
        """Whether it is time for another look: somebody else is late now, or the last look is old. `at`: monotonic seconds."""
        return found.late != self.found_late or at >= self.next_look_at

    def suspects(self, found: Stall, pulses: Mapping[int, Heartbeat]) -> list[int]:
        """Ranks to inspect: the late ranks and one waiting rank for comparison; if no rank is late, all ranks or some of each state.

        The ranks that were inspected least often come first, so that in a large job each rank has its turn.
        """
        late = found.late or self.now.late
        waiting = [rank for rank in found.waiting or self.now.waiting if rank not in late]
        if late and waiting:
            # Enough of them again and again, because each needs two looks.
            return [
                *(self._next(late) if len(late) <= MOST_LOOKED_AT else late)[:MOST_LOOKED_AT],
                *self._next(waiting)[:1],
            ]
        return self._next(_of_each_state(pulses))[:MOST_LOOKED_AT]

    def looked(self, found: Stall, looks: Sequence[RankSnapshot], at: float) -> bool | None:
        """Take a look in, and say whether it is news: a standstill of another level or other late ranks.

        None: it does not count. No suspect was seen in it, or it shows a stall of ranks that had been getting on until now, or that
        all wait, which a second one has to confirm, or ranks of which none is seen to wait have rested for a short while only.
        """
        self.found_late = found.late
        missed = not _were_seen(found, looks)
        if missed and self.misses < _MOST_MISSES:
            self.misses += 1
            self.next_look_at = at + _SECOND_OPINION_SECONDS
            return None
        self.misses = 0
        if found.since_ns != self.now.since_ns:
            # It went on in between: what was seen before proves nothing of this one.
            self.seen.clear()
            self.still.clear()
            self.doubts = 0
        for look in looks:
            self._take(look)
        before = self.now if self.looks else None
        judged = with_looks(found, self.seen, before)
        if missed:
            # A host too busy to look is no proof that nothing moves there.
            judged = replace(judged, level=Level.WAITING, progress=("not judged: no look at them came back",))
        is_new_stall = judged.level is Level.STALL and not self._was_a_stall
        self._was_a_stall = judged.level is Level.STALL
        if is_new_stall and before is not None and before.level is Level.WAITING:
            self.next_look_at = at + _SECOND_OPINION_SECONDS
            return None
        if judged.level is Level.STALL and not judged.late and not self._have_rested(judged.waiting):
            # All have come: they may be about to go on as soon as their threads get a CPU.
            self.doubts += 1
            if self.doubts <= _MOST_DOUBTS:
                self.next_look_at = at + _SECOND_OPINION_SECONDS
                return None
        self.next_look_at = at + _NEXT_LOOK_SECONDS[min(self.looks, len(_NEXT_LOOK_SECONDS) - 1)]
        self.looks += 1
        self.now = judged
        if not judged.waiting and judged.level is Level.WAITING and not missed and at - self.began_at < ALONE_SECONDS:
            return None
        is_news = not self.is_said or before is None or (before.level, before.late) != (judged.level, judged.late)
        self.is_said = True
        return is_news

    def confirmation(
        self,
        ranks: Collection[int],
        ended: Collection[int] = (),
        idle_since_ns: Callable[[int], int | None] = lambda rank: None,
    ) -> Confirmation | None:
        """The evidence that this is a hang, as far as it was looked at; see `confirmed`."""
        found = confirmed(self.now, self.seen, self.still, ranks, ended, idle_since_ns)
        if found is not None and self.now.level is not Level.STALL:
            self.now = replace(self.now, level=Level.STALL)
        return found

    def _take(self, look: RankSnapshot) -> None:
        self.seen[look.rank] = look
        self._rounds[look.rank] = self._rounds.get(look.rank, 0) + 1
        still = seen_still(self.still.pop(look.rank, None), look)
        if still is not None:
            self.still[look.rank] = still

    def _have_rested(self, ranks: Iterable[int]) -> bool:
        """Whether nothing moved on any of these between two looks, as far as they were looked at."""
        return all(rank in self.still and self.still[rank].looks > 1 for rank in ranks if rank in self.seen)

    def _next(self, ranks: Iterable[int]) -> list[int]:
        return sorted(ranks, key=lambda rank: self._rounds.get(rank, 0))


def _were_seen(found: Stall, looks: Sequence[RankSnapshot]) -> bool:
    wanted = found.late or found.waiting
    return any(look.rank in wanted for look in looks) if wanted else bool(looks)


def _of_each_state(pulses: Mapping[int, Heartbeat]) -> list[int]:
    """The ranks that run, one of each state first, then the second of each: by process, phase and how far they are."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for rank, pulse in sorted(pulses.items()):
        if pulse.exit_code is None and not pulse.exiting:
            newest = pulse.last_call.index if pulse.last_call is not None else 0
            alike.setdefault((pulse.state, pulse.phase, pulse.step_count, newest), []).append(rank)
    rows = zip_longest(*sorted(alike.values(), key=len))
    return [rank for row in rows for rank in row if rank is not None]
