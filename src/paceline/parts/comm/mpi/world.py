"""MPI in this process: it loads mpi4py, reads MPI.COMM_WORLD, gives torch a store if no address was given, and ends MPI.

mpi4py is the one library beyond torch and the standard library that comm loads, and only if the script uses the backend.
"""

from __future__ import annotations

import atexit
import json
import socket
import sys
import weakref
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torch._C._distributed_c10d import HashStore, Store, TCPStore

from ....clone import install_command
from ....process_identity import machine_key
from .thread import MpiThread

_ADDRESS_BYTES = 4096
_REACHED_IN_SECONDS = 5.0


class MpiWorld:
    """MPI.COMM_WORLD of this process, and the thread that calls MPI."""

    def __init__(self, mpi: Any) -> None:
        self.mpi = mpi
        self.rank: int = mpi.COMM_WORLD.Get_rank()
        self.size: int = mpi.COMM_WORLD.Get_size()
        self.thread = MpiThread(mpi)
        self._connections: dict[tuple[str, int], Any] = {}
        self.groups: weakref.WeakSet[Any] = weakref.WeakSet()
        atexit.register(self._end)
        self._excepthook = sys.excepthook
        sys.excepthook = self._abort_at_exit

    def connection(self, store: Store) -> Any:
        """A connection to that store's server, for all groups of this process and for no other thread.

        The thread that calls MPI looks there, and must not queue behind one that waits. Made when a group is: a rank that leaves may find
        the server gone. One only, because torch asks the name service about every connection, which can take seconds.
        """
        server: Any = store
        while hasattr(server, "underlying_store"):
            server = server.underlying_store
        if not isinstance(server, TCPStore):
            return server
        address = (server.host, server.port)
        try:
            self._connections[address].check([""])
        except (KeyError, RuntimeError):
            # None yet, or to a server that has gone since.
            self._connections[address] = (
                server.clone()
                if hasattr(server, "clone")
                else TCPStore(*address, is_master=False, wait_for_workers=False)
            )
        return self._connections[address]

    def _end(self) -> None:
        for group in tuple(self.groups):
            group.leave()
        if not self.thread.stop():
            self._say_that_ranks_differ()
            self.mpi._set_abort_status(1)

    def _say_that_ranks_differ(self) -> None:
        sys.stderr.write(
            f"[rank {self.rank} of MPI] an exchange never came to its end, so MPI cannot be left in order: all ranks are ended\n"
        )

    def _abort_at_exit(self, kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        # MPI_Finalize waits for every rank, and the others wait for this one inside their exchange. With a status set, mpi4py calls
        # MPI_Abort at the very end instead, and mpirun ends the others. The same is in `python -m mpi4py`.
        if self.size > 1:
            self.mpi._set_abort_status(1)
        self._excepthook(kind, error, where)


class Departures:
    """The ranks that have left a group. A rank that waits for a rank in MPI_Finalize, or one that has ended, learns of it here.

    `token`: a text that only this group has, the same on all its ranks.
    """

    def __init__(self, here: MpiWorld, store: Store, rank: int, token: str) -> None:
        self._store: Any = here.connection(store)
        self._key = f"paceline/mpi/{token}/left"
        self._rank = rank

    def say(self) -> None:
        """Tell the group that this rank has left."""
        try:
            self._store.set(self._key, str(self._rank))
        except RuntimeError:
            # The store has gone with the rank that held it; the others see that too.
            pass

    def words(self) -> str:
        """The text in an error about the rank that has left; empty while none has."""
        try:
            return f"rank {self._store.get(self._key).decode()} has left" if self._store.check([self._key]) else ""
        except RuntimeError:
            return "the rank that holds the group's store has left"


_world: MpiWorld | None = None


def world() -> MpiWorld:
    """MPI of this process; the first call loads and initialises it.

    Raises:  RuntimeError: no mpi4py, no MPI library that it can load, or an MPI that allows calls from one thread only
    """
    global _world
    if _world is None:
        mpi = _load()
        if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
            raise RuntimeError(
                _words(
                    "X03",
                    "MPI was initialised for one thread",
                    "mpi4py.MPI was imported with mpi4py.rc.threads off, or with a thread level below serialized",
                    "leave mpi4py.rc as it is, or set mpi4py.rc.thread_level = 'serialized'",
                )
            )
        _world = MpiWorld(mpi)
    return _world


def _load() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise RuntimeError(
            _words(
                "X03",
                "the backend `paceline_mpi` (`mpi`) needs mpi4py, and it cannot be imported here",
                f"{type(error).__name__}: {error}",
                f"{install_command('mpi')}, and an MPI library such as Open MPI; or the backend paceline, which needs neither",
            )
        ) from error
    except RuntimeError as error:
        raise RuntimeError(
            _words(
                "X03",
                "mpi4py is there, but no MPI library that it could load",
                str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
                "apt-get install openmpi-bin, or load your cluster's module of MPI; or the backend paceline, which needs none",
            )
        ) from error
    return MPI


def check_started_by_mpi(here: MpiWorld, size: int) -> None:
    """Refuse if MPI knows this process only.

    Raises:  RuntimeError: the group has several ranks, and each of them is alone in its MPI.COMM_WORLD
    """
    if here.size == 1 and size > 1:
        raise RuntimeError(
            _words(
                "X03",
                f"these {size} ranks were not started by MPI, so they cannot talk over it",
                f"MPI.COMM_WORLD of this process has 1 rank, the group has {size}",
                f"paceline run --no-python mpirun -n {size} python SCRIPT; or without MPI: the backend paceline",
            )
        )


def _words(code: str, what: str, saw: str, next: str) -> str:
    return f"error[{code}]: {what}\n  saw       {saw}\n  next      {next}\n  more      paceline help {code}"


def rendezvous(url: str, timeout: timedelta, **_: Any) -> Iterator[tuple[Store, int, int]]:
    """The result of torch's rendezvous, from MPI: MPI's rank and size, and the store of rank 0, whose address it sends by MPI.

    If MPI knows this process only, RANK and MASTER_ADDR are used as for any backend; without them the group has one rank.
    """
    here = world()
    if here.size == 1:
        yield from _alone(url, timeout)
        return
    _warn_of_other_numbers(url, here)
    yield _store(here, timeout), here.rank, here.size


def _alone(url: str, timeout: timedelta) -> Iterator[tuple[Store, int, int]]:
    from torch.distributed.rendezvous import rendezvous as torchs

    rank, size = _asked(url)
    try:
        yield next(iter(torchs("env://", rank, size, timeout=timeout)))
    except ValueError:
        # Neither RANK nor an address: nobody started this process as one of several.
        yield HashStore(), 0, 1


def _asked(url: str) -> tuple[int, int]:
    query = parse_qs(urlsplit(url).query)
    return int(query.get("rank", ["-1"])[0]), int(query.get("world_size", ["-1"])[0])


def _warn_of_other_numbers(url: str, here: MpiWorld) -> None:
    asked = _asked(url)
    if any(asked[index] not in (-1, numbers) for index, numbers in enumerate((here.rank, here.size))):
        import warnings

        warnings.warn(
            f"rank and world_size {asked} are not used: MPI says rank {here.rank} of {here.size}",
            RuntimeWarning,
            stacklevel=4,
        )


def _store(here: MpiWorld, timeout: timedelta) -> Store:
    """A TCPStore in rank 0, and its clients in the other ranks."""
    seconds = timeout.total_seconds()
    letter = bytearray(_ADDRESS_BYTES)
    server = None
    if here.rank == 0:
        server = TCPStore("localhost", 0, None, True, timeout, wait_for_workers=False)
        text = json.dumps([server.port, machine_key(), *_addresses()]).encode()
        letter[: len(text)] = text
    world_comm, kind = here.mpi.COMM_WORLD, here.mpi.BYTE
    here.thread.finish(lambda: [world_comm.Ibcast([letter, len(letter), kind], root=0)], seconds)
    if server is not None:
        return server
    port, host, *addresses = json.loads(letter.rstrip(b"\0"))
    # The loopback of another host may answer too, with something else.
    candidates = ["127.0.0.1", *addresses] if host == machine_key() else addresses
    return TCPStore(_reachable(candidates, port), port, None, False, timeout)


def _addresses() -> list[str]:
    """Addresses at which other hosts may reach this one, the most likely first."""
    found = []
    for name in (socket.gethostname(), socket.getfqdn()):
        try:
            found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        except OSError:
            continue
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which address leads out of this host.
            probe.connect(("192.0.2.1", 9))
            found.append(probe.getsockname()[0])
        except OSError:
            pass
    return [address for address in dict.fromkeys(found) if not address.startswith(("127.", "::1", "fe80"))][:16]


def _reachable(addresses: list[str], port: int) -> str:
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=_REACHED_IN_SECONDS).close()
        except OSError:
            continue
        return address
    raise RuntimeError(f"the store of MPI rank 0 does not answer at any of {', '.join(addresses)}, port {port}")
