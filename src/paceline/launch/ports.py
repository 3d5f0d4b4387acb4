"""Chooses and checks the TCP ports of the agents and of the ranks' stores."""

import errno
import os
import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from paceline.errors import UsageError
from paceline.probes.ports import Bind, holder_of, try_bind
from paceline.spelling import as_typed

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
        "U04", "no free port for the ranks' store", saw="200 ports tried", next="paceline run --set store_port=PORT ..."
    )


class ReservedPorts:
    """Ports of this machine on which servers of the ranks will listen. Until `release` no other process can listen on them.

    Until `close` no other job of paceline reserves them either: a rank listens only once it has imported its library, which takes seconds.
    """

    def __init__(self, wanted: Sequence[int], generator: random.Random | None = None) -> None:
        """`wanted`: one number for each port; 0: any. If a number is in use, another free port takes its place."""
        self._wanted = tuple(wanted)
        self._generator = generator or random.Random()
        self._sockets: list[socket.socket] = []
        self._claims: list[socket.socket] = []
        self.numbers: tuple[int, ...] = ()
        """The ports, one for each number of `wanted`; empty: this machine gives none."""
        self.reserve()

    def reserve(self) -> None:
        """Reserve ports again for the next attempt. The numbers may be others, because the processes of the last attempt may still listen.

        There are none afterwards if this machine gives none, such as one without IPv4.
        """
        self.close()
        try:
            for number in self._wanted:
                self._sockets.append(self._bound(number))
        except OSError:
            self.close()
        self.numbers = tuple(one.getsockname()[1] for one in self._sockets)

    def release(self) -> None:
        """Let the ranks listen: they start now."""
        _close_all(self._sockets)

    def close(self) -> None:
        """Let go of the ports: no rank will listen on them any more."""
        self.release()
        _close_all(self._claims)

    def _bound(self, wanted: int) -> socket.socket:
        """A socket on the wanted port or another free one, on every address. It does not listen: nobody gets a connection to it."""
        # Without SO_REUSEADDR: with it, another process could bind to the port as well.
        reserved = socket.socket()
        for number in (*([wanted] if wanted else []), *(self._generator.choice(_STORE_PORTS) for _ in range(_TRIES))):
            with suppress(OSError), ExitStack() as kept:
                claim = kept.enter_context(socket.socket(socket.AF_UNIX))
                # An abstract name is, as a port is, there once in a network, and gone with the process.
                claim.bind(f"\0paceline-port-{number}")
                reserved.bind(("0.0.0.0", number))
                kept.pop_all()
                self._claims.append(claim)
                return reserved
        try:
            reserved.bind(("0.0.0.0", 0))
        except OSError:
            reserved.close()
            raise
        return reserved


def _close_all(sockets: list[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()


_OF_SEVERAL_HOSTS = ("--nnodes", "--node-rank", "--node_rank", "--master-addr", "--master_addr")


def _is_agent(command: str) -> bool:
    """Whether a command line is that of an agent of a job of several hosts."""
    words = command.split()
    return (
        "run" in words
        and any(word.rpartition("/")[2] == "paceline" for word in words)
        and any(word.startswith(_OF_SEVERAL_HOSTS) for word in words)
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
    if holder is not None and option == "--master-port" and _is_agent(holder.command):
        # Only a first host listens there, of this job or of another one.
        return UsageError(
            "U04",
            f"port {port} on {address} is in use by another agent, which has --node-rank 0 too",
            saw=f"{holder}; if that is another job's: {as_typed(option, port + 1)}",
            next="paceline run --node-rank 1 ...",
        )
    return UsageError(
        "U04",
        f"port {port} on {address} is in use",
        saw=str(holder) if holder else "who holds it was not judged: another network namespace",
        next=f"paceline run {as_typed(option, port + 1)} ...",
    )


def _port_forbidden(address: str, port: int, option: str) -> UsageError:
    other = f"{address}:29500" if option == "--rdzv-endpoint" else "29500"
    below = "; ports below 1024 are usually root's" if port < 1024 else ""
    return UsageError(
        "U04",
        f"port {port} on {address} cannot be listened on",
        saw=os.strerror(errno.EACCES) + below,
        next=f"paceline run {as_typed(option, other)} ...",
    )
