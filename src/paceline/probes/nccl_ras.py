"""NCCL's RAS service: what the threads that NCCL runs in each rank know of all ranks. One question over TCP, which changes nothing.

Any process of the job answers for all, as JSON from NCCL 2.28.7 on, before that as text, in which only the odd ranks are named.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_ADDRESS = "localhost:28028"
LIMIT_SECONDS = 1.0
# All ranks of a host listen on one port and the kernel chooses one. A stopped one says nothing, so another is tried.
_GREETING_SECONDS = 0.3
# How long NCCL collects, in whole seconds: the least there is. It waits up to five more.
_COLLECT_SECONDS = 1
# NCCL 2.30 reads its client's end of file in a loop while it collects, with a whole CPU. So a connection is closed after its answer.
_LEFT_OPEN_SECONDS = 8.0
_MOST_BYTES = 1 << 24
_MOST_RANKS = 1 << 17
_ABOVE_ALL_COUNTS = 1 << 64
# NCCL's ncclSuccess and ncclInProgress.
_NO_ERROR = (0, 7)

_HEADER = re.compile(r"#(\d{1,9})-(\d{1,9}) \(([0-9a-f]{1,16})\) (\w+)\Z")
_TABLE_ROW = re.compile(r" *(\d{1,9}) +(\d{1,9}) +\d{1,9} +[\d-]{1,20} +(\d{1,9}) +\d{1,9} +\w+ +[\w,]+\Z")
_PROCESS = re.compile(r"managed by process (\d{1,9}) on node (\S{1,64})\Z")
_JOB_PROCESS = re.compile(r"  Process (\d{1,9}) on node (\S{1,64}) managing GPU")
_RANK = re.compile(
    r"  Rank (\d{1,9})\b(?: has launched up to operation (\d{1,20})| (has not launched any) operations| reported ([\w ]{1,40}?))? --"
)
_COUNT = re.compile(r"  \d{1,9} ranks have (?:launched up to operation (\d{1,20})|(not launched any) operations)\Z")
_REPORTED = re.compile(r"  \d{1,9} ranks reported ([\w ]{1,40})\Z")
_OPERATION = re.compile(r"  Communicator ranks have different (?:(\w{1,20}) operation|collective operation) counts\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RasRank:
    """One rank of a communicator, as NCCL's threads know it."""

    pid: int
    """Process id on its host; -1: not known."""
    host: str
    """Address of its host, as NCCL has it."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Collective -> how many it has launched; they need not be over. Text names only those in which ranks differ."""
    error: str = ""
    """What NCCL has found wrong in this rank; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasMissing:
    """A rank that gave no data."""

    pid: int
    """Process id on its host; -1: not known."""
    host: str
    """Address of its host, as NCCL has it."""
    unresponsive: bool = True
    """Its threads do not answer. False: they do, and know nothing of this communicator."""
    dead: bool = False
    """They have not answered for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasCommunicator:
    """One communicator of the job."""

    key: str
    """The same in each answer, and of this communicator alone."""
    size: int
    """Its ranks; 0: not known."""
    ranks: tuple[RasRank, ...] = ()
    """Those that gave data. Text has the odd ones alone."""
    missing: tuple[RasMissing, ...] = ()
    """Those that gave none."""
    most: Mapping[str, int] = field(default_factory=dict)
    """Collective -> the highest count of a rank, also of those that are not named."""

    @property
    def is_whole(self) -> bool:
        """Whether every rank is here."""
        return self.size > 0 and len(self.ranks) == self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class RasAnswer:
    """What the service said."""

    communicators: tuple[RasCommunicator, ...] = ()
    """The communicators."""
    silent: tuple[RasMissing, ...] = ()
    """Processes that gave no data, without their communicator."""
    timeouts: int = 0
    """How often NCCL's threads gave up waiting for each other while they collected."""
    reason: str = ""
    """Why there is no answer; empty: there is one."""


class RasPort:
    """A port for the RAS service of all ranks of a host, held from now on for processes of this user alone.

    Each rank binds it as NCCL does, with SO_REUSEPORT. A socket that does not listen gets no connection, so the ranks get them all.
    """

    def __init__(self) -> None:
        self._held = socket.socket()
        # Without SO_REUSEADDR: with it, everybody could bind what does not listen.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._held.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._held.getsockname()[1]}"

    def release(self) -> None:
        """Anybody may have the port."""
        self._held.close()


def configured_in_a_file(environ: Mapping[str, str]) -> bool:
    """Whether a configuration file of NCCL says something about the service: a variable would overrule it."""
    home = environ.get("HOME")
    own = environ.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else "")
    for name in ("/etc/nccl.conf", own):
        with suppress(OSError):
            if name and "NCCL_RAS_" in Path(name).read_text(errors="replace"):
                return True
    return False


