"""R05: GLOO_SOCKET_IFNAME names no interface of this host."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, saying
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "gloo does not know the interface"
PAGE = """\
Gloo does not know the interface

What it means: GLOO_SOCKET_IFNAME does not name an interface of this host. It may hold NCCL's spelling for "all
  except" (^lo), a prefix or a list; gloo reads each of these as one name.
Why it matters: gloo is needed even if NCCL carries the training, and its message does not say which variable it read.
Deciding evidence: The rank printed "Unable to find address for: NAME".
Not to be confused with: R03, where the name of a host is unknown.
What to do: Set the variable to the interface that `ip route get ADDRESS-OF-ANOTHER-HOST` prints after "dev", or unset
  it.
How to inject it: examples/broken/r05_interface.py
Source: gloo/transport/tcp/device.cc; NCCL's NCCL_SOCKET_IFNAME has its own grammar.
"""


_SAYS = re.compile(r"Unable to find address for: ?(?P<name>\S*)|Unable to find interface")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit, line in saying(case, _SAYS):
        yield crash(
            case,
            [exit],
            code="R05",
            title=TITLE,
            level=Level.START,
            saw=(ended(exit), line, _interface(line)),
            next=(
                "unset GLOO_SOCKET_IFNAME, or set it to the device that `ip route get <address of another host>` names",
                log_command(case, exit.rank),
            ),
        )


def _interface(line: str) -> str:
    match = _SAYS.search(line)
    name = match["name"] if match is not None else ""
    if not name:
        return ""
    listed = name.startswith(("^", "=")) or "," in name
    return f"GLOO_SOCKET_IFNAME={name}" + (
        " is NCCL's grammar; gloo takes one name" if listed else " is no interface of this host"
    )


RULE = Cause(code="R05", title=TITLE, page=PAGE, find=find, beats=("C01",), sure_by=(Ground.WORDS, Ground.EXIT))
