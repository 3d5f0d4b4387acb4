"""S10: large packets do not arrive, small ones do."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import links
from paceline.diagnosis.snapshots import Socket
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "MTU black hole"
_SMALL_BYTES = 1400
_LARGE_BYTES = 64 * 1024
PAGE = """\
Large packets vanish between two hosts

What it means: The hosts send larger packets than the path between them carries, and they are not told so because ICMP
  is dropped. Small messages arrive; the first large message never does.
Why it matters: Rendezvous and barriers work, and the first gradient exchange hangs. It looks like a hang of the
  script.
Deciding evidence: The job makes no progress. A connection that has delivered small messages has a full queue,
  unacknowledged segments and a growing back-off, while other traffic to the same host continues.
Not to be confused with: S09 (some large packets arrive); N01 (the rank sent nothing).
What to do: Give both hosts the same MTU: ip link set dev IFACE mtu 1500. Or let ICMP "fragmentation needed" pass, or
  set sysctl net.ipv4.tcp_mtu_probing=1. Preview: judged on made-up evidence.
How to inject it: two namespaces with MTU 9000 and a bridge with 1500 that drops ICMP.
Source: RFC 2923, "TCP Problems with Path MTU Discovery"; RFC 4821.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    if case.stall is None:
        return
    stuck = [(snapshot, socket) for snapshot, socket in links(case) if _is_stuck(socket)]
    alive = {
        (snapshot.host, socket.peer_host)
        for snapshot, socket in links(case)
        if not socket.backoff and (socket.last_received_ms or 10**9) < 5000
    }
    for snapshot, socket in stuck:
        if (snapshot.host, socket.peer_host) in alive:
            yield CauseFinding(
                code="S10",
                title=TITLE,
                level=Level.STALL,
                hosts=tuple(sorted((snapshot.host, socket.peer_host or "?"))),
                confidence=Confidence.LIKELY,
                saw=(
                    f"{snapshot.host} to {socket.peer_host}: {socket.send_queue_bytes} bytes wait, sent again {socket.backoff} times, "
                    f"and {socket.sent_bytes or 0} bytes had been sent before",
                    "another connection between the same hosts still carries data",
                ),
                ruled_out=("a cut link: small messages still arrive",),
                next=(f"on {snapshot.host}: ping -M do -s 1472 {socket.peer_host}; ip link | grep mtu, on both",),
            )
            return


def _is_stuck(socket: Socket) -> bool:
    return socket.backoff >= 2 and socket.unacked > 0 and socket.send_queue_bytes >= min(_SMALL_BYTES * 2, _LARGE_BYTES)


RULE = Cause(
    code="S10", title=TITLE, page=PAGE, find=find, levels=(Level.STALL,), preview=True, sure_by=(Ground.TIMES,)
)
