"""What the rules about slow jobs read from a case: the late ranks, the cost, and the connections between hosts. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import msgspec

from paceline.diagnosis.case import Case, Estimate, HostTiming, RankTiming, StepTiming
from paceline.diagnosis.slow.noise import ALPHA, chance_of_count
from paceline.diagnosis.slow.step_timing import WORTH_FRACTION
from paceline.diagnosis.snapshots import RankSnapshot, Socket
from paceline.findings import Unknown
from paceline.recording.fact_json import from_plain

LASTS_SECONDS = 10.0
QUICK_SECONDS, QUICK_STEPS = 5.0, 150
# Fraction of the time in which some task of the host waited for a CPU.
CROWDED_FRACTION = 0.3
# On one connection: more bytes than this are queued before a link, not just about to be sent.
BACKLOG_BYTES = 128 * 1024
# Fraction of the segments sent. At one in a thousand the window of a connection stays near 39 segments, 56 KB (window =
# 1.22 / sqrt(p), Mathis et al. 1997); a queue that is full now and then, as every queue before a full link is, loses far fewer.
LOSS_FRACTION = 1e-3
# One pause of the receiver, or the start of a connection, causes fewer.
LEAST_LOST = 10
INFLATED = 3.0
INFLATED_MS = 0.1
_SEGMENT_BYTES = 1448


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Ranks that are late again and again, and the time that a step would gain without them."""

    ranks: tuple[RankTiming, ...]
    """The late ranks."""
    gain_seconds: float
    """Gain of a step."""
    low_seconds: float
    """Least gain that noise allows."""
    high_seconds: float
    """Largest gain that noise allows."""
    blocks: int
    """Blocks of steps behind these bounds."""
    measured: bool
    """By the flight recorders."""

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(rank.rank for rank in self.ranks)

    @property
    def since_step(self) -> int | None:
        return min((rank.slow_since_step for rank in self.ranks if rank.slow_since_step is not None), default=None)


def steady_timing(case: Case) -> StepTiming:
    """The step timing, if it lasts long enough to be judged.

    Raises:  Unknown: it is not known, or too young
    """
    timing = case.timing
    if case.attached:
        raise Unknown("how the job steps: the ranks were not recorded")
    if timing is None or not timing.ranks:
        raise Unknown("how the job steps (20 steps of steady training)")
    if not is_settled(timing):
        raise Unknown(f"{LASTS_SECONDS:.0f} s of steady steps ({timing.window_seconds:.0f} s were seen)")
    if timing.ranks_left_out:
        raise Unknown(f"how {timing.ranks_left_out} ranks step (their step timing is not in this recording)")
    return timing


def is_settled(timing: StepTiming) -> bool:
    """Whether it lasts long enough to be judged: ten seconds, or five of quick steps."""
    steps = timing.to_step - timing.from_step
    return timing.window_seconds >= (QUICK_SECONDS if steps >= QUICK_STEPS else LASTS_SECONDS)


def late_ranks(timing: StepTiming) -> Late | None:
    """The ranks that the others wait for in most steps, at most half of all; None if no rank delays a tenth of a step.

    They are later than the last of the others by at least a tenth of a step, and by more than chance gives for ranks that are
    equally fast. If no stamps are known, the ranks' own times count.

    Raises:  Unknown: neither stamps nor own times, or of too few steps; or the ranks are not in the same step
    """
    if len(timing.ranks) < 2:
        return None
    found = timing.held_up
    if found is None:
        raise Unknown(
            "which rank is late (neither the flight recorders nor the time in communication are known for long enough)"
        )
    if found.gain is None or not is_beyond_noise(found.gain, timing):
        return None
    if found.gain.low > timing.step_seconds:
        # A rank that waits in every step cannot wait longer than a step lasts.
        raise Unknown("which rank is late (the ranks do not wait for each other in every step)")
    ranks = tuple(rank for rank in timing.ranks if rank.rank in found.ranks)
    return Late(
        ranks=ranks,
        gain_seconds=found.gain.seconds,
        low_seconds=found.gain.low,
        high_seconds=found.gain.high,
        blocks=found.gain.blocks,
        measured=found.measured,
    )


def slowest_ranks(events: Sequence[Mapping[str, Any]]) -> tuple[Late, StepTiming] | None:
    """The ranks that delayed the others in the latest window of the newest recorded attempt; None if none did beyond chance."""
    for event in reversed(events):
        if event.get("event") == "attempt_started":
            return None
        if event.get("event") == "tempo":
            try:
                timing = from_plain(StepTiming, event.get("tempo"))
                late = late_ranks(timing) if is_settled(timing) else None
            except (msgspec.ValidationError, Unknown):
                return None
            return None if late is None else (late, timing)
    return None


def nobody_is_late(timing: StepTiming) -> bool:
    """Whether it is known that no rank is late."""
    try:
        return late_ranks(timing) is None
    except Unknown:
        return False


