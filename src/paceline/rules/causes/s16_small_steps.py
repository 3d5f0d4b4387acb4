"""S16: each exchange is so small that its start takes most of its time."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import (
    cost_text,
    exchange_seconds,
    is_crowded,
    is_exchange_measured,
    is_exchange_worth,
    late_ranks,
    milliseconds,
    steady_timing,
)
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "too little work per step"
SMALL_BYTES = 256 * 1024
EXCHANGE_FRACTION = 0.3
PAGE = """\
Each step does too little for what its exchange costs

What it means: The exchange takes a large part of the step on all ranks, no rank is late, and little is exchanged:
  there are many small collectives, or the steps are very short.
Why it matters: Each collective has a fixed cost that does not depend on its size. The cost grows with the number of
  ranks.
Deciding evidence: Communication is at least 30 % of the step on all ranks, the ranks arrive together, and the mean
  collective is below 256 KB.
Not to be confused with: S07 (a lot of data on a slow link); S08 (a long round trip); S01 (one rank is late).
What to do: Use a larger batch per rank, gradient accumulation with no_sync(), larger buckets (bucket_cap_mb), or
  fewer, coalesced collectives. Preview: judged on made-up evidence.
How to inject it: a model of many tiny parameters, batch 1.
Source: nccl-tests doc/PERFORMANCE.md, latency and bandwidth; torch DDP notes.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2 or not is_exchange_measured(timing):
        return
    cost = exchange_seconds(timing)
    if cost is None or cost < EXCHANGE_FRACTION * timing.step_seconds:
        return
    if timing.step_bytes is None or not timing.collectives_per_step:
        raise Unknown("the sizes of the collectives of a step")
    mean = timing.step_bytes / timing.collectives_per_step
    if mean >= SMALL_BYTES or late_ranks(timing) is not None or not is_exchange_worth(timing):
        return
    if is_crowded(timing, (host.host for host in timing.hosts)):
        raise Unknown("whether starting the exchange takes the time, or waiting for a CPU")
    yield CauseFinding(
        code="S16",
        title=TITLE,
        level=Level.SLOW,
        confidence=Confidence.LIKELY,
        saw=(
            f"{timing.collectives_per_step:.0f} collectives a step of {mean / 1024:.1f} KB each take {milliseconds(cost)}",
            cost_text(cost, timing) + ", at most",
        ),
        ruled_out=("S01 straggler: all ranks arrive together",),
        next=("use a larger batch per rank, gradient accumulation with no_sync(), or bucket_cap_mb=100",),
    )


RULE = Cause(code="S16", title=TITLE, page=PAGE, find=find, preview=True, sure_by=(Ground.TIMES,))
