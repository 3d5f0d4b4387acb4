"""S09: packets are lost between two hosts."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import (
    LOSS_FRACTION,
    cost_text,
    exchange_seconds,
    is_exchange_worth,
    links,
    loses_packets,
    sent_again_fraction,
    steady_timing,
)
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "packet loss"
PAGE = """\
Packets are lost between two hosts

What it means: On the ranks' connections between two hosts, segments are lost or sent again.
Why it matters: TCP halves its window at each loss, and waits at least 200 ms if the last segment of a message is
  lost. The throughput collapses.
Deciding evidence: tcp_info of the ranks' connections shows at least ten segments that were lost or sent again. They
  are more than one in a thousand, beyond chance (a Poisson count), and behind a queue more than a full queue drops at
  this window. The exchange costs at least a tenth of the step.
Not to be confused with: S07 (a full queue, which drops fewer packets); S10 (only large segments are lost).
What to do: Read the error counters on both hosts (ip -s link, ethtool -S), and check cable, MTU and switch. Preview:
  judged on made-up evidence.
How to inject it: paceline.parts.lab.emulate, a relay that drops one packet in a hundred.
Source: RFC 5681; Mathis et al. 1997, "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm"; Linux,
  tcp_info in include/uapi/linux/tcp.h.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    cost = exchange_seconds(timing)
    if len({rank.host for rank in timing.ranks}) < 2 or not is_exchange_worth(timing):
        return
    lossy = [(snapshot, socket) for snapshot, socket in links(case) if loses_packets(socket)]
    if not lossy:
        return
    snapshot, socket = max(lossy, key=lambda link: link[1].lost + link[1].retransmits)
    yield CauseFinding(
        code="S09",
        title=TITLE,
        level=Level.SLOW,
        ranks=tuple(sorted({snapshot.rank for snapshot, _ in lossy})),
        hosts=tuple(sorted({snapshot.host for snapshot, _ in lossy})),
        confidence=Confidence.LIKELY,
        saw=(
            f"{snapshot.host} to {socket.peer_host}: {socket.lost} segments lost, {socket.retransmits} sent again so far, "
            f"{sent_again_fraction(socket) or 0.0:.2%} of what was sent; a full queue drops {LOSS_FRACTION:.1%} or less",
            cost_text(cost or 0.0, timing) + ", at most",
        ),
        next=(f"on both ends: ip -s link; nstat -az TcpRetransSegs; ping -c 100 -i 0.01 {socket.peer_host}",),
    )


RULE = Cause(
    code="S09", title=TITLE, page=PAGE, find=find, beats=("S07", "S08", "S16"), preview=True, sure_by=(Ground.TIMES,)
)
