"""S02: the CPU quota of a control group is used up in each period."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, StepTiming
from paceline.diagnosis.slow.noise import chance_of_share
from paceline.diagnosis.slow.slowdown import (
    Late,
    cost_text,
    is_beyond_noise,
    is_worth,
    late_ranks,
    ranks_on,
    steady_timing,
)
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks

TITLE = "CPU quota throttling"
THROTTLED_FRACTION = 0.10
# A snapshot of half a second sees five periods. This is the largest accepted probability that chance stops as many.
_CHANCE = 0.01
_PERIOD_SECONDS = 0.1
PAGE = """\
A control group's CPU quota stops ranks in each period

What it means: The ranks want more CPU time than their container or control group may use. When the quota of a period
  is used up, the kernel stops all their threads until the next period begins. A period is usually 100 ms.
Why it matters: A rank that is stopped for part of each period is late everywhere, and the others wait for it. `top`
  shows a CPU that is not even busy.
Deciding evidence: In cpu.stat of the control group, nr_throttled grows with nr_periods. The group was stopped in at
  least a tenth of the periods, which is more than chance explains in a snapshot of a few periods, and the step is
  slower because of it.
Not to be confused with: S03 (no quota, but more threads than cores: nr_throttled does not grow); S01 (the rank is
  slow by its own work); S04 (another program takes the CPU).
What to do: Raise the limit: `--cpus` of docker, `resources.limits.cpu` of Kubernetes (or leave out the limit and keep
  the request), cpu.max or cpu.cfs_quota_us of the group. Fewer threads (OMP_NUM_THREADS) use less of the quota.
How to inject it: `examples/broken/s02_throttled.py`, as root: one rank puts itself into a group of a quarter of a
  CPU.
Source: Linux, Documentation/scheduler/sched-bwc.rst; cgroup-v2.rst, cpu.max and cpu.stat.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    throttled, quota, known = _throttled(case, timing)
    if not throttled:
        if not known:
            raise Unknown("whether a CPU quota stops the ranks (cpu.stat of their control group)")
        return
    ranks = tuple(sorted(throttled))
    late = late_ranks(timing) if len(timing.ranks) > 1 else None
    gain = _gain(timing, late, throttled)
    if not is_worth(gain, timing):
        return
    quotas = sorted({quota[rank] for rank in ranks if rank in quota})
    limit = f" ({', '.join(f'{q:g}' for q in quotas)} CPUs)" if quotas else ""
    yield CauseFinding(
        code="S02",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks,
        hosts=tuple(sorted({rank.host for rank in timing.ranks if rank.rank in throttled})),
        since_step=min(
            (r.slow_since_step for r in timing.ranks if r.rank in throttled and r.slow_since_step is not None),
            default=None,
        ),
        confidence=Confidence.HIGH if _is_sure(timing, late, throttled) else Confidence.LIKELY,
        saw=(
            f"the CPU quota{limit} stopped {named_ranks(ranks)} in {max(throttled.values()):.0%} of its periods",
            cost_text(gain, timing),
        ),
        ruled_out=("S01 straggler: the kernel stops the rank; the rank is not slow by itself",),
        next=(
            "raise the CPU limit of the container or control group (docker --cpus, Kubernetes resources.limits.cpu, cpu.max)",
            "or use fewer threads: OMP_NUM_THREADS=1",
        ),
    )


def _throttled(case: Case, timing: StepTiming) -> tuple[dict[int, float], dict[int, float], bool]:
    """Rank -> fraction of periods in which it was stopped; rank -> its quota in CPUs; whether any group could be read."""
    throttled: dict[int, float] = {}
    quota: dict[int, float] = {}
    known = False
    for host in timing.hosts:
        known = known or host.throttled_fraction is not None
        if (host.throttled_fraction or 0.0) >= THROTTLED_FRACTION:
            for rank in ranks_on(timing, host.host):
                throttled[rank] = host.throttled_fraction or 0.0
                if host.cpu_quota_cpus is not None:
                    quota[rank] = host.cpu_quota_cpus
    for rank, snapshot in case.snapshots.items():
        if snapshot.throttled_fraction is None:
            continue
        known = True
        # The rank's own group describes it better than the agent's group.
        if _is_throttled(snapshot):
            throttled[rank] = snapshot.throttled_fraction
            if snapshot.cpu_quota_cpus is not None:
                quota[rank] = snapshot.cpu_quota_cpus
        else:
            throttled.pop(rank, None)
    return throttled, quota, known


def _is_throttled(snapshot: RankSnapshot) -> bool:
    """Whether the snapshot shows more throttled periods than chance explains."""
    periods = max(round(snapshot.seconds / _PERIOD_SECONDS), 1)
    stopped = round((snapshot.throttled_fraction or 0.0) * periods)
    return chance_of_share(stopped, periods, THROTTLED_FRACTION) < _CHANCE


def _is_sure(timing: StepTiming, late: Late | None, throttled: dict[int, float]) -> bool:
    """Whether the loss itself is beyond noise, or there is no unthrottled rank to compare with."""
    if set(throttled) >= {rank.rank for rank in timing.ranks}:
        return True
    if late is not None and set(late.numbers) & set(throttled):
        return True
    return any(is_beyond_noise(rank.behind, timing) for rank in timing.ranks if rank.rank in throttled)


def _gain(timing: StepTiming, late: Late | None, throttled: dict[int, float]) -> float:
    # A rank runs freely until its quota is used up. It is late in some steps of each period, so the mean counts.
    mean = {rank.rank: rank.late_seconds for rank in timing.ranks if rank.late_seconds is not None}
    stopped = max((seconds for rank, seconds in mean.items() if rank in throttled), default=0.0)
    free = max((seconds for rank, seconds in mean.items() if rank not in throttled), default=None)
    gain = stopped - free if free is not None else 0.0
    if late is not None and set(late.numbers) & set(throttled):
        gain = max(gain, late.gain_seconds)
    if set(throttled) >= {rank.rank for rank in timing.ranks}:
        # All ranks are stopped equally, so none is late. They lose at most the fraction of the periods.
        gain = max(gain, min(throttled.values()) * timing.step_seconds / 2)
    return gain


RULE = Cause(code="S02", title=TITLE, page=PAGE, find=find, beats=("S01", "S03", "S14"), sure_by=(Ground.TIMES,))
