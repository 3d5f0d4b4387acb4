"""M06: some ranks issued a collective that the others never issue, or left out one that the others issue."""

from collections.abc import Iterator, Mapping

from paceline.diagnosis.case import Call, Case, Divergence, GroupCounters, Heartbeat, Level
from paceline.diagnosis.crash.exits import words_of
from paceline.diagnosis.crash.root_cause import gloo_sizes
from paceline.diagnosis.desync.desync import DesyncKind, Disagreement, call_text, disagreements, seen_at, whereabouts
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "a collective that not all ranks make"
PAGE = """\
A collective that not all ranks make

What it means: A collective stands inside `if rank == 0:`, inside a callback that only one rank runs, or behind a
  condition on local data. The ranks that make the call are one call ahead. From there on each call is matched with
  the wrong one.
Why it matters: gloo aborts with two sizes that nobody recognises, NCCL hangs much later, and equal sizes give wrong
  numbers without an error.
Deciding evidence: One of three observations. The calls of one rank equal those of the others, except for a call at a
  line that the others never reach, and continue shifted. Or the newest call of a rank was made by no other rank, and
  its size is the size that gloo reports. Or the others wait for that rank in a gradient exchange that uses
  connections of its own (`--gradients`).
Not to be confused with: M05 (the rank had fewer batches and is at its last barrier); M07 (the rank skipped a whole
  gradient exchange); M01 (the rank issued another call in its place).
What to do: Make the call on every rank of the group and use the result only where you need it. Or give the ranks that
  need it a group of their own.
How to inject it: examples/broken/m06_extra.py
Source: torch.distributed.new_group.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    found_any = False
    for divergence, found in disagreements(case, DesyncKind.EXTRA, DesyncKind.MISSING):
        found_any = True
        extra = found.kind is DesyncKind.EXTRA
        call = found.mine[0] if extra else found.theirs[0]
        yield _finding(
            found.blamed,
            call_line=str(call.site) if call.site is not None else "",
            extra=extra,
            since_step=divergence.since_step,
            confidence=Confidence.HIGH if found.sure and found.told_apart else Confidence.LIKELY,
            saw=(*seen_at(divergence, found), *whereabouts(case, found), *_what_follows(divergence, found)),
            of_buffers=any(
                one.operation == "broadcast" and one.site is None for one in (found.mine[0], found.theirs[0])
            ),
        )
    if not found_any and not any(divergence.basis == "calls" for divergence in case.divergences):
        yield from _against_gradients(case)
        yield from _beside_gradients(case)
        yield from _against_lanes(case)


def _against_gradients(case: Case) -> Iterator[CauseFinding]:
    """A call from Python that was matched with DDP's own exchange.

    Only the flight recorder shows such an exchange, but gloo's two sizes reveal it.
    """
    met = next(((exit, sizes) for exit in case.exits if (sizes := gloo_sizes(words_of(case, exit)))), None)
    alone = [
        (heartbeat, call)
        for heartbeat in case.heartbeats.values()
        if (call := heartbeat.last_call) and _is_alone(case, heartbeat)
    ]
    if met is None or not alone:
        return
    exit, sizes = met
    fitting = [(heartbeat, call) for heartbeat, call in alone if call.size_bytes in sizes]
    if len(fitting or alone) > 1:
        return
    ((heartbeat, call),) = fitting or alone
    words = f"gloo on rank {exit.rank} met {sizes[0]} bytes where it expected {sizes[1]}"
    sure = Confidence.HIGH if fitting else Confidence.LIKELY
    yield _made_alone(heartbeat, call, sure, f"{words}; this call has {call.size_bytes}")


def _beside_gradients(case: Case) -> Iterator[CauseFinding]:
    """A call from Python that a flight recorder shows at the place of a call that no Python of the other ranks has made: DDP's own."""
    for divergence in case.divergences:
        alone = [
            (heartbeat, call, recorded)
            for heartbeat in case.heartbeats.values()
            if (call := heartbeat.last_call)
            and (recorded := divergence.calls.get(heartbeat.rank))
            and _is_alone(case, heartbeat)
            if (call.operation, call.shape) == (recorded.operation, recorded.shape)
        ]
        if len(alone) != 1:
            continue
        ((heartbeat, call, _),) = alone
        (other, theirs) = next((rank, one) for rank, one in divergence.calls.items() if rank != heartbeat.rank)
        at_its_place = f"at its place, collective {divergence.index} of group {divergence.group}"
        yield _made_alone(heartbeat, call, Confidence.HIGH, f"{at_its_place}, rank {other} has {call_text(theirs)}")


