"""Chooses and checks the TCP ports of the agents and of the ranks' stores."""

import random

from paceline.errors import UsageError
from paceline.probes.ports import Bind, holder_of, try_bind

# Below Linux's default range for outgoing connections (ip(7), ip_local_port_range), so that no such connection takes the port meanwhile.
_STORE_PORTS = range(15000, 32000)
_TRIES = 200


def free_store_port(generator: random.Random | None = None) -> int:
    """A port on which no process of this machine listens now.

    Raises:  UsageError U04: no free port was found in 200 tries
    """
    generator = generator or random.Random()
    for port in (generator.choice(_STORE_PORTS) for _ in range(_TRIES)):
        if try_bind("0.0.0.0", port) is Bind.FREE:
            return port
    raise UsageError(
        "U04", "no free port for the ranks' store", saw="200 ports tried", next="paceline run --store-port PORT ..."
    )


def require_free(address: str, port: int, option: str) -> None:
    """Refuse a port that is in use, and name the process that holds it.

    Raises:  UsageError U04: the port is in use
    """
    if try_bind("0.0.0.0", port) is Bind.IN_USE:
        raise port_in_use(address, port, option)


def port_in_use(address: str, port: int, option: str) -> UsageError:
    """The error that names the process that holds a port."""
    holder = holder_of(port)
    return UsageError(
        "U04",
        f"port {port} on {address} is in use",
        saw=str(holder) if holder else "who holds it was not judged: another network namespace",
        next=f"paceline run {option} {port + 1} ...",
    )
