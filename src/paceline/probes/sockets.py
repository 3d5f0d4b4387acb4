"""TCP connections of processes with the kernel's data about each (tcp_info), through netlink sock_diag. It needs no privileges."""

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _INFO = 4, 20, 2
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48s")
_MESSAGE = struct.Struct("=BBBB")
_QUEUES = struct.Struct("=IIIII")  # expires, receive queue, send queue, user, inode
_ATTRIBUTE = struct.Struct("=HH")
_MESSAGE_BYTES = 72
_RECEIVE_BYTES = 1 << 18
_STATES = (
    "?", "established", "syn-sent", "syn-received", "fin-wait-1", "fin-wait-2", "time-wait", "closed", "close-wait", "last-ack",
    "listen", "closing", "new-syn-received",
)  # fmt: skip
# A connection in TIME_WAIT belongs to no process, and a listening socket has sent nothing.
_WANTED_STATES = sum(1 << state for state in (1, 2, 3, 4, 5, 8, 9, 11))


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpInfo:
    """Part of the kernel's struct tcp_info, with its meanings. None: an older kernel does not have it."""

    backoff: int
    """Retransmission timeouts in a row."""
    rto_ms: float
    """Retransmission timeout."""
    unacked: int
    """Segments sent and not acknowledged."""
    lost: int
    """Segments that count as lost."""
    last_sent_ms: int
    """Time since the last data was sent."""
    last_received_ms: int
    """Time since the last data was received."""
    rtt_ms: float
    """Smoothed round trip."""
    congestion_window: int
    """Congestion window in segments."""
    retransmits: int
    """Segments sent again so far."""
    acked_bytes: int | None = None
    """Bytes acknowledged so far."""
    received_bytes: int | None = None
    """Bytes received so far."""
    not_sent_bytes: int | None = None
    """Bytes in the queue that were not sent yet."""
    min_rtt_ms: float | None = None
    """Shortest round trip."""
    delivery_rate: int | None = None
    """Delivery rate in bytes per second."""
    busy_ms: float | None = None
    """Time with data in flight."""
    window_limited_ms: float | None = None
    """Time in which the receiver's window limited sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSocket:
    """One connection as the kernel has it. Addresses are in the form of ipaddress; an IPv4 address inside IPv6 is given as IPv4."""

    inode: int
    """Inode of the socket."""
    state: str
    """State of the connection."""
    local: str
    """Local address."""
    local_port: int
    """Local port."""
    remote: str
    """Remote address."""
    remote_port: int
    """Remote port."""
    receive_queue_bytes: int
    """Bytes that the process has not read."""
    send_queue_bytes: int
    """Bytes that the other end has not acknowledged."""
    info: TcpInfo | None = None
    """Further values; None: the kernel gave none."""


def parse_message(payload: bytes) -> TcpSocket:
    """One inet_diag_msg with its attributes.

    Raises:  ValueError: it is cut off
    Source:  linux/inet_diag.h
    """
    if len(payload) < _MESSAGE_BYTES:
        raise ValueError(f"{len(payload)} bytes are no inet_diag_msg")
    family, state, _, _ = _MESSAGE.unpack_from(payload)
    local_port, remote_port = struct.unpack_from(">HH", payload, 4)
    _, receive_queue, send_queue, _, inode = _QUEUES.unpack_from(payload, 52)
    info = next((parse_tcp_info(value) for kind, value in _attributes(payload[_MESSAGE_BYTES:]) if kind == _INFO), None)
    return TcpSocket(
        inode=inode,
        state=_STATES[state] if state < len(_STATES) else str(state),
        local=_address(family, payload[8:24]),
        local_port=local_port,
        remote=_address(family, payload[24:40]),
        remote_port=remote_port,
        receive_queue_bytes=receive_queue,
        send_queue_bytes=send_queue,
        info=info,
    )


def parse_tcp_info(data: bytes) -> TcpInfo | None:
    """The kernel's struct tcp_info, which only grows at its end; None if even its oldest part is truncated.

    Source:  linux/tcp.h, struct tcp_info
    """
    if len(data) < 104:
        return None
    microseconds = _number(data, 168, 8), _number(data, 176, 8)
    min_rtt = _number(data, 148, 4)
    return TcpInfo(
        backoff=data[4],
        rto_ms=struct.unpack_from("=I", data, 8)[0] / 1000,
        unacked=struct.unpack_from("=I", data, 24)[0],
        lost=struct.unpack_from("=I", data, 32)[0],
        last_sent_ms=struct.unpack_from("=I", data, 44)[0],
        last_received_ms=struct.unpack_from("=I", data, 52)[0],
        rtt_ms=struct.unpack_from("=I", data, 68)[0] / 1000,
        congestion_window=struct.unpack_from("=I", data, 80)[0],
        retransmits=struct.unpack_from("=I", data, 100)[0],
        acked_bytes=_number(data, 120, 8),
        received_bytes=_number(data, 128, 8),
        not_sent_bytes=_number(data, 144, 4),
        # The kernel writes all ones before it has a measurement.
        min_rtt_ms=None if min_rtt is None or min_rtt == 0xFFFFFFFF else min_rtt / 1000,
        delivery_rate=_number(data, 160, 8),
        busy_ms=None if microseconds[0] is None else microseconds[0] / 1000,
        window_limited_ms=None if microseconds[1] is None else microseconds[1] / 1000,
    )


def read_sockets(inodes: Iterable[int], *, timeout_seconds: float = 0.3) -> dict[int, TcpSocket]:
    """inode -> connection, of those given; only this process's own network namespace is seen.

    Raises:  OSError: the kernel refuses, or does not answer in time
    """
    wanted = frozenset(inodes)
    found: dict[int, TcpSocket] = {}
    if not wanted:
        return found
    ends_at = time.monotonic() + timeout_seconds
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            netlink.send(_request(family))
            for payload in _dump(netlink, ends_at):
                connection = parse_message(payload)
                if connection.inode in wanted:
                    found[connection.inode] = connection
    return found


def parse_datagram(data: bytes) -> tuple[list[bytes], bool]:
    """The payloads of one netlink datagram, and whether the dump ends with it.

    Raises:  OSError: the kernel answered with an error
    """
    payloads: list[bytes] = []
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, place)
        if length < _HEADER.size:
            break
        payload = data[place + _HEADER.size : place + length]
        if kind == _DONE:
            return payloads, True
        if kind == _ERROR:
            code = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
            raise OSError(code, os.strerror(code))
        if kind == _SOCK_DIAG_BY_FAMILY:
            payloads.append(payload)
        place += (length + 3) & ~3
    return payloads, False


def _request(family: int) -> bytes:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _WANTED_STATES, bytes(48))
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + body


def _dump(netlink: socket.socket, ends_at: float) -> Iterator[bytes]:
    while True:
        netlink.settimeout(max(ends_at - time.monotonic(), 0.001))
        payloads, done = parse_datagram(netlink.recv(_RECEIVE_BYTES))
        yield from payloads
        if done:
            return


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, place)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[place + _ATTRIBUTE.size : place + length]
        place += (length + 3) & ~3


def _address(family: int, data: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(data[:4]))
    address = ipaddress.IPv6Address(data)
    return str(address.ipv4_mapped or address)


def _number(data: bytes, place: int, size: int) -> int | None:
    if len(data) < place + size:
        return None
    return int.from_bytes(data[place : place + size], "little" if struct.pack("=H", 1)[0] else "big")
