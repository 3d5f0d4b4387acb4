"""S17: a host is short of memory and swaps or reclaims pages."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import late_ranks as waited_for
from paceline.diagnosis.slow.slowdown import cost_text, is_worth, late_ranks, ranks_on, steady_timing
from paceline.diagnosis.stacks import place_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.probes.system_calls import PAGE_FAULT

TITLE = "memory pressure"
PRESSURE_FRACTION = 0.10
_FULL_FRACTION, _MANY_FAULTS = 0.9, 5.0
PAGE = """\
A host is short of memory, and its ranks wait for pages

What it means: Tasks on a host waited for memory in at least a tenth of the time, because the kernel reclaims pages or
  swaps.
  In a stall: a rank that the others wait for reads its own pages from a disk again and again, because its control group is
  full or its host is short of memory.
Why it matters: A rank that waits for its own pages is slow everywhere. Soon the kernel's OOM killer may end it.
Deciding evidence: The kernel's memory pressure over the window, and swap in use. In addition the ranks on that host
  are late, or all ranks are on this one host.
Not to be confused with: S03 (pressure on the CPU); S18 (pressure on IO alone); C02 (the rank was killed already).
What to do: Use smaller batches, fewer loader workers and prefetched batches, a larger memory limit, or a larger host.
  Preview: judged on made-up evidence.
How to inject it: a memory limit just above what the rank needs, with a swap file.
Source: Linux, Documentation/accounting/psi.rst.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    yield from _stalled(case)
    timing = steady_timing(case)
    if len(timing.ranks) < 2:
        return
    pressures = {host.host: _pressure(case, host.host, host.pressure_memory) for host in timing.hosts}
    if all(pressure is None for pressure in pressures.values()):
        raise Unknown("memory pressure (the kernel's pressure stall information)")
    for host in timing.hosts:
        pressure, ranks = pressures[host.host], ranks_on(timing, host.host)
        if pressure is None or pressure < PRESSURE_FRACTION or not ranks:
            continue
        late = late_ranks(timing) if len({rank.host for rank in timing.ranks}) > 1 else None
        gain = late.gain_seconds if late and set(late.numbers) & set(ranks) else pressure * timing.step_seconds
        if is_worth(gain, timing):
            swap = f", {(host.swap_used_bytes or 0) / 2**30:.1f} GiB are swapped out" if host.swap_used_bytes else ""
            yield CauseFinding(
                code="S17",
                title=TITLE,
                level=Level.SLOW,
                ranks=ranks,
                hosts=(host.host,),
                confidence=Confidence.LIKELY,
                since_step=late.since_step if late else None,
                saw=(
                    f"tasks on {host.host} waited for memory in {pressure:.0%} of the time{swap}",
                    cost_text(gain, timing) + ", about",
                ),
                next=("use smaller batches, fewer DataLoader workers, or more memory",),
            )


def _stalled(case: Case) -> Iterator[CauseFinding]:
    """Ranks that others wait for, and that wait for their own pages: these are thrown away and read again without end."""
    for late in waited_for(case):
        snapshot = late.snapshot
        used, limit = snapshot.memory_used_bytes, snapshot.memory_limit_bytes
        is_full = bool(limit) and (used or 0) > _FULL_FRACTION * (limit or 0)
        pressure = _pressure(case, snapshot.host, None) or 0.0
        faults = snapshot.major_faults_per_second or 0.0
        in_a_fault = snapshot.state == "D" and snapshot.system_call == PAGE_FAULT
        if not (is_full or pressure >= PRESSURE_FRACTION) or not (in_a_fault or faults >= _MANY_FAULTS):
            continue
        yield CauseFinding(
            code="S17",
            title="rank waits for its own memory",
            level=Level.STALL,
            ranks=(late.rank,),
            confidence=Confidence.HIGH if is_full and in_a_fault and faults >= _MANY_FAULTS else Confidence.LIKELY,
            saw=(
                f"{faults:.0f} page faults a second wait for a disk"
                if faults >= _MANY_FAULTS
                else "it waits in a page fault",
                *((f"its control group has {(used or 0) >> 20} of {(limit or 0) >> 20} MiB",) if is_full else ()),
                *((f"memory pressure of {snapshot.host}: {pressure:.0%} of the time",) if pressure else ()),
                f"its main thread is {place_of(snapshot)}",
                late.how_late,
            ),
            ruled_out=("not at work: what it reads from the disk was thrown out of its memory before",),
            next=("give it more memory, or smaller batches, fewer loader workers, fewer pinned pages",),
        )


def _pressure(case: Case, host: str, measured: float | None) -> float | None:
    seen = case.host_snapshots.get(host)
    return measured if measured is not None else seen.pressure_memory if seen is not None else None


RULE = Cause(
    code="S17",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("S01", "S03", "N01", "N04", "N08"),
    levels=(Level.SLOW, Level.STALL),
    preview=True,
    sure_by=(Ground.TIMES, Ground.SNAPSHOT),
)