def _against_lanes(case: Case) -> Iterator[CauseFinding]:
    """A call from Python waits for ranks, and these wait for the calling rank in paceline's own gradient exchange."""
    still = case.stall
    for heartbeat in case.heartbeats.values():
        call = heartbeat.last_call
        if still is None or call is None or heartbeat.phase != "communication" or not _is_alone(case, heartbeat):
            continue
        entered = {counters.name: counters.enqueued for counters in heartbeat.exchanges}
        others = [other for other in case.heartbeats.values() if other.rank != heartbeat.rank]
        waits = [waited for other in others if (waited := _ahead(other, entered)) is not None]
        if not waits or len(waits) < len(others):
            continue
        where = waits[0]
        what = f"{where.operation or 'collective'} {where.completed + 1} of group {where.name}"
        cannot_come = (
            f"{named_ranks(other.rank for other in others)} cannot come: they wait for rank {heartbeat.rank} in {what}"
        )
        yield _made_alone(heartbeat, call, Confidence.LIKELY, cannot_come)


def _made_alone(heartbeat: Heartbeat, call: Call, confidence: Confidence, seen: str) -> CauseFinding:
    return _finding(
        (heartbeat.rank,),
        call_line=str(call.site) if call.site is not None else "",
        extra=True,
        since_step=heartbeat.step_count,
        confidence=confidence,
        saw=(f"rank {heartbeat.rank}: {call_text(call)}, call {call.index}; no other rank has made it", seen),
    )


def _ahead(heartbeat: Heartbeat, entered: Mapping[str, int]) -> GroupCounters | None:
    """The exchange that this rank waits in and that the rank with these counters has not reached."""
    inside = (c for c in heartbeat.exchanges if c.enqueued > c.completed)
    return next((c for c in inside if c.completed >= entered.get(c.name, 0)), None)


def _is_alone(case: Case, heartbeat: Heartbeat) -> bool:
    """Whether this rank has made a call in some group that no other rank of the case has reached."""
    others = [other for other in case.heartbeats.values() if other.rank != heartbeat.rank]
    return bool(others) and any(
        all(other.calls.get(group, 0) < count for other in others) for group, count in heartbeat.calls.items()
    )


def _what_follows(divergence: Divergence, found: Disagreement) -> tuple[str, ...]:
    if not found.sure and found.seen_before:
        return (
            "both calls were made before: one is one too many, or their order differs (M04); the calls up to here do not show which",
        )
    if not found.sure:
        known = max(sum(call.index < divergence.index for call in calls) for calls in divergence.windows.values())
        return (f"no rank made the call among the {known:,} calls before that are known",) if known else ()
    return (f"from there on {named_ranks(found.odd)} and {named_ranks(found.usual)} issue the same calls, shifted",)


def _finding(
    ranks: tuple[int, ...],
    *,
    call_line: str,
    extra: bool,
    since_step: int | None,
    confidence: Confidence,
    saw: tuple[str, ...],
    of_buffers: bool = False,
) -> CauseFinding:
    """`of_buffers`: one side makes a broadcast that no line of Python makes, as DDP's forward pass does of buffers."""
    what = "only some ranks make" if extra else "some ranks leave out"
    return CauseFinding(
        code="M06",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=ranks,
        confidence=confidence,
        since_step=since_step,
        saw=saw,
        next=(
            f"make the call on every rank of its group, which {what}" + (f": {call_line}" if call_line else ""),
            "or give the ranks that need it a group of their own: torch.distributed.new_group(ranks)",
            *(
                ("where one rank alone evaluates, it calls model.module: the forward pass of DDP broadcasts buffers",)
                if of_buffers
                else ()
            ),
        ),
    )


RULE = Cause(
    code="M06", title=TITLE, page=PAGE, find=find, beats=("M01", "M02", "M03", "C01", "C05"), sure_by=(Ground.CALLS,)
)
