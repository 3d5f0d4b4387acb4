"""TCP connections as the kernel's sock_diag tells them. Recorded on kernel 6.18: 1000 bytes sent, none read."""

import os
import socket
import struct

import pytest

from paceline.probes.sockets import parse_datagram, parse_message, parse_tcp_info, read_sockets


def message(recorded, name) -> bytes:
    return bytes.fromhex(recorded(name))


def test_a_connection_with_unread_bytes(recorded):
    found = parse_message(message(recorded, "inet_diag_v4.hex"))
    assert (found.state, found.local, found.remote) == ("established", "127.0.0.1", "127.0.0.1")
    assert (found.local_port, found.remote_port, found.inode) == (32871, 45068, 395698)
    assert (found.receive_queue_bytes, found.send_queue_bytes) == (1000, 0)
    assert (found.info.received_bytes, found.info.rto_ms, found.info.congestion_window) == (1000, 200.0, 10)
    assert found.info.min_rtt_ms == pytest.approx(0.018)


def test_a_connection_over_ipv6(recorded):
    found = parse_message(message(recorded, "inet_diag_v6.hex"))
    assert (found.local, found.remote, found.receive_queue_bytes) == ("::1", "::1", 1000)


def test_ipv4_inside_ipv6_is_ipv4(recorded):
    data = bytearray(message(recorded, "inet_diag_v6.hex"))
    data[24:40] = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 7])
    assert parse_message(bytes(data)).remote == "10.0.0.7"


def test_the_tcp_info_of_an_older_kernel_lacks_its_end(recorded):
    whole = message(recorded, "inet_diag_v4.hex")
    older = parse_tcp_info(bytes(104))
    assert older.retransmits == 0 and older.delivery_rate is None and older.received_bytes is None
    assert parse_tcp_info(bytes(50)) is None
    with pytest.raises(ValueError):
        parse_message(whole[:40])


def test_a_datagram_ends_the_dump_or_carries_the_kernels_refusal():
    header = struct.Struct("=IHHII")
    payload = b"x" * 72
    assert parse_datagram(header.pack(16 + 72, 20, 2, 1, 0) + payload) == ([payload], False)
    assert parse_datagram(header.pack(20, 3, 2, 1, 0) + bytes(4)) == ([], True)
    with pytest.raises(OSError, match="Operation not permitted"):
        parse_datagram(header.pack(20, 2, 0, 1, 0) + struct.pack("=i", -1))


@pytest.mark.parametrize("family,address", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_unread_bytes_are_seen_at_the_end_that_does_not_read(family, address):
    with socket.socket(family) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip(f"no {address} here")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as sender, listener.accept()[0] as receiver:
            sender.sendall(b"x" * 777)
            inodes = {name: os.fstat(end.fileno()).st_ino for name, end in (("s", sender), ("r", receiver))}
            found = read_sockets(inodes.values())
    assert found[inodes["r"]].receive_queue_bytes == 777
    assert found[inodes["s"]].info.acked_bytes >= 777
    assert len(found) == 2


def test_no_inode_asks_nobody():
    assert read_sockets(()) == {}
