"""When a stall is a hang: only by evidence, which the reason of a stop then names. Pure.

Either two snapshots show that awaited ranks do nothing, or every rank was inspected and did nothing for a minute.
"""

from collections.abc import Callable, Collection, Mapping

from paceline.diagnosis.case import PATIENCE_SECONDS, Confirmation, Level, Proof, Stall
from paceline.diagnosis.hang.progress import uses_a_cpu
from paceline.diagnosis.hang.stillness import Still, waits_for_files
from paceline.diagnosis.hang.wait_graph import STACKS, STEPS
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import is_waiting_in_collective, place_of

# Snapshots of each awaited rank: a second one may show work that paused during the first.
LEAST_SNAPSHOTS = 2
LEAST_SECONDS = 1.3
MOST_PLACES = 16
# If more ranks are late, the others need no snapshot if their heartbeats show no CPU use for this long.
MOST_SEEN = 16
REST_SECONDS = 10.0


def confirmed(
    stall: Stall,
    snapshots: Mapping[int, RankSnapshot],
    still: Mapping[int, Still],
    ranks: Collection[int],
    ended: Collection[int] = (),
    idle_since_ns: Callable[[int], int | None] = lambda rank: None,
) -> Confirmation | None:
    """The evidence that this stall is a hang; None if there is none.

    `looks`: the newest snapshot of each rank, `still`: what all snapshots proved. `ranks`: all ranks of the job, `ended`: those that are
    gone.
    `idle_since_ns`: since when a rank has used no CPU, by its heartbeats.

    Holds:   without a snapshot nothing is confirmed, except that a rank which others wait for has ended
    """

    def stands(rank: int, snapshots: int, seconds: float) -> bool:
        known = still.get(rank)
        if known is None or known.snapshots < snapshots or known.seconds < seconds:
            return False
        used_ns = idle_since_ns(rank)
        return used_ns is None or (known.last.at_ns - used_ns) / 1e9 >= seconds

    def stays_away(rank: int) -> bool:
        known = still.get(rank)
        slow = known is not None and waits_for_files(known.last)
        return rank in ended or stands(rank, LEAST_SNAPSHOTS, PATIENCE_SECONDS if slow else LEAST_SECONDS)

    def all_stay_away(late: Collection[int]) -> bool:
        seen = [rank for rank in late if rank in snapshots or rank in ended]
        unseen = [used for rank in late if rank not in seen and (used := idle_since_ns(rank)) is not None]
        enough = len(seen) == len(late) or (len(seen) >= MOST_SEEN and len(seen) + len(unseen) == len(late))
        newest_ns = max((snapshot.at_ns for snapshot in snapshots.values()), default=0)
        rest = all((newest_ns - used_ns) / 1e9 >= REST_SECONDS for used_ns in unseen)
        return bool(seen) and enough and rest and all(map(stays_away, seen))

    def made(proof: Proof, named: Collection[int], waiting: Collection[int]) -> Confirmation:
        return Confirmation(
            proof=proof,
            ranks=tuple(sorted(named)),
            seen=tuple(_seen(rank, still.get(rank)) for rank in sorted(named)[:MOST_PLACES]),
            waiting=tuple(sorted(waiting)),
            since_ns=stall.since_ns,
            looks=min((still[rank].snapshots for rank in named if rank in still), default=0),
            attempt=stall.attempt,
        )

    def is_seen_to_wait(rank: int) -> bool:
        # A stack alone does not distinguish a backward pass that waits from one that sometimes gets a CPU.
        return rank in snapshots and (
            stands(rank, LEAST_SNAPSHOTS, LEAST_SECONDS) if stall.basis == STACKS else _shows_a_wait(snapshots[rank])
        )

    late, waiting = stall.late, stall.waiting
    # Not a rank whose own counters change, however little it does.
    is_stall = stall.level is Level.STALL
    # A rank with more steps may still do work of its own.
    waited_for = stall.basis != STEPS and any(map(is_seen_to_wait, waiting))
    if is_stall and late and waited_for and all_stay_away(late):
        return made(Proof.WAITED_FOR, [rank for rank in late if rank in still or rank in ended], waiting)
    if is_stall and not late and stall.crossed and all(map(stays_away, stall.crossed)):
        return made(Proof.CROSSWISE, stall.crossed, ())
    running = [rank for rank in ranks if rank not in ended]
    if running and all(stands(rank, LEAST_SNAPSHOTS, PATIENCE_SECONDS) for rank in running):
        return made(Proof.NOBODY_MOVES, running, ())
    return None


def _shows_a_wait(snapshot: RankSnapshot) -> bool:
    """Whether a rank that is inside a collective by its counters may work meanwhile, because it began the collective without waiting."""
    return is_waiting_in_collective(snapshot) is True or not uses_a_cpu(snapshot) or snapshot.stack_moved is False


def _seen(rank: int, still: Still | None) -> str:
    """Where a rank is, and over how many snapshots."""
    if still is None:
        return f"rank {rank} has ended"
    snapshot = still.last
    state = f"state {snapshot.state or 'unknown'}" + (", frozen" if snapshot.frozen else "")
    return f"rank {rank} is {place_of(snapshot)} ({state}), and did nothing in {still.snapshots} snapshots over {still.seconds:.0f} s"
