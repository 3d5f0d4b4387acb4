"""torch's TCPStore, asked as a client that changes nothing: does it answer, how many clients came, which keys are there.

What is sent: VALIDATE, PING, GETNUMKEYS, CHECK, GET of a key that CHECK has found, and LIST_KEYS if the caller says that the server has it.
Never ADD (`add(key, 0)` makes the key), SET, DELETE or WAIT, and never GET of a key that is missing, for which a server without libuv
ends the connection. A query is sent whole, and the next one after its answer: a server without libuv reads a query to its end before it
does anything else, and one with libuv writes a warning into the job's log where two answers meet a connection that is closed.

Source:  torch/csrc/distributed/c10d/TCPStoreBackend.hpp, whose QueryType has the numbers (the same in torch 2.13 and 2.15; PING was added
         behind the older ones, and LIST_KEYS behind it); TCPStoreBackend.cpp and TCPStoreLibUvBackend.cpp, which read and write the same
         messages; TCPStore.hpp for init/; torch/distributed/distributed_c10d.py (_new_process_group_helper) for the names of keys
"""

import os
import re
import socket
import struct
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum

_VALIDATE, _GET, _CHECK, _GETNUMKEYS, _PING, _LIST_KEYS = 0, 3, 5, 7, 13, 17
_MAGIC = 0x3C85F7CE
_READY, _NOT_READY = b"\0", b"\1"
# Of each client that waits for the others at its start; keys of users begin with a slash.
_JOINED = "init/"
_MOST_NUMBER_BYTES = 20
# A job of 10,000 ranks has some 100,000 keys of 50 bytes.
_MOST_KEYS, _MOST_KEY_BYTES, _MOST_LIST_BYTES = 1 << 18, 1 << 16, 1 << 24
_PIECE = 1 << 16
# torch joins a name and a key by a slash, and the name of a group and of a device end with one already; gloo's keys are the number of a
# network device and a rank. Before the group stand the groups around it: /default_pg/0//1//cpu//0/3 is rank 3 of group 1.
_GLOO_ADDRESS = re.compile(r"(.*/)([^/]+)//[a-z]+//\d{1,3}/(\d{1,9})", re.ASCII)


class StoreState(StrEnum):
    """What became of the question."""

    ANSWERS = "answers"
    SILENT = "silent"
    """It takes the connection, and has not answered in time."""
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    """Nobody took the connection in time, or nobody said in time whose the name is."""
    NOT_A_STORE = "no TCPStore"
    """What it says is not what a TCPStore says."""
    FAILED = "failed"
    """Another error, such as a connection that it closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    """What a store said to one question."""

    address: str
    """host:port, as asked."""
    state: StoreState
    """What became of the question."""
    detail: str = ""
    """The error, or why an answer is not whole; empty: there is nothing more to say."""
    seconds: float = 0.0
    """How long the question took."""
    key_count: int | None = None
    """Number of its keys; None: not known."""
    joined: int | None = None
    """Clients that ever came to wait for each other: the ranks of each attempt, and torchrun's agents. None: not known, or none did."""
    keys: tuple[str, ...] | None = None
    """Its keys, sorted; None: not listed."""

    def published(self, group: str) -> frozenset[int] | None:
        """The ranks, within the group of this name, that have published their gloo address; None: not known.

        It is not known where keys are not listed, or where two programs on one store each have a group of this name. A group that is
        made again on the same store, such as by torchrun's next attempt, has the same keys: those of the earlier one are still there.

        Holds:   keys ("/default_pg/0//cpu//0/0", "/default_pg/0//1//cpu//0/3"): published("0") == {0}, published("1") == {3}
        """
        if self.keys is None:
            return None
        found: dict[str, set[int]] = {}
        for key in self.keys:
            address = _GLOO_ADDRESS.fullmatch(key)
            if address is not None and address[2] == group:
                found.setdefault(address[1], set()).add(int(address[3]))
        return frozenset(*found.values()) if len(found) < 2 else None


