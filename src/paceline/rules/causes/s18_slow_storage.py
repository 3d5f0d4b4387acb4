"""S18: loading waits for a disk or a network file system."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, RankTiming
from paceline.diagnosis.slow.slowdown import cost_text, is_beyond_noise, steady_timing
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "slow storage"
PRESSURE_FRACTION = 0.30
PAGE = """\
Steps wait for data, and the data waits for storage

What it means: Ranks wait in the DataLoader while tasks on their host wait for IO in at least 30 % of the time.
Why it matters: If the disk is slow, more loader workers do not help. The burst credits of a volume last for some
  minutes only.
Deciding evidence: The time in the DataLoader is at least a tenth of the step, and the kernel reports IO pressure on
  the same host.
Not to be confused with: S05 (the loader computes); S17 (IO because of swapping).
What to do: Copy the data to a local disk first, use larger files, buy more throughput for the volume, or cache
  decoded samples. Preview: judged on made-up evidence.
How to inject it: blkio.throttle.read_bps_device (cgroup v1) or io.max (v2).
Source: Linux, Documentation/accounting/psi.rst.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2:
        return
    waiting: dict[str, list[RankTiming]] = {}
    for rank in timing.ranks:
        if is_beyond_noise(rank.data, timing):
            waiting.setdefault(rank.host, []).append(rank)
    for host in timing.hosts:
        ranks = waiting.get(host.host)
        if not ranks:
            continue
        if host.pressure_io is None:
            raise Unknown(f"IO pressure on {host.host}")
        if host.pressure_io < PRESSURE_FRACTION or (host.pressure_memory or 0.0) >= 0.1:
            continue
        gain = max(rank.data_seconds or 0.0 for rank in ranks)
        yield CauseFinding(
            code="S18",
            title=TITLE,
            level=Level.SLOW,
            ranks=tuple(rank.rank for rank in ranks),
            hosts=(host.host,),
            confidence=Confidence.LIKELY,
            saw=(
                f"tasks on {host.host} waited for IO in {host.pressure_io:.0%} of the time",
                cost_text(gain, timing) + ", at most",
            ),
            ruled_out=("S05 data-loading bound by its own work: the wait is for storage",),
            next=("copy the data to a local disk before the start, or give the volume more throughput",),
        )


RULE = Cause(code="S18", title=TITLE, page=PAGE, find=find, beats=("S05",), preview=True, sure_by=(Ground.TIMES,))