def waited_for_a_cpu(timing: StepTiming, late: Late) -> float | None:
    """How much longer than the others the late ranks waited for a CPU in a step; None if the kernel does not report it.

    Another process took that time from them; it is not their own slowness.
    """
    waits = {rank.rank: rank.cpu_wait_seconds for rank in timing.ranks if rank.cpu_wait_seconds is not None}
    theirs = [seconds for rank, seconds in waits.items() if rank in late.numbers]
    others = [seconds for rank, seconds in waits.items() if rank not in late.numbers]
    return max(max(theirs) - fmean(others), 0.0) if theirs and others else None


def is_crowded(timing: StepTiming, hosts: Iterable[str]) -> bool:
    """Whether tasks on one of these hosts waited for a CPU so often that this alone explains late ranks."""
    return any((host.pressure_cpu or 0.0) >= CROWDED_FRACTION for host in timing.hosts if host.host in set(hosts))


def phase_of(rank: RankTiming) -> str:
    """Where in its step a rank loses its time, by the bucket from which on it is late."""
    lags = rank.lags or ()
    if len(lags) < 2:
        return "somewhere in the step: it has one exchange a step, which cannot tell where"
    first = next(place for place, lag in enumerate(lags) if lag >= max(lags) / 2)
    if first == 0:
        return "before backward (forward, data or the step's own code): it is late from the first bucket on"
    return f"inside backward: on time for {first} of {len(lags)} buckets, late from bucket {first + 1} on"


def cost_text(seconds: float, timing: StepTiming) -> str:
    """The cost of a cause, and the gain without it."""
    step = timing.step_seconds
    return (
        f"it costs {milliseconds(seconds)} of each step of {milliseconds(step)} ({min(seconds / step, 1.0):.0%}); "
        f"without it a step would take about {milliseconds(max(step - seconds, 0.0))}"
    )


def is_beyond_noise(found: Estimate | None, timing: StepTiming) -> bool:
    """Whether a cost per step is large enough to report and beyond chance; an unknown cost is not."""
    return found is not None and is_worth(found.seconds, timing) and found.low > 0


def is_worth(seconds: float | None, timing: StepTiming) -> bool:
    """Whether a cost per step is large enough to report; an unknown cost is not."""
    return seconds is not None and seconds >= WORTH_FRACTION * timing.step_seconds


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def ranks_on(timing: StepTiming, host: str) -> tuple[int, ...]:
    return tuple(rank.rank for rank in timing.ranks if rank.host == host)


def excess(timing: StepTiming, part: Callable[[RankTiming], float | None]) -> dict[int, float]:
    """Rank -> how much more time of a step it spends on something than the median of the others, if both are known.

    Holds:   the time grows as n log n with the number of ranks
    """
    known = {rank.rank: seconds for rank in timing.ranks if (seconds := part(rank)) is not None}
    ordered = sorted(known.values())
    if len(ordered) < 2:
        return {}
    return {rank: mine - _median_without(ordered, mine) for rank, mine in known.items()}


def _median_without(ordered: Sequence[float], mine: float) -> float:
    """The median of sorted numbers after one of them is taken out."""
    gone, last = bisect_left(ordered, mine), len(ordered) - 1
    low, high = (last - 1) // 2, last // 2
    return (ordered[low + (low >= gone)] + ordered[high + (high >= gone)]) / 2


def exchange_seconds(timing: StepTiming) -> float | None:
    """Time of a step for moving data, without waiting for late ranks; None: not measured."""
    known = [rank.communication_seconds for rank in timing.ranks if rank.communication_seconds]
    if known:
        return max(fmean(known) - (timing.spread_seconds or 0.0), 0.0)
    idle = [
        rank.step_seconds * max(1.0 - rank.cpu_fraction, 0.0) - (rank.data_seconds or 0.0)
        for rank in timing.ranks
        if rank.cpu_fraction is not None
    ]
    # Not measured: at most the time in which a rank neither computes nor loads.
    return max(min(idle) - (timing.spread_seconds or 0.0), 0.0) if idle else None


def is_exchange_worth(timing: StepTiming) -> bool:
    """Whether moving data costs enough to report, and more than a few seconds' chance if it was measured."""
    if not is_worth(exchange_seconds(timing), timing):
        return False
    if timing.communication is None or not is_exchange_measured(timing):
        return True
    return timing.communication.low > (timing.spread_seconds or 0.0)


def is_exchange_measured(timing: StepTiming) -> bool:
    return any(rank.communication_seconds for rank in timing.ranks)


def host_timing(timing: StepTiming, host: str) -> HostTiming | None:
    return next((found for found in timing.hosts if found.host == host), None)


def hosts_of_machine(case: Case, timing: StepTiming, host: str) -> tuple[str, ...]:
    """The hosts of the job on the same machine as this one, including itself."""
    seen = case.host_snapshots.get(host)
    machine = seen.machine if seen is not None else None
    return tuple(
        other.host
        for other in timing.hosts
        if other.host == host
        or (machine and (snapshot := case.host_snapshots.get(other.host)) is not None and snapshot.machine == machine)
    )