def ask_store(host: str, port: int, *, lists_keys: bool, timeout_seconds: float) -> StoreAnswer:
    """One question to a store, over after `timeout_seconds` at the latest. It never raises.

    `lists_keys`: the server's torch is 2.10 or newer. An older one has no LIST_KEYS and may write a line about it into the job's log.
    """
    began = time.monotonic()
    answer = StoreAnswer(address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}", state=StoreState.TIMED_OUT)
    try:
        with _connected(host, port, began + timeout_seconds) as connection:
            answer = replace(answer, state=StoreState.SILENT)
            store = _Client(connection, began + timeout_seconds)
            store.ping()
            answer = replace(answer, state=StoreState.ANSWERS)
            count = store.key_count()
            answer = replace(answer, key_count=count)
            answer = replace(answer, joined=store.number(_JOINED))
            if lists_keys and count > _MOST_KEYS:
                answer = replace(answer, detail=f"more than {_MOST_KEYS} keys are not listed")
            elif lists_keys:
                answer = replace(answer, keys=store.keys())
    except _NotAStore as error:
        answer = replace(answer, state=StoreState.NOT_A_STORE, detail=str(error))
    except ConnectionRefusedError:
        answer = replace(answer, state=StoreState.REFUSED)
    except TimeoutError:
        if answer.state is StoreState.ANSWERS:
            answer = replace(answer, detail="it has not said all in time")
    except (OSError, ValueError, OverflowError) as error:
        state = answer.state if answer.state is StoreState.ANSWERS else StoreState.FAILED
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        answer = replace(answer, state=state, detail=said)
    return replace(answer, seconds=time.monotonic() - began)


class _NotAStore(Exception):
    """No TCPStore says this."""


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    ends_at: float
    unread: bytearray = field(default_factory=bytearray)
    """What has come of an answer and was not yet looked at."""

    def ping(self) -> None:
        # A server of before VALIDATE takes the first byte for SET and the eight behind it for a length: this one it refuses.
        nonce = os.urandom(3) + b"\xff"
        self._ask(struct.pack("<BIB4s", _VALIDATE, _MAGIC, _PING, nonce))
        if self._read(4) != nonce:
            raise _NotAStore("it answers a ping with something else")

    def key_count(self) -> int:
        self._ask(bytes([_GETNUMKEYS]))
        return self._number(most=(1 << 63) - 1)

    def number(self, name: str) -> int | None:
        """The number under a key; None: the key is not there."""
        key = struct.pack("<Q", len(name)) + name.encode()
        self._ask(struct.pack("<BQ", _CHECK, 1) + key)
        found = self._read(1)
        if found not in (_READY, _NOT_READY):
            raise _NotAStore("it does not say whether a key is there")
        if found == _NOT_READY:
            return None
        self._ask(bytes([_GET]) + key)
        text = self._read(self._number(most=_MOST_NUMBER_BYTES))
        if not text.isdigit():
            raise _NotAStore(f"{name} has no number")
        return int(text)

    def keys(self) -> tuple[str, ...]:
        self._ask(bytes([_LIST_KEYS]))
        found, left = [], _MOST_LIST_BYTES
        for _ in range(self._number(most=_MOST_KEYS)):
            length = self._number(most=min(_MOST_KEY_BYTES, left))
            left -= length
            found.append(self._read(length).decode(errors="replace"))
        return tuple(sorted(found))

    def _ask(self, query: bytes) -> None:
        if self.unread:
            raise _NotAStore("it says what it was not asked")
        self.connection.settimeout(_left(self.ends_at))
        self.connection.sendall(query)

    def _number(self, most: int) -> int:
        """A size or a count, of 64 bits."""
        number: int = struct.unpack("<Q", self._read(8))[0]
        if number > most:
            raise _NotAStore(f"a size or a number of {number}")
        return number

    def _read(self, count: int) -> bytes:
        while len(self.unread) < count:
            self.connection.settimeout(_left(self.ends_at))
            piece = self.connection.recv(_PIECE)
            if not piece:
                raise ConnectionError("it closed the connection")
            self.unread += piece
        found = bytes(self.unread[:count])
        del self.unread[:count]
        return found


def _connected(host: str, port: int, ends_at: float) -> socket.socket:
    """A connection to the first address of a host that takes one. An address gets its share of the time, or a dead one takes it all."""
    addresses = _addresses(host, port, ends_at)
    for place, (family, where) in enumerate(addresses):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left(ends_at) / (len(addresses) - place))
            connection.connect(where)
            return connection
        except OSError:
            connection.close()
            if place + 1 == len(addresses):
                raise
    raise OSError("the name has no address")


def _addresses(host: str, port: int, ends_at: float) -> list[tuple[int, tuple[object, ...]]]:
    """The addresses of a host. The system may look for a name as long as it likes, so a thread waits for it, and is left behind."""
    found: Future[list[tuple[int, tuple[object, ...]]]] = Future()

    def look_up() -> None:
        try:
            known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.set_result([(family, where) for family, _, _, _, where in known])
        except (OSError, ValueError, OverflowError) as error:
            found.set_exception(error)

    threading.Thread(target=look_up, daemon=True, name="paceline-store").start()
    return found.result(_left(ends_at))


def _left(ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
