"""Chooses and checks the TCP ports of the agents and of the ranks' stores."""

import errno
import os
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
    """Refuse a port that is in use, and name the process that holds it, or a port that this user may not listen on.

    Raises:  UsageError U04: the port is in use, or forbidden
    """
    bound = try_bind("0.0.0.0", port)
    if bound is Bind.IN_USE:
        raise port_in_use(address, port, option)
    if bound is Bind.FORBIDDEN:
        raise _port_forbidden(address, port, option)


def why_not_listening(error: OSError, address: str, port: int, option: str) -> UsageError | None:
    """The refusal for a port on which this process cannot listen; None if the system's error is about something else."""
    if error.errno == errno.EADDRINUSE:
        return port_in_use(address, port, option)
    return _port_forbidden(address, port, option) if error.errno in (errno.EACCES, errno.EPERM) else None


def port_in_use(address: str, port: int, option: str) -> UsageError:
    """The error that names the process that holds a port."""
    holder = holder_of(port)
    return UsageError(
        "U04",
        f"port {port} on {address} is in use",
        saw=str(holder) if holder else "who holds it was not judged: another network namespace",
        next=f"paceline run {option} {port + 1} ...",
    )


def _port_forbidden(address: str, port: int, option: str) -> UsageError:
    other = f"{address}:29500" if option == "--rdzv-endpoint" else "29500"
    below = "; ports below 1024 are usually root's" if port < 1024 else ""
    return UsageError(
        "U04",
        f"port {port} on {address} cannot be listened on",
        saw=os.strerror(errno.EACCES) + below,
        next=f"paceline run {option} {other} ...",
    )