def parse_answer(said: str) -> RasAnswer:
    """The answer to STATUS, in either form.

    Raises:  ValueError: it is none, or it is cut off
    """
    return parse_json(said) if said.lstrip()[:1] == "{" else parse_text(said)


def parse_json(said: str) -> RasAnswer:
    """As NCCL 2.28.7 and later write it.

    Raises:  ValueError: it is none, or it is cut off
    """
    try:
        document = json.loads(said)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(document, dict) or not isinstance(document.get("communicators"), list):
        raise ValueError("it has no list of communicators")
    found = []
    left = _MOST_RANKS
    for one in document["communicators"]:
        ranks, missing = _dicts(one, "ranks"), _dicts(one, "missing_ranks")
        left -= len(ranks) + len(missing)
        if left < 0:
            raise ValueError(f"it has more than {_MOST_RANKS} ranks")
        known = tuple(
            RasRank(pid=_whole(rank, "pid", -1), host=_word(rank, "host"), counts=_counts(rank), error=_error(rank))
            for rank in ranks
        )
        found.append(
            RasCommunicator(
                key=f"{_word(one, 'hash')}/{_word(one, 'secondary_hash')}",
                size=_whole(one, "size", 0),
                ranks=known,
                missing=tuple(
                    RasMissing(
                        pid=_whole(rank, "pid", -1),
                        host=_word(rank, "host"),
                        unresponsive=_flag(rank, "unresponsive"),
                        dead=_flag(rank, "considered_dead"),
                    )
                    for rank in missing
                ),
                most=_highest(rank.counts for rank in known),
            )
        )
    ras = document.get("ras")
    return RasAnswer(communicators=tuple(found), timeouts=_whole(ras, "timeouts_count", 0))


def parse_text(said: str) -> RasAnswer:
    """As every NCCL since 2.24 writes it.

    Raises:  ValueError: it is none, or it is cut off
    """
    if "Communicators..." not in said or "\nErrors\n" not in said or "\nWarnings\n" not in said:
        raise ValueError("it is no status of NCCL, or it is cut off")
    sizes: dict[int, int] = {}
    sections: dict[tuple[str, str], list[str]] = {}
    silent: list[RasMissing] = []
    current: list[str] = []
    for line in said.splitlines():
        if (header := _HEADER.match(line)) is not None:
            key = f"{header[3]}/{sizes.get(int(header[1]), 0)}"
            current = sections.setdefault((key, header[4]), [])
            if len(sections) > _MOST_RANKS:
                raise ValueError(f"it has more than {_MOST_RANKS} communicators")
        elif (row := _TABLE_ROW.match(line)) is not None:
            sizes[int(row[1])] = int(row[3])
        elif (process := _JOB_PROCESS.match(line)) is not None:
            silent.append(RasMissing(pid=int(process[1]), host=process[2]))
        else:
            current.append(line)
    keys = dict.fromkeys(key for key, _ in sections)
    return RasAnswer(
        communicators=tuple(_from_sections(key, sections) for key in keys),
        silent=tuple(dict.fromkeys(silent)),
    )


