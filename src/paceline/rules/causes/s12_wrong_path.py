"""S12: the ranks do not use the fast network."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import cost_text, exchange_seconds, is_exchange_worth, steady_timing
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "wrong network path"
_VIRTUAL = re.compile(r"\b(docker\d*|br-[0-9a-f]+|veth\w*|virbr\d*|cni\d*|flannel\S*|tun\d*)\b")
_SOCKET = re.compile(r"NCCL INFO.*(NET/Socket|via NET/Socket|Using network Socket)")
PAGE = """\
Ranks exchange over a slow network although there is a faster one

What it means: NCCL fell back to TCP sockets although RDMA or EFA was intended, or an interface variable names a
  bridge or a tunnel.
Why it matters: The exchange is ten times slower or worse, without any error.
Deciding evidence: NCCL printed lines with NET/Socket although FI_PROVIDER or NCCL_IB settings ask for another
  transport, or GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names a virtual interface. The exchange costs at least a
  tenth of the step.
Not to be confused with: S07 (the right network is used, and it is full).
What to do: Name the interface (NCCL_SOCKET_IFNAME=eth0), install the plug-in of the fabric, and read the output of
  NCCL_DEBUG=INFO. Preview: judged on made-up evidence.
How to inject it: GLOO_SOCKET_IFNAME set to a slow veth.
Source: NCCL documentation, "Environment Variables"; aws-ofi-nccl.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len({rank.host for rank in timing.ranks}) < 2:
        return
    cost = exchange_seconds(timing)
    if not is_exchange_worth(timing):
        return
    if not case.snapshots and not case.tails:
        raise Unknown("the ranks' environment and output")
    for rank, snapshot in sorted(case.snapshots.items()):
        said = _said(snapshot.environment, case.tails.get(rank, ""))
        if said:
            yield CauseFinding(
                code="S12",
                title=TITLE,
                level=Level.SLOW,
                ranks=(rank,),
                hosts=(snapshot.host,),
                confidence=Confidence.LIKELY,
                saw=(said, cost_text(cost or 0.0, timing) + ", at most"),
                next=(
                    "name the fast interface: NCCL_SOCKET_IFNAME / GLOO_SOCKET_IFNAME; NCCL_DEBUG=INFO says which one is used",
                ),
            )
            return


def _said(environment: dict[str, str], tail: str) -> str:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        if _VIRTUAL.search(environment.get(name, "")):
            return f"{name}={environment[name]}, a virtual interface"
    fabric = environment.get("FI_PROVIDER") or environment.get("NCCL_IB_HCA")
    line = _SOCKET.search(tail)
    return f"NCCL uses sockets ({line.group(0)[:80]}) although {fabric} is asked for" if fabric and line else ""


RULE = Cause(code="S12", title=TITLE, page=PAGE, find=find, beats=("S07",), preview=True, sure_by=(Ground.TIMES,))
