"""The network interface for SM_NETWORK_INTERFACE_NAME, if the caller does not know a better one."""

from pathlib import Path

from paceline.contract.tree import NETWORK_INTERFACE

_ROUTES = Path("/proc/net/route")
_UP = 0x1


def interface_towards(master_addr: str, routes: str) -> str:
    """`lo` if the master is this machine, else the interface of the default route, else SageMaker's `eth0`.

    Scripts hand it to NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, where a name that does not exist ends the job.
    """
    if _is_loopback(master_addr):
        return "lo"
    return default_interface(routes) or NETWORK_INTERFACE


def default_interface(routes: str) -> str | None:
    """The interface of the default route with the smallest metric, from the text of /proc/net/route."""
    found = []
    for line in routes.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and int(fields[1], 16) == 0 and int(fields[7], 16) == 0 and int(fields[3], 16) & _UP:
            found.append((int(fields[6]), fields[0]))
    return min(found)[1] if found else None


def read_routes() -> str:
    """The kernel's IPv4 routes; empty if they cannot be read."""
    try:
        return _ROUTES.read_text()
    except OSError:
        return ""


def _is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")
