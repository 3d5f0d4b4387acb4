"""TCP ports and addresses: the process that holds a port, whether a port is free here, and the result of a connection attempt."""

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_LISTENING = "0A"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningSocket:
    """One listening line of /proc/net/tcp or tcp6."""

    address: str
    """Local address."""
    port: int
    """Local port."""
    inode: int
    """Inode of the socket."""
    uid: int
    """User who opened it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that listens on a port."""

    port: int
    """The port."""
    address: str
    """The address on which it listens."""
    pid: int | None = None
    """Its process id; None: another user's process, or one in another namespace."""
    command: str = ""
    """Its command line."""

    def __str__(self) -> str:
        where = f"{self.address}:{self.port}"
        return (
            f"{where} held by pid {self.pid} ({self.command})"
            if self.pid
            else f"{where} held by a process that this user cannot see"
        )


class Bind(StrEnum):
    """Result of binding a listening socket."""

    FREE = "free"
    IN_USE = "in use"
    NOT_LOCAL = "address belongs to another host"
    UNRESOLVED = "name does not resolve"
    FORBIDDEN = "not allowed"
    UNKNOWN = "unknown"


class Contact(StrEnum):
    """Result of a connection attempt, in the words that a waiting host prints."""

    CONNECTED = "connected"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    UNRESOLVED = "name does not resolve"
    NO_ROUTE = "no route"
    RESET = "closed by the other side"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to connect."""

    address: str
    """The address."""
    port: int
    """The port."""
    contact: Contact
    """How it ended."""
    detail: str = ""
    """The system's own text."""

    def __str__(self) -> str:
        return f"{self.address}:{self.port} {self.contact.value}"


_BIND_ERRORS = {
    errno.EADDRINUSE: Bind.IN_USE,
    errno.EADDRNOTAVAIL: Bind.NOT_LOCAL,
    errno.EACCES: Bind.FORBIDDEN,
    errno.EPERM: Bind.FORBIDDEN,
}
_CONTACT_ERRORS = {
    errno.ECONNREFUSED: Contact.REFUSED,
    errno.ETIMEDOUT: Contact.TIMED_OUT,
    errno.EHOSTUNREACH: Contact.NO_ROUTE,
    errno.ENETUNREACH: Contact.NO_ROUTE,
    errno.EHOSTDOWN: Contact.NO_ROUTE,
    errno.ECONNRESET: Contact.RESET,
    errno.ECONNABORTED: Contact.RESET,
    errno.EPIPE: Contact.RESET,
}


def parse_listening(text: str) -> tuple[ListeningSocket, ...]:
    """The listening sockets of /proc/net/tcp or /proc/net/tcp6.

    Source:  Linux Documentation/networking/proc_net_tcp.rst; addresses are hexadecimal words in machine byte order
    """
    sockets = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTENING:
            continue
        address, port = fields[1].rsplit(":", 1)
        sockets.append(
            ListeningSocket(address=_address(address), port=int(port, 16), uid=int(fields[7]), inode=int(fields[9]))
        )
    return tuple(sockets)


def holder_of(port: int, address: str | None = None, *, by_name: bool = False) -> Holder | None:
    """The process that listens on `port`, on `address` or on every address; None if there is none.

    `by_name`: its command is its name alone, without arguments, which may hold secrets and may be long in coming.
    """
    for found in _listening():
        if found.port == port and (address is None or found.address in (address, "0.0.0.0", "::")):
            pid = _pid_of_socket(found.inode)
            command = "" if not pid else _name(pid) if by_name else _command(pid)
            return Holder(port=port, address=found.address, pid=pid, command=command)
    return None


def try_bind(address: str, port: int) -> Bind:
    """Result of listening on `address:port`; the socket is closed at once."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        return Bind.UNRESOLVED
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
            # Two sockets may be bound to one port with SO_REUSEADDR; only one of them may listen.
            probe.listen(1)
        except OSError as error:
            return _BIND_ERRORS.get(error.errno or 0, Bind.UNKNOWN)
    return Bind.FREE


def is_local_address(address: str) -> bool:
    """Whether a name or address is one of this machine's own: the kernel lets a socket be bound to it."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_can_bind(family, where) for family, _, _, _, where in found)


def is_loopback(address: str) -> bool:
    """Whether a name or address leads to this machine only, so that no other machine can connect there."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback for _, _, _, _, where in found)


def free_port(address: str = "127.0.0.1") -> int:
    """A port that was free a moment ago; another process may take it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def try_connect(address: str, port: int, timeout_seconds: float) -> Attempt:
    """Result of one blocking connection attempt; the connection is closed at once."""
    try:
        with socket.create_connection((address, port), timeout=timeout_seconds):
            return Attempt(address=address, port=port, contact=Contact.CONNECTED)
    except OSError as error:
        return attempt_failed(address, port, error)


def attempt_failed(address: str, port: int, error: BaseException) -> Attempt:
    """The attempt that ended with this exception, for callers that connect in their own way (asyncio)."""
    return Attempt(address=address, port=port, contact=_contact(error), detail=str(error))


def _contact(error: BaseException) -> Contact:
    if isinstance(error, socket.gaierror):
        return Contact.UNRESOLVED
    if isinstance(error, TimeoutError):
        return Contact.TIMED_OUT
    if isinstance(error, OSError) and error.errno in _CONTACT_ERRORS:
        return _CONTACT_ERRORS[error.errno]
    # asyncio joins the errors of several addresses into one OSError without an errno.
    text = str(error).lower()
    return next(
        (contact for words, contact in (("refused", Contact.REFUSED), ("no route", Contact.NO_ROUTE)) if words in text),
        Contact.UNKNOWN,
    )


def _address(words: str) -> str:
    parts = [struct.pack("=I", int(words[start : start + 8], 16)) for start in range(0, len(words), 8)]
    found = ipaddress.ip_address(b"".join(parts))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _listening() -> Iterator[ListeningSocket]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            yield from parse_listening(Path(table).read_text())
        except OSError:
            continue


def _pid_of_socket(inode: int) -> int | None:
    wanted = f"socket:[{inode}]"
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            with os.scandir(f"/proc/{pid}/fd") as descriptors:
                if any(_link(entry.path) == wanted for entry in descriptors):
                    return pid
        except OSError:
            continue
    return None


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "gone"


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    text = " ".join(word.decode(errors="replace") for word in words if word)
    return text if len(text) <= 100 else text[:97] + "..."


def _can_bind(family: int, where: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(where)
    except OSError:
        return False
    return True
