"""A stall that no cause explains is told all the same: who stands still, and where in the code. Pure."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.stacks import place_of
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

_MOST_PLACES = 6


def unexplained(case: Case) -> CauseFinding | None:
    """What is known of a stall nobody can explain; None where there is none."""
    still = case.standstill
    if still is None or still.level is not Level.STALL or not any(r in case.looks for r in still.late or still.waiting):
        return None
    return CauseFinding(
        code=NO_CODE,
        title="a stall that fits no known cause",
        level=Level.STALL,
        ranks=still.late,
        confidence=Confidence.UNCLEAR,
        since_step=still.since_step,
        saw=tuple(_saw(case, still.late, still.waiting)),
        next=(f"compare where the ranks stand: paceline stack {case.run.id} --diff",),
    )


def _saw(case: Case, late: tuple[int, ...], waiting: tuple[int, ...]) -> Iterator[str]:
    still = case.standstill
    assert still is not None
    where = f" in {still.operation or 'collective'} {still.index} of group {still.group}" if still.index else ""
    if late:
        yield f"{named_ranks(waiting)} wait{'s' * (len(waiting) == 1)}{where} for {named_ranks(late)}"
    elif waiting:
        yield f"{named_ranks(waiting)} wait{'s' * (len(waiting) == 1)}{where}, and nobody is behind"
    shown = [case.looks[rank] for rank in (late or waiting) if rank in case.looks][:_MOST_PLACES]
    for look in shown:
        yield f"rank {look.rank} is {place_of(look)} (state {look.state or 'unknown'})"
