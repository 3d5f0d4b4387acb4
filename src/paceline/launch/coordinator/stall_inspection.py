"""Follows a stall: it chooses the ranks to inspect next, decides whether a snapshot is news, and gives the evidence for a hang."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from paceline.diagnosis.case import Confirmation, Heartbeat, Level, Stall
from paceline.diagnosis.hang.confirmation import MOST_SEEN, confirmed
from paceline.diagnosis.hang.stall import ALONE_SECONDS, with_snapshots
from paceline.diagnosis.hang.stillness import Still, seen_still
from paceline.diagnosis.hang.wait_graph import START
from paceline.diagnosis.snapshots import RankSnapshot

# With more ranks, each round inspects some ranks of each state, and the next round inspects others.
MOST_LOOKED_AT = MOST_SEEN
# Time to the next round of snapshots: the second round confirms the first. Rounds are frequent at first and rare later.
_NEXT_SNAPSHOT_SECONDS = (2.0, 5.0, 5.0, 10.0, 30.0)
# A snapshot takes half a second. Activity that comes in bursts may pause for as long.
_SECOND_OPINION_SECONDS = 1.3
_MOST_MISSES = 2
# If all ranks wait but never rest all at once, the stall counts after this many further rounds.
_MOST_DOUBTS = 3


@dataclass(slots=True)
class StallTracker:
    """One stall and the snapshots that were taken in it."""

    now: Stall
    """The stall, according to the snapshots so far."""
    found_late: tuple[int, ...]
    """The ranks that were late when the newest snapshots were asked for."""
    began_at: float = 0.0
    """When the stall was found, in monotonic seconds."""
    snapshots: int = 0
    """Number of rounds of snapshots that counted."""
    misses: int = 0
    """Number of successive rounds without a snapshot of a suspect."""
    doubts: int = 0
    """Number of rounds in which every rank waited, but not every rank had rested since the previous round."""
    next_snapshot_at: float = 0.0
    """When the next snapshots are due, in monotonic seconds."""
    is_said: bool = False
    """The stall was recorded."""
    is_confirmed: bool = False
    """The stall was recorded as a confirmed hang."""
    leaving: frozenset[int] = frozenset()
    """The late ranks whose interpreter was ending when the stall was last recorded."""
    seen: dict[int, RankSnapshot] = field(default_factory=dict)
    """Rank -> its newest snapshot."""
    still: dict[int, Still] = field(default_factory=dict)
    """Rank -> the snapshots between which nothing changed in the rank. Ranks with a change are left out."""
    _rounds: dict[int, int] = field(default_factory=dict)
    _was_a_stall: bool = False

    def is_due(self, found: Stall, at: float) -> bool:
        """Whether new snapshots are due: other ranks are late now, or the last snapshots are old. `at`: monotonic seconds."""
        return found.late != self.found_late or at >= self.next_snapshot_at

    def suspects(self, found: Stall, heartbeats: Mapping[int, Heartbeat]) -> list[int]:
        """Ranks to inspect: the late ranks and one waiting rank for comparison; if no rank is late, all ranks or some of each state.

        The ranks that were inspected least often come first, so that in a large job each rank has its turn.
        """
        late = found.late or self.now.late
        waiting = [rank for rank in found.waiting or self.now.waiting if rank not in late]
        if late and waiting:
            # If many ranks are late, inspect the same ones repeatedly, because each rank needs two snapshots.
            return [
                *(self._next(late) if len(late) <= MOST_LOOKED_AT else late)[:MOST_LOOKED_AT],
                *self._next(waiting)[:1],
            ]
        return self._next(_of_each_state(heartbeats))[:MOST_LOOKED_AT]

    def looked(self, found: Stall, snapshots: Sequence[RankSnapshot], at: float) -> bool | None:
        """Take a round of snapshots, and say whether it is news: the stall has another level or other late ranks.

        None: the round does not count. There are four reasons: it has no snapshot of a suspect; it shows a stall, but the round before
        showed progress, so a second round must confirm it; all ranks wait, but have not all rested; or no rank is seen to wait, and
        the ranks have made no progress for a short time only.
        """
        self.found_late = found.late
        missed = not _were_seen(found, snapshots)
        if missed and self.misses < _MOST_MISSES:
            self.misses += 1
            self.next_snapshot_at = at + _SECOND_OPINION_SECONDS
            return None
        self.misses = 0
        if found.since_ns != self.now.since_ns:
            # The job made progress in between: earlier snapshots prove nothing about this stall.
            self.seen.clear()
            self.still.clear()
            self.doubts = 0
        for snapshot in snapshots:
            self._take(snapshot)
        before = self.now if self.snapshots else None
        judged = with_snapshots(found, self.seen, before)
        if missed:
            # If a host is too busy to take a snapshot, that does not prove that its ranks stand still.
            judged = replace(judged, level=Level.WAITING, progress=("not judged: no snapshot of them arrived in time",))
        is_new_stall = judged.level is Level.STALL and not self._was_a_stall
        self._was_a_stall = judged.level is Level.STALL
        if is_new_stall and before is not None and before.level is Level.WAITING:
            self.next_snapshot_at = at + _SECOND_OPINION_SECONDS
            return None
        if judged.level is Level.STALL and not judged.late and not self._have_rested(judged.waiting):
            # All ranks have entered the collective: they may go on as soon as their threads get a CPU.
            self.doubts += 1
            if self.doubts <= _MOST_DOUBTS:
                # At the rendezvous nothing comes in bursts, and five seconds have gone already.
                self.next_snapshot_at = at + (0.0 if judged.basis == START else _SECOND_OPINION_SECONDS)
                return None
        self.next_snapshot_at = at + _NEXT_SNAPSHOT_SECONDS[min(self.snapshots, len(_NEXT_SNAPSHOT_SECONDS) - 1)]
        self.snapshots += 1
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
        """The evidence that this stall is a hang, from the snapshots so far; see `confirmed`."""
        found = confirmed(self.now, self.seen, self.still, ranks, ended, idle_since_ns)
        if found is not None and self.now.level is not Level.STALL:
            self.now = replace(self.now, level=Level.STALL)
        return found

    def _take(self, snapshot: RankSnapshot) -> None:
        self.seen[snapshot.rank] = snapshot
        self._rounds[snapshot.rank] = self._rounds.get(snapshot.rank, 0) + 1
        still = seen_still(self.still.pop(snapshot.rank, None), snapshot)
        if still is not None:
            self.still[snapshot.rank] = still

    def _have_rested(self, ranks: Iterable[int]) -> bool:
        """Whether nothing changed in any of these ranks between two snapshots. Ranks without a snapshot are passed over."""
        return all(rank in self.still and self.still[rank].snapshots > 1 for rank in ranks if rank in self.seen)

    def _next(self, ranks: Iterable[int]) -> list[int]:
        return sorted(ranks, key=lambda rank: self._rounds.get(rank, 0))


def _were_seen(found: Stall, snapshots: Sequence[RankSnapshot]) -> bool:
    wanted = found.late or found.waiting
    return any(snapshot.rank in wanted for snapshot in snapshots) if wanted else bool(snapshots)


def _of_each_state(heartbeats: Mapping[int, Heartbeat]) -> list[int]:
    """The running ranks: first one rank of each state, then a second one of each state. A state is process state, phase and progress."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for rank, heartbeat in sorted(heartbeats.items()):
        if heartbeat.exit_code is None and not heartbeat.exiting:
            newest = heartbeat.last_call.index if heartbeat.last_call is not None else 0
            alike.setdefault((heartbeat.state, heartbeat.phase, heartbeat.step_count, newest), []).append(rank)
    rows = zip_longest(*sorted(alike.values(), key=len))
    return [rank for row in rows for rank in row if rank is not None]
