"""M02: at the same place, ranks issued the same collective on tensors of different size."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Divergence, Level
from paceline.diagnosis.crash.exits import words_of
from paceline.diagnosis.crash.root_cause import gloo_sizes
from paceline.diagnosis.desync.desync import (
    DesyncKind,
    Disagreement,
    call_text,
    differing,
    disagreements,
    only_arranged_otherwise,
    places,
    seen_at,
)
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "tensors of different shape in one collective"
PAGE = """\
Tensors of different shape in one collective

What it means: Ranks issued the same collective as their n-th call, but on tensors of different shape: a smaller last
  batch, a padded length that each rank chose for itself, or a buffer made from rank-local data.
Why it matters: gloo aborts the process. NCCL hangs, or reads memory that was never written. The rank that fails may
  not be the rank with the wrong tensor.
Deciding evidence: paceline reports the first call at which the shapes differ, with both lines of code. gloo's own "N
  vs M" in the log agrees with them.
Not to be confused with: M04, where both tensors are right and come in another order; M06, where one side made a call
  too many; C05, a crash in native code that involves no other rank.
What to do: Pad or cut tensors to a length that all ranks agree on (all_reduce the maximum first), or set
  drop_last=True.
How to inject it: examples/broken/m02_shapes.py
Source: gloo, op.preamble.length <= op.nbytes.
"""

# Backends on which the ranks' contributions may correctly differ in size.
_MAY_DIFFER = ("all_gather", "reduce_scatter", "gather", "all_gather_coalesced")


def find(case: Case) -> Iterator[CauseFinding]:
    if not case.divergences:
        yield from _by_gloos_words_alone(case)
    for divergence, found in disagreements(case, DesyncKind.SHAPE):
        where = places(found)
        words = [line for exit in case.exits if (line := _gloos_words(words_of(case, exit)))]
        yield differing(
            divergence,
            found,
            code="M02",
            title=TITLE,
            confidence=_confidence(divergence, found),
            saw=(*seen_at(divergence, found), *words[:1]),
            ruled_out=("another order or an extra call: the calls before and after show neither",),
            next=(
                f"use tensors of one shape on every rank: {where or call_text(found.mine[0])}",
                "if the data decide the length, all_reduce its maximum first and pad, or set drop_last=True",
                "where gradients are put together by hand, put zeros where a rank's .grad is None",
            ),
        )


def _by_gloos_words_alone(case: Case) -> Iterator[CauseFinding]:
    """No recorded calls differ. Gradients or buffers, which C++ exchanges, may differ in size."""
    for exit in case.exits:
        if words := _gloos_words(words_of(case, exit)):
            yield CauseFinding(
                code="M02",
                title=TITLE,
                level=Level.DIVERGENCE,
                confidence=Confidence.UNCLEAR,
                saw=(
                    f"rank {exit.rank} on {exit.host}: {words}",
                    "as far as they are known, the calls from Python do not differ",
                ),
                next=("TORCH_DISTRIBUTED_DEBUG=DETAIL names the exchange in which the sizes differ",),
            )
            return


def _confidence(divergence: Divergence, found: Disagreement) -> Confidence:
    operation = found.mine[0].operation
    if only_arranged_otherwise(found) or (divergence.backend != "gloo" and operation in _MAY_DIFFER):
        return Confidence.UNCLEAR
    return Confidence.HIGH if found.sure and found.told_apart else Confidence.LIKELY


def _gloos_words(text: str) -> str:
    sizes = gloo_sizes(text)
    return f"gloo met {sizes[0]} bytes where it expected {sizes[1]}" if sizes else ""


RULE = Cause(code="M02", title=TITLE, page=PAGE, find=find, beats=("C01", "C05"), sure_by=(Ground.CALLS, Ground.WORDS))
