"""S08: the round trip between two hosts is long and slows down each collective."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, StepTiming
from paceline.diagnosis.slow.slowdown import (
    cost_text,
    ends_of,
    exchange_seconds,
    is_exchange_measured,
    is_exchange_worth,
    is_worth,
    links,
    milliseconds,
    no_straggler,
    ranks_between,
    steady_timing,
)
from paceline.diagnosis.snapshots import Socket
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "high-latency link"
LONG_MS = 1.0
QUEUED = 2.5
EXPLAINED_FRACTION = 0.25
PAGE = """\
The round trip between two hosts is long

What it means: A round trip between two hosts takes a millisecond or more even when the link is idle. The hosts are in
  different zones or regions, or a VPN or a relay lies between them.
Why it matters: A ring all-reduce over N hosts needs 2 (N - 1) transfers one after another for each bucket, however
  small the bucket is. More bandwidth does not help.
Deciding evidence: The shortest round trip that the kernel has seen on the ranks' connections (tcp_info, min_rtt) is
  at least 1 ms. The current round trip is not much longer, so nothing queues. Round trips times collectives explain
  at least a tenth of the step.
Not to be confused with: S07 (the shortest round trip is short, and the queue makes it long); S09 (packets are lost);
  S01 (one rank is late).
What to do: Place the hosts in one zone and one placement group. Otherwise use fewer and larger collectives:
  bucket_cap_mb of DDP, gradient accumulation with no_sync, local SGD.
How to inject it: `examples/broken/s08_latency.py`, as root: hosts in network namespaces with a relay that delays
  every packet by 10 ms.
Source: Linux, tcp_info in include/uapi/linux/tcp.h; Thakur et al., "Optimization of Collective Communication
  Operations in MPICH".
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    hosts = len({rank.host for rank in timing.ranks})
    if hosts < 2:
        return
    exchanged = exchange_seconds(timing)
    if exchanged is not None and not is_exchange_worth(timing):
        return
    far = [(snapshot, socket) for snapshot, socket in links(case) if _is_far(socket)]
    if not far:
        return
    trip = max(socket.min_rtt_ms or 0.0 for _, socket in far) / 1000
    cost = _latency_seconds(timing, hosts, trip)
    if cost is None:
        cost = exchanged
    elif exchanged is not None:
        # A collective needs more transfers than the minimum if sender and receiver have to agree first.
        explained = is_exchange_measured(timing) and cost >= EXPLAINED_FRACTION * exchanged
        cost = exchanged if explained else min(cost, exchanged)
    if cost is None or not is_worth(cost, timing):
        return
    snapshot, socket = max(far, key=lambda link: link[1].min_rtt_ms or 0.0)
    times = f", {timing.collectives_per_step:.0f} collectives a step" if timing.collectives_per_step else ""
    yield CauseFinding(
        code="S08",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks_between(timing, far),
        hosts=ends_of(far),
        confidence=Confidence.HIGH if timing.collectives_per_step else Confidence.LIKELY,
        saw=(
            f"between {snapshot.host} and {socket.peer_host} a round trip takes {socket.min_rtt_ms:.3g} ms at least{times}",
            cost_text(cost, timing) + ", about",
        ),
        ruled_out=(
            f"S07 bandwidth-limited link: nothing queues; the round trip is {milliseconds((socket.rtt_ms or 0.0) / 1000)} now",
            *no_straggler(timing),
        ),
        next=(
            f"place the hosts together (zone, placement group); measure: ping -c 5 {socket.peer_host} on {snapshot.host}",
            "use fewer, larger collectives: DistributedDataParallel(..., bucket_cap_mb=100), gradient accumulation with no_sync()",
        ),
    )


def _is_far(socket: Socket) -> bool:
    least, now = socket.min_rtt_ms, socket.rtt_ms
    return least is not None and least >= LONG_MS and not socket.lost and (now is None or now < QUEUED * least)


def _latency_seconds(timing: StepTiming, hosts: int, round_trip: float) -> float | None:
    """Time of the transfers of a ring if everything else took no time. DDP's buckets overlap in part, so it is an approximation."""
    per_step = timing.collectives_per_step
    return None if per_step is None else per_step * (hosts - 1) * round_trip


RULE = Cause(code="S08", title=TITLE, page=PAGE, find=find, beats=("S01", "S04", "S14", "S16"), sure_by=(Ground.TIMES,))
