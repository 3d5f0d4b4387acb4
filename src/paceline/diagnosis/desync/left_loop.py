"""Ranks that have left their training loop and are in a call after it, while others are still in a step. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paceline.diagnosis.case import Call, Case
from paceline.diagnosis.crash.exits import steps_of, words_of
from paceline.diagnosis.crash.root_cause import gloo_sizes
from paceline.diagnosis.desync.batches import BatchCounts, RanOut, has_more, loading_of, peers_of, ran_out, whole_epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftLoop:
    """One rank that has left its training loop."""

    rank: int
    """Global rank."""
    call: Call
    """Its newest call, made since its last step."""
    in_a_step: tuple[int, ...]
    """Ranks that are still in their loops."""
    steps: int | None
    """Steps that it has made."""
    own: BatchCounts | None = None
    """What it took from its loader; None: not known."""
    longest: int | None = None
    """Length of the longest loader among the others."""
    out: RanOut | None = None
    """When its loader had no more batches, if that was seen."""

    @property
    def has_used_up_its_batches(self) -> bool:
        """Whether its loader had no more batches. An evaluation takes batches of its own, so steps count as well."""
        own = self.own
        return self.out is not None or (
            own is not None and (whole_epochs(own) or (own.steps > 0 and own.steps % own.batches == 0))
        )

    @property
    def has_fewer_batches(self) -> bool:
        return self.own is not None and self.longest is not None and self.longest > self.own.batches


def left_loops(case: Case) -> Iterator[LeftLoop]:
    """Ranks whose newest call is after the loop of their steps, or came when their loader had no more batches and others' had.

    Nothing if the job continues, or if all ranks have left their loops.
    """
    behind = {rank: call for rank in case.ranks if (call := _call_since_its_last_step(case, rank)) is not None}
    for rank, call in behind.items():
        peers = peers_of(case, rank)
        out = ran_out(case, rank)
        found = LeftLoop(
            rank=rank,
            call=call,
            in_a_step=tuple(
                other
                for other in case.ranks
                if _meet(case, rank, other) and _is_in_a_step(case, other, behind, loading_of(case, rank), out)
            ),
            steps=steps_of(case, rank),
            own=loading_of(case, rank),
            longest=max((peer.batches for peer in peers), default=None),
            out=out,
        )
        used_up_fewer = found.has_used_up_its_batches and found.has_fewer_batches
        if found.in_a_step and (_is_outside(call) or used_up_fewer or out is not None):
            yield found


def is_behind_its_loop(case: Case, rank: int) -> bool:
    """Whether the rank's newest call is outside of the loop of its steps."""
    call = _call_since_its_last_step(case, rank)
    return call is not None and _is_outside(call)


def _meet(case: Case, rank: int, other: int) -> bool:
    """Whether these two are in different exchanges. A late rank, at its last checkpoint for example, may still come."""
    if rank == other:
        return False
    waiting = case.stall.waiting if case.stall is not None else ()
    return (
        any({rank, other} <= divergence.calls.keys() for divergence in case.divergences)
        or {rank, other} <= set(waiting)
        or any(gloo_sizes(words_of(case, exit)) is not None for exit in case.exits)
    )


def _is_in_a_step(
    case: Case, rank: int, behind: Mapping[int, Call], left: BatchCounts | None, out: RanOut | None
) -> bool:
    """Whether this rank still trains, while a rank that took `left`, and whose loader ran `out`, does not."""
    if rank in behind and _is_outside(behind[rank]):
        return False
    if out is not None:
        return has_more(case, rank, out)
    own = loading_of(case, rank)
    # The last batch of a longer loader belongs to a step, too.
    return own is None or not whole_epochs(own) or (left is not None and whole_epochs(left) and own.taken > left.taken)


def _is_outside(call: Call) -> bool:
    return call.site is not None and call.site.outside_loop is True


def _call_since_its_last_step(case: Case, rank: int) -> Call | None:
    heartbeat = case.heartbeats.get(rank)
    last = heartbeat.last_call if heartbeat is not None else None
    # Calls from the flight recorder have no step; calls from Python do.
    calls = [last, *(divergence.calls.get(rank) for divergence in case.divergences)]
    newest = next((call for call in calls if call is not None), None)
    steps = steps_of(case, rank)
    return newest if newest is not None and (None in (newest.step, steps) or newest.step == steps) else None
