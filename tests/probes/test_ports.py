import errno
import os
import socket
from pathlib import Path

import pytest

from paceline.probes import ports
from paceline.probes.ports import Bind, Contact


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_listening_sockets_have_address_port_and_inode(recorded):
    found = {(one.address, one.port): one.inode for one in ports.parse_listening(recorded("net_tcp"))}
    assert found[("127.0.0.1", 49941)] == 34469
    assert ("0.0.0.0", 0x07E8) in found
    found = {(one.address, one.port): one.inode for one in ports.parse_listening(recorded("net_tcp6"))}
    assert found[("::1", 42019)] == 34470
    assert found[("::", 50605)] == 34471


def test_an_ipv4_address_inside_ipv6_is_written_as_ipv4():
    text = "header\n   0: 0000000000000000FFFF00000100007F:0050 0:0 0A 0:0 0:0 0 1000 0 99 1\n"
    (found,) = ports.parse_listening(text)
    assert (found.address, found.port, found.uid, found.inode) == ("127.0.0.1", 80, 1000, 99)


def test_the_holder_of_a_port_is_named_with_pid_and_command(listener):
    port = listener.getsockname()[1]
    holder = ports.holder_of(port)
    assert holder.pid == os.getpid()
    assert holder.command.split()[0] == Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert f"held by pid {os.getpid()}" in str(holder)
    assert ports.holder_of(port, "127.0.0.1") == holder
    assert ports.holder_of(port, "127.0.0.9") is None
    assert ports.holder_of(port, by_name=True).command == Path("/proc/self/comm").read_text().strip()


def test_a_port_is_free_or_taken_or_not_ours(listener):
    port = listener.getsockname()[1]
    assert ports.try_bind("127.0.0.1", port) is Bind.IN_USE
    assert ports.try_bind("0.0.0.0", port) is Bind.IN_USE
    assert ports.try_bind("127.0.0.1", ports.free_port()) is Bind.FREE
    assert ports.try_bind("203.0.113.7", 0) is Bind.NOT_LOCAL
    assert ports.try_bind("no-such-host.invalid", 0) is Bind.UNRESOLVED


def test_an_address_is_local_when_a_socket_can_be_bound_to_it():
    assert ports.is_local_address("localhost")
    assert ports.is_local_address("127.0.0.9")
    assert not ports.is_local_address("203.0.113.7")
    assert not ports.is_local_address("no-such-host.invalid")


def test_a_connection_attempt_says_what_it_saw(listener):
    port = listener.getsockname()[1]
    assert ports.try_connect("127.0.0.1", port, 1).contact is Contact.CONNECTED
    listener.close()
    assert str(ports.try_connect("127.0.0.1", port, 1)) == f"127.0.0.1:{port} refused"
    assert ports.try_connect("no-such-host.invalid", 1, 1).contact is Contact.UNRESOLVED


@pytest.mark.parametrize(
    ("error", "contact"),
    [
        (TimeoutError(), Contact.TIMED_OUT),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Contact.NO_ROUTE),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), Contact.NO_ROUTE),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), Contact.REFUSED),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, Connection refused"), Contact.REFUSED),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Contact.RESET),
        (socket.gaierror(-2, "Name or service not known"), Contact.UNRESOLVED),
        (OSError("something else"), Contact.UNKNOWN),
    ],
)
def test_each_error_of_a_connection_has_its_word(error, contact):
    assert ports.attempt_failed("algo-1", 29500, error).contact is contact
