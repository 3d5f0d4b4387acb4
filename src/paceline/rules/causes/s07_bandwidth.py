"""S07: data queues up in front of a link that is too slow."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, StepTiming
from paceline.diagnosis.slow.slowdown import (
    BACKLOG_BYTES,
    backlog,
    cost_text,
    ends_of,
    exchange_seconds,
    is_exchange_measured,
    is_exchange_worth,
    is_queued,
    is_worth,
    link_rate,
    links,
    loses_packets,
    milliseconds,
    no_straggler,
    ranks_between,
    steady_timing,
    wire_bytes,
)
from paceline.diagnosis.snapshots import RankSnapshot, Socket
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "bandwidth-limited link"
PAGE = """\
A link between hosts is too slow for what the ranks exchange

What it means: The ranks send gradients faster than the link carries them. The sender's queue is full, and the link
  works at its full rate.
Why it matters: In each step all ranks wait for the slowest link, and their CPUs or GPUs are idle.
Deciding evidence: The kernel's data about the ranks' connections (tcp_info) at the sender: more than 128 KB are not
  sent yet, the round trip is several times the connection's own minimum because packets wait in a queue, and the
  delivery rate stays at the rate of the link. No rank is late by itself. Losses below one segment in a thousand are
  part of this cause, because a full queue drops packets.
Not to be confused with: S08 (the round trip is always long and the queue is empty); S09 (packets are lost); S02 (the
  receiver has no CPU to read, and its receive queue is full); S11 (one host carries all the traffic).
What to do: Use a faster interface if there is one (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) or a larger instance, or
  exchange less: gradient accumulation with no_sync, a bf16 compression hook, or a hierarchical reduction that starts
  within each host.
How to inject it: `examples/broken/s07_bandwidth.py`, as root: hosts in network namespaces, one of them on a link of
  200 Mbit/s (tc tbf).
Source: Linux, tcp_info in include/uapi/linux/tcp.h; reference measurements of this project.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len({rank.host for rank in timing.ranks}) < 2:
        return
    cost = exchange_seconds(timing)
    if cost is not None and not is_exchange_worth(timing):
        return
    full = [(snapshot, socket) for snapshot, socket in links(case) if _is_full(socket)]
    if not full:
        return
    if cost is None:
        raise Unknown("how long the exchange of a step takes")
    seconds = [_transfer_seconds(timing, snapshot, socket) for snapshot, socket in full]
    known = [time for time in seconds if time is not None]
    explained = bool(known) and max(known) >= 0.3 * timing.step_seconds
    if known and not is_exchange_measured(timing):
        cost = min(cost, max(known))
    if not is_worth(cost, timing):
        return
    snapshot, socket = max(full, key=lambda link: backlog(link[1]))
    yield CauseFinding(
        code="S07",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks_between(timing, full),
        hosts=ends_of(full),
        confidence=Confidence.HIGH if explained else Confidence.LIKELY,
        saw=tuple(_saw(snapshot, socket, timing, cost)),
        ruled_out=(
            f"S08 high-latency link: the same connection has answered within {milliseconds((socket.min_rtt_ms or 0) / 1000)}",
            *no_straggler(timing),
        ),
        next=(
            f"measure the link: iperf3 -s on {socket.peer_host}, iperf3 -c {socket.peer_host} on {snapshot.host}",
            "exchange less (gradient accumulation with no_sync(), a bf16 hook, or larger steps), or use a faster interface",
        ),
    )


def _is_full(socket: Socket) -> bool:
    return not socket.backoff and backlog(socket) >= BACKLOG_BYTES and is_queued(socket) and not loses_packets(socket)


def _transfer_seconds(timing: StepTiming, snapshot: RankSnapshot, socket: Socket) -> float | None:
    wire, rate = wire_bytes(timing), link_rate(timing, socket, snapshot.host)
    return None if wire is None or not rate else wire / rate


def _saw(snapshot: RankSnapshot, socket: Socket, timing: StepTiming, cost: float) -> Iterator[str]:
    carried = link_rate(timing, socket, snapshot.host)
    rate = f" by a link that carries {carried * 8 / 1e6:.0f} Mbit/s" if carried else ""
    yield (
        f"{backlog(socket) / 1024:.0f} KB wait on {snapshot.host} (rank {snapshot.rank}) to leave for {socket.peer_host}{rate}; "
        f"its round trip is {socket.rtt_ms:.3g} ms, and {socket.min_rtt_ms:.3g} ms when the link is free"
    )
    wire, seconds = wire_bytes(timing), _transfer_seconds(timing, snapshot, socket)
    if wire is not None and seconds is not None:
        yield f"a step sends {wire / 1e6:.1f} MB per host, which takes {milliseconds(seconds)} at that rate"
    yield cost_text(cost, timing) + ("" if is_exchange_measured(timing) else ", at most")


RULE = Cause(code="S07", title=TITLE, page=PAGE, find=find, beats=("S04", "S14", "S16"), sure_by=(Ground.TIMES,))
