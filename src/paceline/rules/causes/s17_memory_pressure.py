"""S17: a host is short of memory and swaps or reclaims pages."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import cost_text, is_worth, late_ranks, ranks_on, steady_timing
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "memory pressure"
PRESSURE_FRACTION = 0.10
PAGE = """\
A host is short of memory, and its ranks wait for pages

What it means: Tasks on a host waited for memory in at least a tenth of the time, because the kernel reclaims pages or
  swaps.
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


def _pressure(case: Case, host: str, measured: float | None) -> float | None:
    seen = case.host_snapshots.get(host)
    return measured if measured is not None else seen.pressure_memory if seen is not None else None


RULE = Cause(code="S17", title=TITLE, page=PAGE, find=find, beats=("S01", "S03"), preview=True, sure_by=(Ground.TIMES,))
