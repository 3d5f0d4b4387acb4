"""S14: a different rank is late in each step."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import cost_text, is_crowded, late_ranks, steady_timing
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "batch imbalance"
PAGE = """\
Ranks take turns in being late

What it means: In each step some rank is late, but not always the same rank. The work of a step differs between ranks,
  as with sequences of different length.
Why it matters: A step lasts as long as its largest batch needs. With more ranks there is always a large batch.
Deciding evidence: The last rank of a step comes at least a fifth of a step after the first, measured at the lower end
  of the confidence interval of the mean. No rank is the last one much more often than its share.
Not to be confused with: S01 (always the same rank); S13 (one rank at regular steps); S15 (rare single pauses).
What to do: Batch by length, pack sequences, or give each rank the same number of tokens. Preview: judged on made-up
  evidence.
How to inject it: work of random length per rank and step.
Source: OSDI'25, "Understanding Stragglers in Large Model Training": sequence length is one of the three main causes.
"""

# Fraction of a step between the first and the last rank.
LEAST_FRACTION = 0.2


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2:
        return
    shares = [rank.last_fraction for rank in timing.ranks if rank.last_fraction is not None]
    if timing.spread_seconds is None or len(shares) < len(timing.ranks):
        raise Unknown("how late each rank is in each step (the flight recorders)")
    if timing.spread is None:
        raise Unknown("how late each rank is, over enough steps (16)")
    # Ranks that share a busy machine are also a little late in turn, so the threshold is higher than for one rank.
    if timing.spread.low < LEAST_FRACTION * timing.step_seconds or late_ranks(timing) is not None:
        return
    if is_crowded(timing, (host.host for host in timing.hosts)):
        raise Unknown("whether the batches or the crowded CPUs make the ranks late in turn")
    even = 1 / len(shares)
    pauses = [rank for rank in timing.ranks if rank.periodic is not None]
    # In nearly each step some rank is late, and each rank is late in turn.
    if pauses or sum(shares) < 0.5 or max(shares) > max(2 * even, 0.7):
        return
    yield CauseFinding(
        code="S14",
        title=TITLE,
        level=Level.SLOW,
        confidence=Confidence.LIKELY,
        saw=(
            f"a rank is late in {sum(shares):.0%} of the steps, none of them in more than {max(shares):.0%}",
            cost_text(timing.spread_seconds, timing),
        ),
        ruled_out=("S01 straggler: the late rank changes from step to step",),
        next=("give each rank the same number of tokens per step: batch by length, or pack sequences",),
    )


RULE = Cause(code="S14", title=TITLE, page=PAGE, find=find, preview=True, sure_by=(Ground.TIMES,))
