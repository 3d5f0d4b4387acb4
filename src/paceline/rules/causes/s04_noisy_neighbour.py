"""S04: a program outside the job, or another guest of the machine, takes the CPU of a host."""

from collections.abc import Iterator
from statistics import fmean

from paceline.diagnosis.case import Case, HostTiming, Level, StepTiming
from paceline.diagnosis.slow.slowdown import (
    cores_beside,
    cost_text,
    exchange_seconds,
    hosts_of_machine,
    is_worth,
    late_ranks,
    milliseconds,
    ranks_on,
    steady_timing,
    waited_for_a_cpu,
)
from paceline.diagnosis.snapshots import HostSnapshot
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks

TITLE = "noisy neighbour"
FOREIGN_CORES = 0.5
STEAL_FRACTION = 0.10
CROWDED_FRACTION = 0.20
# Of a step: a rank that waits so long for a CPU surely loses by it.
WAITED_FRACTION = 0.10
PAGE = """\
A program outside the job takes the CPU of a host

What it means: A process outside the job uses at least half a core of a host that has no core to spare, or the
  hypervisor gives the host's time to other guests (steal).
Why it matters: The ranks on that host are late, and all the others wait for them.
Deciding evidence: The list of processes outside the job, and how busy the host was beside the job's ranks over the
  whole window; or the host's steal time. In addition tasks on that host waited for a CPU, and in a job of several
  hosts the late ranks are on that host. Several hosts of a job on one machine count as one. What the neighbour costs is
  at most what the ranks themselves waited for a CPU, where the kernel tells: ranks that sleep lose nothing to it.
Not to be confused with: S03 (the job's own threads); S02 (a quota); S01 (the host is quiet, but the rank is still
  slow).
What to do: End or move the process that the finding names, or keep the job off that host. Against steal, use another
  machine or a dedicated instance.
How to inject it: `examples/broken/s04_neighbour.py`: two processes outside the job that only turn.
Source: Linux, proc(5), /proc/stat; Documentation/accounting/psi.rst.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2:
        return
    missing = ""
    told: set[str] = set()
    for host in timing.hosts:
        seen = case.host_snapshots.get(host.host)
        here = hosts_of_machine(case, timing, host.host)
        ranks = tuple(sorted(rank for name in here for rank in ranks_on(timing, name)))
        # Several hosts of a job on one machine have the same neighbours, which are reported once.
        if not ranks or told & set(here):
            continue
        crowded = max(host.pressure_cpu or 0.0, (seen.pressure_cpu or 0.0) if seen else 0.0)
        steal = host.steal_fraction or 0.0
        if crowded < CROWDED_FRACTION and steal < STEAL_FRACTION:
            continue
        if (seen is None or seen.foreign is None) and steal < STEAL_FRACTION:
            missing = f"the programs outside the job on {host.host} (it was not inspected)"
            continue
        finding = _judge(timing, host, seen, here, ranks, crowded)
        if finding is not None:
            told |= set(here)
            yield finding
    if missing:
        raise Unknown(missing)


def _judge(
    timing: StepTiming,
    host: HostTiming,
    seen: HostSnapshot | None,
    here: tuple[str, ...],
    ranks: tuple[int, ...],
    crowded: float,
) -> CauseFinding | None:
    foreign = sorted(seen.foreign or (), key=lambda process: -process[2]) if seen else []
    cores = sum(used for _, _, used in foreign)
    window = cores_beside(timing, host, here)
    if window is not None:
        # A snapshot lasts half a second and leaves out small programs. It has the names; the whole window has their CPU use.
        cores = window
    steal = host.steal_fraction or 0.0
    if cores < FOREIGN_CORES and steal < STEAL_FRACTION:
        return None
    count = host.cpu_count or (seen.cpu_count if seen else None) or 1
    late = late_ranks(timing)
    its_late = late if late is not None and set(late.numbers) & set(ranks) else None
    # A neighbour slows down all ranks of its host. Why one of them is later than the others it explains by what that one waited for a CPU.
    one_alone = its_late is not None and bool(set(ranks) - set(its_late.numbers))
    waited = waited_for_a_cpu(timing, its_late) if its_late is not None and one_alone else None
    explained = its_late is not None and waited is not None and waited >= its_late.gain_seconds / 2
    charged = its_late if explained or not one_alone else None
    waits = [rank.cpu_wait_seconds for rank in timing.ranks if rank.rank in ranks and rank.cpu_wait_seconds is not None]
    gain, besides = _lost(timing, ranks, cores, count, crowded, steal), 0.0
    if waits and steal < STEAL_FRACTION:
        # Ranks that sleep, or that the kernel prefers, lose nothing to a neighbour. One after the other may wait in a step.
        gain = min(gain, sum(waits))
    if charged is not None:
        gain = charged.gain_seconds if waited is None else min(waited, charged.gain_seconds)
        besides = charged.gain_seconds - gain
    if not is_worth(gain, timing):
        return None
    # If moving the data takes longer than the neighbour can cost, the exchange is the first thing to look at.
    crowds = crowded >= 0.3 and (exchange_seconds(timing) or 0.0) <= gain
    waited_long = not waits or steal >= STEAL_FRACTION or max(waits) >= WAITED_FRACTION * timing.step_seconds
    # A rank with more to compute also waits for a CPU more often, so its waiting alone proves nothing.
    sure = not explained and waited_long and (charged is not None or crowds)
    saw = [f"pid {pid} ({name}) outside the job uses {used:.1f} cores" for pid, name, used in foreign[:3]]
    if window is not None and window >= FOREIGN_CORES:
        saw.append(
            f"programs outside the job used {window:.1f} cores of {host.host} over {timing.window_seconds:.0f} s"
        )
    if steal >= STEAL_FRACTION:
        saw.append(f"the hypervisor took {steal:.0%} of the time of {host.host} for other guests")
    saw.append(f"tasks on {host.host} waited for one of its {count} cores in {crowded:.0%} of the time")
    saw.append(
        f"{named_ranks(ranks)} run{'s' * (len(ranks) == 1)} there: {'' if charged else 'estimated, '}{cost_text(gain, timing)}"
    )
    if charged is not None and is_worth(besides, timing):
        saw.append(
            f"{named_ranks(charged.numbers)} is late by {milliseconds(besides)} of a step besides, which this does not explain"
        )
    pids = ",".join(str(pid) for pid, _, _ in foreign[:3])
    return CauseFinding(
        code="S04",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks,
        hosts=here,
        confidence=Confidence.UNCLEAR
        if one_alone and not explained
        else Confidence.HIGH
        if sure
        else Confidence.LIKELY,
        since_step=charged.since_step if charged else None,
        saw=tuple(saw),
        ruled_out=("S03 over-subscription: the CPU is used outside the job",) if cores >= FOREIGN_CORES else (),
        next=(
            *((f"see what it is, on {host.host}, and end or move it: ps -fp {pids}",) if pids else ()),
            *(("move the job off this machine, or to a dedicated instance",) if steal >= STEAL_FRACTION else ()),
        ),
    )


def _lost(
    timing: StepTiming, ranks: tuple[int, ...], foreign: float, count: int, crowded: float, steal: float
) -> float:
    """Time that ranks lose if all run beside the neighbour: their CPU time grows by its share of the cores."""
    used = [
        min(rank.cpu_fraction, 1.0) for rank in timing.ranks if rank.rank in ranks and rank.cpu_fraction is not None
    ]
    mean = fmean(used) if used else 0.5
    left = max(count - foreign, count / 4)
    return max(min(mean * foreign / left, 1.0 - mean) * crowded, steal) * timing.step_seconds


RULE = Cause(code="S04", title=TITLE, page=PAGE, find=find, beats=("S01", "S03", "S14"), sure_by=(Ground.TIMES,))
