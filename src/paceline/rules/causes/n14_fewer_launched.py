"""N14: NCCL itself says that a rank has launched fewer collectives than the others, or that the NCCL of a rank does not answer."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.nccl_counts import nccl_counts
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "a rank is behind by NCCL's own count"
PAGE = """\
A rank is behind by NCCL's own count

What it means: NCCL counts the collectives that each rank has launched. One rank has launched fewer than the others of a
  communicator, and the counts do not change while the job stands still. Or the threads of NCCL in one rank do not answer
  those in the others.
Why it matters: Torch's flight recorder may be off, may not be readable, or may not know the backend. NCCL's own count
  still shows for which rank the others wait.
Deciding evidence: NCCL's RAS service (NCCL 2.24 and later) answered twice while the job stood still, with the same counts,
  and all processes that it named are ranks of this job. A rank that waits in another communicator is not named.
Not to be confused with: N01 to N09, which say why a rank does not come; N11, where NCCL's counts are equal and no rank is
  missing; N12, where the device is behind: NCCL counts what was launched, not what is over.
What to do: Look where the rank is: `paceline stack RUN --rank R`, or py-spy on its process.
How to inject it: not on a machine without a GPU. The tests answer in place of NCCL.
Source: NVIDIA, NCCL user guide, "RAS"; NCCL, src/ras/client_support.cc.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    still, counts = case.stall, nccl_counts(case)
    # Whom torch's recorder or the ranks' own calls name is named with a reason by another rule.
    if still is None or counts is None or still.late or still.behind or still.together:
        return
    ranks = counts.late or counts.silent
    if not ranks:
        return
    fewest, most = counts.launched
    yield CauseFinding(
        code="N14",
        title=TITLE,
        level=Level.STALL,
        ranks=ranks,
        confidence=Confidence.LIKELY,
        since_step=still.since_step,
        saw=(
            *(
                (
                    f"NCCL's RAS service: {named_ranks(counts.late)} launched {fewest} collectives, others {most}, twice alike",
                )
                if counts.late
                else ()
            ),
            *((f"NCCL in {named_ranks(counts.silent)} does not answer",) if counts.silent else ()),
            *counts.errors,
        ),
        next=tuple(f"paceline stack {case.run.id} --rank {rank}" for rank in ranks[:2]),
    )


RULE = Cause(code="N14", title=TITLE, page=PAGE, find=find, sure_by=(Ground.EVENTS, Ground.SNAPSHOT, Ground.CALLS))
