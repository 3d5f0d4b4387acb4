"""Connects the ranks of one host: a UNIX socket between each two ranks, every rank's eventfd, and the shared memory.

The sockets have abstract names, so no socket file can remain. The ranks agree through the store whether the connection works before they
use it: either every rank has its sockets and its memory, or every rank gets `SharedMemoryUnavailable` with the same text.
"""

import json
import os
import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

_HELLO = struct.Struct("<I")


class SharedMemoryUnavailable(RuntimeError):
    """Ranks of one host cannot share memory here. All ranks raise this error, so all can use another transport."""


@dataclass(frozen=True)
class LocalConnections:
    """The connections of a rank to the other ranks of its host. The rank closes all of them."""

    lines: dict[int, socket.socket]
    """Rank -> the socket to it."""
    bells: tuple[int, ...]
    """The eventfd of each rank, in the order of ranks."""
    memory: int
    """Descriptor of the file that all ranks share."""
    cores: int
    """Number of different cores on which the ranks together may run."""


def meet(store: Any, rank: int, size: int, timeout_seconds: float, open_memory: Callable[[], int]) -> LocalConnections:
    """Connect ranks 0 to size - 1. Rank 0 calls `open_memory`; every rank gets a descriptor of the same file.

    store:   a torch Store whose keys nothing else uses
    Raises:  SharedMemoryUnavailable: on every rank; DistStoreError: a rank did not arrive in time; OSError: a rank left before the end
    """
    with ExitStack() as always, ExitStack() as on_error:
        card: dict[str, Any] = {}
        mine: list[int] = []
        try:
            listener, name = _listen(size)
            always.callback(listener.close)
            mine.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            card = {"name": name, "cores": sorted(os.sched_getaffinity(0))}
        except (OSError, AttributeError) as error:
            card = {"refused": f"rank {rank} of this host: {error}"}
        on_error.callback(_close_all, mine)
        cards = _exchange(store, "card", rank, size, card, timeout_seconds)
        cores = len({core for other in cards for core in other["cores"]})
        lines: dict[int, socket.socket] = {}
        on_error.callback(_hang_up, lines)
        refused = _connect(lines, rank, cards)
        try:
            mine += [open_memory()] if rank == 0 else []
        except OSError as error:
            refused = {"refused": str(error)}
        _exchange(store, "ready", rank, size, refused, timeout_seconds)
        while len(lines) < size - 1:
            _accept(listener, lines, range(rank + 1, size), timeout_seconds)
        theirs = {**_swap(lines, mine, timeout_seconds), rank: mine}
        on_error.pop_all()
    return LocalConnections(lines, tuple(theirs[other][0] for other in range(size)), theirs[0][1], cores)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _hang_up(lines: dict[int, socket.socket]) -> None:
    for line in lines.values():
        line.close()


def _listen(size: int) -> tuple[socket.socket, str]:
    name = f"paceline-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"\0{name}")
        listener.listen(size)
    except OSError:
        listener.close()
        raise
    return listener, name


def _exchange(
    store: Any, what: str, rank: int, size: int, mine: dict[str, Any], timeout_seconds: float
) -> list[dict[str, Any]]:
    """Every rank's entry under one key, in the order of ranks, unless a rank refuses."""
    store.set(f"{what}/{rank}", json.dumps(mine))
    keys = [f"{what}/{other}" for other in range(size)]
    store.wait(keys, timedelta(seconds=timeout_seconds))
    cards = [json.loads(store.get(key)) for key in keys]
    if refused := [card["refused"] for card in cards if card.get("refused")]:
        raise SharedMemoryUnavailable(f"the ranks of this host cannot share memory: {refused[0]}")
    return cards


def _connect(lines: dict[int, socket.socket], rank: int, cards: list[dict[str, Any]]) -> dict[str, str]:
    """Connect to every lower rank. The other rank need not accept first: the kernel keeps the connection in the listener's queue."""
    try:
        for other in range(rank):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            lines[other] = connection
            connection.connect(f"\0{cards[other]['name']}")
            if not _is_ours(connection):
                raise PermissionError(f"the socket of rank {other} is another user's")
            connection.sendall(_HELLO.pack(rank))
    except OSError as error:
        # The host name and boot id are equal, but the network namespace differs: containers of one machine.
        return {"refused": f"rank {rank} does not reach a rank before it over a UNIX socket: {error}"}
    return {}


def _accept(listener: socket.socket, lines: dict[int, socket.socket], expected: range, timeout_seconds: float) -> None:
    """Accept one of the ranks that are `expected`, or none."""
    listener.settimeout(timeout_seconds)
    connection, _ = listener.accept()
    connection.settimeout(timeout_seconds)
    said = connection.recv(_HELLO.size, socket.MSG_WAITALL) if _is_ours(connection) else b""
    (rank,) = _HELLO.unpack(said) if len(said) == _HELLO.size else (None,)
    if rank not in expected or rank in lines:
        connection.close()
        return
    lines[rank] = connection


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user: every user of the machine can read the names, and perhaps write to the store."""
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return bool(user == os.getuid())


def _swap(lines: dict[int, socket.socket], mine: list[int], timeout_seconds: float) -> dict[int, list[int]]:
    """Copies of the descriptors that every other rank sent in exchange for `mine`."""
    for line in lines.values():
        line.settimeout(timeout_seconds)
        socket.send_fds(line, [b"d"], mine)
    received = {}
    for other, line in lines.items():
        _, descriptors, _, _ = socket.recv_fds(line, 1, 2)
        if not descriptors:
            raise ConnectionError(f"rank {other} of this host left while the ranks were meeting")
        received[other] = descriptors
    return received
