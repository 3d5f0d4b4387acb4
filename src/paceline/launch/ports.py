"""Which TCP ports the agents and the ranks' stores use."""

import random

from paceline.errors import UsageError
from paceline.probes.ports import Bind, holder_of, try_bind

# Below Linux's default range of outgoing connections (ip(7), ip_local_port_range), so that none takes the port in between.
_STORE_PORTS = range(15000, 32000)
_TRIES = 200


def free_store_port(generator: random.Random | None = None) -> int:
    """A port that nothing on this machine listens on now.

    Raises:  UsageError U04: none was free in 200 tries
    """
    generator = generator or random.Random()
    for port in (generator.choice(_STORE_PORTS) for _ in range(_TRIES)):
        if try_bind("0.0.0.0", port) is Bind.FREE:
            return port
    raise UsageError(
        "U04", "no free port for the ranks' store", saw="200 ports tried", next="paceline run --store-port PORT ..."
    )


def require_free(address: str, port: int, option: str) -> None:
    """Refuse a port that somebody holds, and say who.

    Raises:  UsageError U04: the port is in use
    """
    if try_bind("0.0.0.0", port) is Bind.IN_USE:
        raise port_in_use(address, port, option)


def port_in_use(address: str, port: int, option: str) -> UsageError:
    """The error that names the holder of a port."""
    holder = holder_of(port)
    return UsageError(
        "U04",
        f"port {port} on {address} is in use",
        saw=str(holder) if holder else "who holds it was not judged: another network namespace",
        next=f"paceline run {option} {port + 1} ...",
    )
