"""Reports a stall that no cause explains: which ranks make no progress, and where in the code. Pure."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, Stall
from paceline.diagnosis.stacks import place_of
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

_MOST_PLACES = 6
# The exit code of such a job.
STOPPED_ON_A_HANG = 202


def unexplained(case: Case) -> CauseFinding | None:
    """What is known about a stall without a cause; None if there is none.

    Holds:   never None for a job that was stopped for a hang, even if the recording has lost the reason
    """
    still, hang = case.stall, case.confirmation
    is_stall = still is not None and still.level is Level.STALL
    was_seen = still is not None and any(rank in case.snapshots for rank in still.late or still.waiting)
    if hang is None and not (is_stall and was_seen) and case.run.exit_code != STOPPED_ON_A_HANG:
        return None
    ranks = hang.ranks if hang is not None else still.late if still is not None else ()
    return CauseFinding(
        code=NO_CODE,
        title="a stall that fits no known cause",
        level=Level.STALL,
        ranks=ranks,
        confidence=Confidence.UNCLEAR,
        since_step=still.since_step if still is not None else None,
        saw=tuple(_evidence(case)) or ("the job was stopped for a hang, but the recording has lost the evidence",),
        next=(f"compare where the ranks stand: paceline stack {case.run.id} --diff",)
        if case.lasts
        else ("run the job again with --on-hang report, and inspect it while it hangs: paceline stack --diff",),
    )


def _evidence(case: Case) -> Iterator[str]:
    if case.stall is not None:
        yield from _saw(case, case.stall)
    if case.confirmation is not None:
        yield case.confirmation.proof
        yield from case.confirmation.seen


def _saw(case: Case, still: Stall) -> Iterator[str]:
    late, waiting = still.late, still.waiting
    where = f" in {still.operation or 'collective'} {still.index} of group {still.group}" if still.index else ""
    if late and waiting:
        yield f"{named_ranks(waiting)} wait{'s' * (len(waiting) == 1)}{where} for {named_ranks(late)}"
    elif waiting:
        yield f"{named_ranks(waiting)} wait{'s' * (len(waiting) == 1)}{where}, and no rank is behind"
    if case.confirmation is not None:
        return
    shown = [case.snapshots[rank] for rank in (late or waiting) if rank in case.snapshots][:_MOST_PLACES]
    for snapshot in shown:
        yield f"rank {snapshot.rank} is {place_of(snapshot)} (state {snapshot.state or 'unknown'})"
