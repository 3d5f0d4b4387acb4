"""S01: one rank is late for every exchange."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, RankTiming, StepTiming
from paceline.diagnosis.slow.slowdown import (
    Late,
    cost_text,
    is_crowded,
    is_worth,
    late_ranks,
    milliseconds,
    phase_of,
    steady_timing,
    waited_for_a_cpu,
)
from paceline.diagnosis.stacks import site_of, users_frame
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "straggler"
PAGE = """\
One rank is slower than the others, and they wait for it in every step

What it means: The same rank (or a few ranks) starts its collectives later than the others, step after step, by at
  least a tenth of a step.
Why it matters: All ranks step together, so a step lasts as long as the slowest rank needs. Every other rank waits,
  and its machine costs money meanwhile.
Deciding evidence: The flight recorders of all ranks stamp when each collective began. Compared side by side,
  corrected for the clocks of the hosts, the stamps show how late each rank is for each bucket of a step. A rank that
  is late for all buckets lost the time before backward. A rank that is late from bucket k on lost it inside backward,
  at the layers of that bucket. The straggler is the rank with the small wait. It is later than the last of the other
  ranks by more than chance gives for equally fast ranks, and by more than it waited for a CPU.
Not to be confused with: S02 (its CPU quota is used up); S03 (too many threads); S04 (another program on its host);
  S05 (its loader is slow); S13 (late in every n-th step); S14 (a different rank in each step); S07 and S08 (no rank
  is late, the network is slow).
What to do: Look at that rank's stack under load (`paceline stack`), compare its host with the others (clock,
  temperature, other programs), and give it as much work as the others have. The finding says how much time a step
  would gain.
How to inject it: `examples/broken/s01_straggler.py`: a busy loop in the forward pass of one rank; `--inside 1` puts
  it into backward.
Source: reference measurements of this project: a delay of 50 ms in backward of one rank appeared as a lag of 50.2 ms
  on exactly the bucket concerned.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    late = late_ranks(timing)
    if late is None:
        return
    hosts = tuple(sorted({rank.host for rank in late.ranks}))
    waited = waited_for_a_cpu(timing, late)
    yield CauseFinding(
        code="S01",
        title=TITLE,
        level=Level.SLOW,
        ranks=late.numbers,
        hosts=hosts,
        confidence=_confidence(timing, late, waited, is_crowded(timing, hosts)),
        since_step=late.since_step,
        saw=(*_saw(timing, late), *_crowd(timing, hosts, waited)),
        ruled_out=("S14 batch imbalance: the same rank is late in most steps",) if late.measured else (),
        next=tuple(_next(case, timing, late)),
    )


def _confidence(timing: StepTiming, late: Late, waited: float | None, crowded: bool) -> Confidence:
    """Confidence in the certain part of the lateness, without the time that the rank waited for a CPU: that part is the host's fault."""
    if crowded and waited is None:
        return Confidence.UNCLEAR
    least = late.low_seconds - (waited or 0.0)
    if crowded:
        own = is_worth(late.gain_seconds - (waited or 0.0), timing) and least > 0
        return Confidence.LIKELY if own else Confidence.UNCLEAR
    return Confidence.HIGH if late.measured and is_worth(least, timing) else Confidence.LIKELY


def _crowd(timing: StepTiming, hosts: tuple[str, ...], waited: float | None) -> Iterator[str]:
    if is_crowded(timing, hosts):
        share = "" if waited is None else f", the late rank {milliseconds(waited)} of a step longer than the others"
        yield f"tasks on {', '.join(hosts)} waited for a CPU{share}"


def _saw(timing: StepTiming, late: Late) -> Iterator[str]:
    keep = "keeps" if len(late.ranks) == 1 else "keep"
    yield f"{named_ranks(late.numbers)} {keep} the others waiting: {cost_text(late.gain_seconds, timing)}"
    for rank in late.ranks[:3]:
        if late.measured:
            yield f"rank {rank.rank} loses its time {phase_of(rank)}"
            share = f", the last one in {rank.last_fraction:.0%} of the steps" if rank.last_fraction is not None else ""
            yield f"rank {rank.rank} is {milliseconds(max(rank.lags or (0.0,)))} later than the first rank{share}"
        else:
            yield (
                f"rank {rank.rank} spends {milliseconds(rank.own_seconds or 0.0)} of a step outside communication, "
                f"the quickest rank {milliseconds(min(other.own_seconds or 0.0 for other in timing.ranks))}"
            )

    yield f"at least {milliseconds(late.low_seconds)}, by the spread of {late.blocks} successive blocks of steps"


def _next(case: Case, timing: StepTiming, late: Late) -> Iterator[str]:
    for rank in late.ranks[:2]:
        snapshot = case.snapshots.get(rank.rank)
        frame = users_frame(snapshot) if snapshot is not None else None
        if frame is not None:
            again = f"; look again: paceline stack {case.run.id}" if case.lasts else ""
            yield f"rank {rank.rank} was at {site_of(frame)} when it was looked at{again}"
        elif case.lasts:
            yield f"see what rank {rank.rank} does: paceline stack {case.run.id}"
    if len({rank.host for rank in timing.ranks}) > 1:
        yield f"compare its host ({_hosts(late.ranks)}) with the others: paceline top {case.run.id}"
    else:
        yield f"what it did when: paceline report --format trace {case.run.id}"


def _hosts(ranks: tuple[RankTiming, ...]) -> str:
    return ", ".join(sorted({rank.host for rank in ranks}))


RULE = Cause(code="S01", title=TITLE, page=PAGE, find=find, sure_by=(Ground.TIMES,))