def cores_beside(timing: StepTiming, host: HostTiming, here: tuple[str, ...]) -> float | None:
    """Cores of this machine that were busy without the job's ranks; None if it is not known for all of the job's hosts there."""
    used = [other.ranks_cpu for other in timing.hosts if other.host in here]
    if host.busy_fraction is None or host.cpu_count is None or None in used:
        return None
    return max(host.busy_fraction * host.cpu_count - sum(cores or 0.0 for cores in used), 0.0)


def links(case: Case) -> list[tuple[RankSnapshot, Socket]]:
    """The connections from one host of the job to another, from the snapshots.

    Raises:  Unknown: the ranks' sockets were not read
    """
    with_sockets = [snapshot for snapshot in case.snapshots.values() if snapshot.sockets is not None]
    if not with_sockets:
        raise Unknown("the ranks' TCP connections (they were not read)")
    return list(_between_hosts(with_sockets))


def _between_hosts(snapshots: Sequence[RankSnapshot]) -> Iterator[tuple[RankSnapshot, Socket]]:
    # The other end is a host whose address was not known here.
    ends = {(socket.local, socket.remote): snapshot.host for snapshot in snapshots for socket in snapshot.sockets or ()}
    for snapshot in snapshots:
        for socket in snapshot.sockets or ():
            peer = socket.peer_host or ends.get((socket.remote, socket.local))
            if peer is not None and peer != snapshot.host and socket.state.lower() == "established":
                yield snapshot, replace(socket, peer_host=peer)


def backlog(socket: Socket) -> int:
    """Bytes that wait to leave through this connection."""
    return max(socket.not_sent_bytes or 0, socket.send_queue_bytes)


def is_queued(socket: Socket) -> bool:
    """Whether packets wait in a queue before the link: the round trip is several times that of the idle link."""
    if socket.rtt_ms is None or socket.min_rtt_ms is None:
        return False
    return socket.rtt_ms >= INFLATED * socket.min_rtt_ms and socket.rtt_ms >= INFLATED_MS


def sent_again_fraction(socket: Socket) -> float | None:
    """Fraction of the segments of a connection that were sent again; None if the number of segments is not known."""
    return socket.retransmits * _SEGMENT_BYTES / socket.sent_bytes if socket.sent_bytes else None


def loses_packets(socket: Socket) -> bool:
    """Whether a connection has lost more segments than a full queue drops, beyond chance.

    On a link that is only full, a window of W segments loses about one in W squared over 1.5 (Mathis et al. 1997, solved for p).
    """
    segments = (socket.sent_bytes or 0) / _SEGMENT_BYTES
    dropped = LOSS_FRACTION
    if is_queued(socket) and socket.congestion_window:
        dropped = max(dropped, 1.5 / socket.congestion_window**2)
    times = socket.retransmits + socket.lost
    return times >= LEAST_LOST and segments > 0 and chance_of_count(times, dropped * segments) < ALPHA


def wire_bytes(timing: StepTiming) -> float | None:
    """Bytes that each host sends in a step for all-reduces in a ring; None if the sizes are unknown.

    Source:  nccl-tests doc/PERFORMANCE.md, "AllReduce": 2 (n - 1) / n of the data
    """
    hosts = len({rank.host for rank in timing.ranks})
    return None if timing.step_bytes is None or hosts < 2 else timing.step_bytes * 2 * (hosts - 1) / hosts


def ends_of(found: Sequence[tuple[RankSnapshot, Socket]]) -> tuple[str, ...]:
    """The hosts of these connections; for several connections only the host that all of them have in common, if there is one."""
    pairs = {frozenset((snapshot.host, socket.peer_host or "?")) for snapshot, socket in found}
    common = frozenset.intersection(*pairs)
    return tuple(sorted(common if len(pairs) > 1 and common else frozenset.union(*pairs)))


def ranks_between(timing: StepTiming, found: Sequence[tuple[RankSnapshot, Socket]]) -> tuple[int, ...]:
    """The ranks of the hosts of these connections."""
    return tuple(rank for host in ends_of(found) for rank in ranks_on(timing, host))


def no_straggler(timing: StepTiming) -> tuple[str, ...]:
    """A text that it is no straggler, if that is known."""
    return ("S01 straggler: no rank is late by itself",) if nobody_is_late(timing) else ()


def link_rate(timing: StepTiming, socket: Socket, host: str) -> float | None:
    """Bytes per second on the link of a host while ranks exchange: bytes sent, divided by the time in which the host sends.

    If the host's bytes or the time are unknown, the kernel's measurement for the connection.
    """
    machine, seconds = host_timing(timing, host), exchange_seconds(timing)
    sent = machine.sent_bytes_per_second if machine is not None else None
    if not sent or not seconds or not is_exchange_measured(timing):
        return socket.delivery_rate
    return sent / min(seconds / timing.step_seconds, 1.0)
