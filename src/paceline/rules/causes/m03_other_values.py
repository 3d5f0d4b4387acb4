"""M03: at the same place, ranks issued the same collective with another dtype, reduce operation or root."""

from collections.abc import Iterator

from paceline.diagnosis.case import Call, Case, Divergence
from paceline.diagnosis.desync.desync import DesyncKind, Disagreement, differing, disagreements, places, seen_at
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "another dtype, reduce operation or root"
PAGE = """\
Another dtype, reduce operation or root in one collective

What it means: Ranks issued the same collective on tensors of the same shape, but one rank reduces float32 and another
  int32, one uses SUM and another MAX, or they disagree on the root of a broadcast.
Why it matters: If the sizes agree, the exchange succeeds and the numbers are wrong: bytes of one type are read as
  another type, or sums are mixed with maxima. The job ends with code 0. Different roots hang instead.
Deciding evidence: paceline reports the first call at which the two differ, with both lines of code. torch's flight
  recorder does not record the reduce operation and the root, so they are known only for collectives that Python
  issues.
Not to be confused with: M02 (the sizes differ), M04 (two right calls in another order).
What to do: Use the same dtype, ReduceOp and src or dst on every rank. Do not trust results since this step.
How to inject it: examples/broken/m03_max.py, examples/broken/m03_dtype.py
Source: torch.distributed.ReduceOp.
"""

_WORDS = {"dtype": "dtype", "reduce_op": "reduce operation", "root": "root"}


def find(case: Case) -> Iterator[CauseFinding]:
    for divergence, found in disagreements(case, DesyncKind.VALUES):
        where = places(found)
        yield differing(
            divergence,
            found,
            code="M03",
            title=TITLE,
            confidence=Confidence.HIGH if found.told_apart else Confidence.LIKELY,
            saw=(*_told(found), *seen_at(divergence, found), *_consequence(divergence, found)),
            next=(
                f"use the same {_what(found)} on every rank" + (f": {where}" if where else ""),
                f"do not trust checkpoints and metrics after step {divergence.since_step}"
                if divergence.since_step is not None and "root" not in found.differs
                else "start again from a checkpoint that was written before this call",
            ),
        )


def _what(found: Disagreement) -> str:
    return " and ".join(_WORDS[name] for name in found.differs if name in _WORDS) or "arguments"


def _told(found: Disagreement) -> tuple[str, ...]:
    return tuple(
        f"{_WORDS[name]}: {_value(found.mine[0], name)} on the one side, {_value(found.theirs[0], name)} on the other"
        for name in found.differs
        if name in _WORDS
    )


def _value(call: Call, name: str) -> object:
    return {"dtype": call.dtype, "reduce_op": call.reduce_op, "root": call.root}[name]


def _consequence(divergence: Divergence, found: Disagreement) -> tuple[str, ...]:
    if "root" in found.differs:
        return ()
    later = min((count for count in divergence.counts.values()), default=0) - divergence.index
    return (f"the exchange went through, with wrong numbers, and {later} calls followed",) if later > 0 else ()


RULE = Cause(code="M03", title=TITLE, page=PAGE, find=find, beats=("C01", "C05"), sure_by=(Ground.CALLS,))