def read(address: str = DEFAULT_ADDRESS, limit_seconds: float = LIMIT_SECONDS) -> RasAnswer:
    """One question to the service at "host:port". Without an answer within the limit there is a reason instead; it never raises."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return RasAnswer(reason=f"{address} is no host:port")
    ends_at = time.monotonic() + limit_seconds
    try:
        return parse_answer(_answer(host.strip("[]"), int(port), ends_at).decode("utf-8", "replace"))
    except TimeoutError:
        return RasAnswer(reason=f"it did not answer within {limit_seconds:g} s")
    except (OSError, ValueError) as error:
        return RasAnswer(reason=str(error) or type(error).__name__)


# ---------------------------------------------------------------------------------------------------------------- asking


def _answer(host: str, port: int, ends_at: float) -> bytes:
    connection = _greeted(host, port, ends_at)
    received = b""
    try:
        connection.sendall(f"TIMEOUT {_COLLECT_SECONDS}\nSET FORMAT json\nSTATUS\n".encode())
        while True:
            connection.settimeout(_left(ends_at))
            part = connection.recv(1 << 18)
            received += part
            if not part:
                break
            if len(received) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    except TimeoutError:
        # Daemon, because it stays as long as NCCL collects.
        threading.Thread(target=_close_later, args=(connection,), daemon=True, name="paceline-ras").start()
        raise
    except BaseException:
        connection.close()
        raise
    connection.close()
    # The words to TIMEOUT and SET FORMAT, which an older NCCL does not know.
    _, _, rest = received.partition(b"\n")
    _, _, document = rest.partition(b"\n")
    return document


def _greeted(host: str, port: int, ends_at: float) -> socket.socket:
    """A connection to a process that answers."""
    while True:
        connection = socket.create_connection((host, port), _left(ends_at))
        greeted_at = min(time.monotonic() + _GREETING_SECONDS, ends_at)
        try:
            connection.sendall(b"CLIENT PROTOCOL 2\n")
            said = b""
            while b"\n" not in said and len(said) < 256:
                connection.settimeout(_left(greeted_at))
                if not (part := connection.recv(256 - len(said))):
                    break
                said += part
        except TimeoutError:
            connection.close()
            _left(ends_at)
            continue
        except BaseException:
            connection.close()
            raise
        if not said.upper().startswith(b"SERVER PROTOCOL "):
            connection.close()
            raise ValueError("it is not NCCL's RAS service")
        return connection


def _left(ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _close_later(connection: socket.socket) -> None:
    ends_at = time.monotonic() + _LEFT_OPEN_SECONDS
    with connection, suppress(OSError):
        while True:
            connection.settimeout(_left(ends_at))
            if not connection.recv(1 << 18):
                return


# --------------------------------------------------------------------------------------------------------------- reading


def _from_sections(key: str, sections: Mapping[tuple[str, str], Iterable[str]]) -> RasCommunicator:
    """What the sections about one communicator say: the odd ranks, by pid."""
    missing = []
    errors: dict[tuple[int, str], str] = {}
    counts: dict[tuple[int, str], dict[str, int]] = {}
    most: dict[str, int] = {}
    for line in sections.get((key, "INCOMPLETE"), ()):
        if _RANK.match(line) and (process := _PROCESS.search(line)) is not None:
            missing.append(RasMissing(pid=int(process[1]), host=process[2]))
    reported = ""
    for line in sections.get((key, "ERROR"), ()):
        if (several := _REPORTED.match(line)) is not None:
            reported = several[1]
        elif (rank := _RANK.match(line)) is not None and (process := _PROCESS.search(line)) is not None:
            errors[int(process[1]), process[2]] = rank[4] or reported
    operation, count = "", None
    for line in sections.get((key, "MISMATCH"), ()):
        if (named := _OPERATION.match(line)) is not None:
            operation, count = named[1] or "collective", None
        elif "have different status" in line:
            operation = ""
        elif (several := _COUNT.match(line)) is not None and operation:
            count = 0 if several[2] else int(several[1])
            most[operation] = max(most.get(operation, 0), count)
        elif (rank := _RANK.match(line)) is not None and operation:
            own = int(rank[2]) if rank[2] else 0 if rank[3] else count
            if own is None or own >= _ABOVE_ALL_COUNTS:
                continue
            most[operation] = max(most.get(operation, 0), own)
            if (process := _PROCESS.search(line)) is not None:
                counts.setdefault((int(process[1]), process[2]), {})[operation] = own
    return RasCommunicator(
        key=key,
        size=int(key.rpartition("/")[2]),
        ranks=tuple(
            RasRank(pid=pid, host=host, counts=counts.get((pid, host), {}), error=errors.get((pid, host), ""))
            for pid, host in dict.fromkeys([*counts, *errors])
        ),
        missing=tuple(missing),
        most=most,
    )  # fmt: skip


def _dicts(document: Any, key: str) -> list[dict[str, Any]]:
    found = document.get(key) if isinstance(document, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _counts(rank: Mapping[str, Any]) -> dict[str, int]:
    counts = rank.get("collective_counts")
    if not isinstance(counts, dict):
        return {}
    return {
        name[:40]: count
        for name, count in [*counts.items()][:64]
        if isinstance(count, int) and 0 <= count < _ABOVE_ALL_COUNTS
    }


def _highest(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    most: dict[str, int] = {}
    for of_rank in counts:
        for name, count in of_rank.items():
            most[name] = max(most.get(name, 0), count)
    return most


def _error(rank: Mapping[str, Any]) -> str:
    status = rank.get("status")
    for key, what in (("async_error", "asynchronous error"), ("init_state", "error at its start")):
        number = _whole(status, key, 0)
        if number not in _NO_ERROR:
            return f"{what} {number}"
    return ""


def _whole(document: Any, key: str, otherwise: int) -> int:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, int) and abs(value) < 1 << 63 else otherwise


def _word(document: Any, key: str) -> str:
    value = document.get(key) if isinstance(document, dict) else None
    return value[:64] if isinstance(value, str) else ""


def _flag(rank: Mapping[str, Any], key: str) -> bool:
    status = rank.get("status")
    return isinstance(status, dict) and status.get(key) is True
