"""S11: all traffic goes through one host."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, HostTiming, Level, StepTiming
from paceline.diagnosis.slow.slowdown import (
    cost_text,
    exchange_seconds,
    is_exchange_measured,
    is_exchange_worth,
    is_worth,
    ranks_on,
    steady_timing,
)
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "parameter-server or rank-0 hot spot"
# In a star one host carries as much as all others together; in a ring of three hosts it carries half of that.
STAR_FRACTION = 0.75
LEAST_BYTES_PER_SECOND = 1e6
PAGE = """\
One host carries the traffic of all the others

What it means: The script gathers gradients or parameters on one rank and sends them out again: a parameter server,
  `gather` or `reduce` to rank 0 followed by `broadcast`, or objects sent through the store.
Why it matters: The link of that host carries N - 1 times as much as the others, so a step takes longer with each
  host. In a ring every link carries the same amount, whatever the number of hosts.
Deciding evidence: Over the window, one host's interface sends and receives about as many bytes as all other hosts
  together. The exchange costs at least a tenth of the step.
Not to be confused with: S07 (all links are equally busy); S13 (rank 0 computes, but does not carry the traffic).
What to do: Use all_reduce or DistributedDataParallel instead of gather and broadcast. Shard a parameter server over
  the hosts.
How to inject it: `examples/broken/s11_hot_spot.py`, as root: three hosts whose ranks send their gradients to rank 0.
Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations".
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    hosts = {rank.host for rank in timing.ranks}
    if len(hosts) < 3:
        # Between two hosts a star and a ring are the same.
        return
    carried = {host.host: _bytes(host) for host in timing.hosts if host.host in hosts}
    known = {host: rate for host, rate in carried.items() if rate is not None}
    if len(known) < len(hosts):
        raise Unknown("the bytes that each host sends and receives")
    hub = max(known, key=lambda host: known[host])
    others = sum(rate for host, rate in known.items() if host != hub)
    if known[hub] < LEAST_BYTES_PER_SECOND or known[hub] < STAR_FRACTION * others or not _is_two_way(timing, hub):
        return
    cost = exchange_seconds(timing)
    if cost is None:
        raise Unknown("how long the exchange of a step takes")
    if not is_exchange_worth(timing) and not _hub_is_late(timing, hub):
        return
    spread = timing.spread_seconds or 0.0
    # The hub is late because it has to gather first, so the time others wait for it is part of the same cost.
    cost = min(cost + (spread if _hub_is_late(timing, hub) else 0.0), timing.step_seconds)
    if not is_worth(cost, timing):
        return
    ring = sum(known.values()) / len(known)
    yield CauseFinding(
        code="S11",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks_on(timing, hub)[:1],
        hosts=(hub,),
        confidence=Confidence.HIGH if is_exchange_measured(timing) else Confidence.LIKELY,
        saw=(
            f"{hub} sends and receives {known[hub] / 1e6:.1f} MB/s, "
            f"the other {len(known) - 1} hosts together {others / 1e6:.1f} MB/s: a star",
            f"a ring would load each host with about {ring / 1e6:.1f} MB/s; the exchange: {cost_text(cost, timing)}",
        ),
        ruled_out=("S07 bandwidth-limited link: the links are not equally busy",),
        next=("replace gather/reduce to one rank and broadcast by all_reduce, or use DistributedDataParallel",),
    )


def _bytes(host: HostTiming) -> float | None:
    if host.sent_bytes_per_second is None or host.received_bytes_per_second is None:
        return None
    return host.sent_bytes_per_second + host.received_bytes_per_second


def _is_two_way(timing: StepTiming, hub: str) -> bool:
    """Whether the hub both receives what the others send and sends to them.

    A host that uploads or downloads a file does only one of the two.
    """
    hosts = {rank.host for rank in timing.ranks}
    of_hub = [host for host in timing.hosts if host.host == hub]
    others = [host for host in timing.hosts if host.host != hub and host.host in hosts]
    received = sum(host.received_bytes_per_second or 0.0 for host in of_hub)
    sent = sum(host.sent_bytes_per_second or 0.0 for host in of_hub)
    return received >= STAR_FRACTION * sum(
        host.sent_bytes_per_second or 0.0 for host in others
    ) and sent >= STAR_FRACTION * sum(host.received_bytes_per_second or 0.0 for host in others)


def _hub_is_late(timing: StepTiming, hub: str) -> bool:
    late = {rank.host: rank.late_seconds or 0.0 for rank in timing.ranks}
    return late.get(hub, 0.0) >= max(late.values(), default=0.0) > 0


RULE = Cause(
    code="S11", title=TITLE, page=PAGE, find=find, beats=("S01", "S04", "S07", "S14", "S16"), sure_by=(Ground.TIMES,)
)
