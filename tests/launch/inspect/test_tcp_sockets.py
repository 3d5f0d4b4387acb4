"""Which instant of a connection a snapshot shows."""

from types import SimpleNamespace

import pytest

from paceline.launch.inspect import tcp_sockets as socket_reader
from paceline.probes.process_status import Descriptors
from paceline.probes.sockets import TcpSocket

INODE = 7
HOSTS = {"10.0.0.1": "algo-1", "10.0.0.2": "algo-2"}


def connection(waiting_bytes: int) -> TcpSocket:
    return TcpSocket(
        inode=INODE,
        local="10.0.0.1",
        local_port=1,
        remote="10.0.0.2",
        remote_port=2,
        state="established",
        receive_queue_bytes=0,
        send_queue_bytes=waiting_bytes,
    )


@pytest.fixture
def seen(monkeypatch):
    """`seen(queues, hosts)`: the queue that is shown where the kernel shows these one after the other; None: it is closed."""

    def seen_with(queues, hosts):
        samples = iter(queues)

        def read_sockets(inodes):
            queue = next(samples)
            return {} if queue is None else {INODE: connection(queue)}

        monkeypatch.setattr(socket_reader, "read_sockets", read_sockets)
        monkeypatch.setattr(socket_reader.time, "sleep", lambda seconds: None)
        descriptors = Descriptors(count=1, inodes=frozenset({INODE}))
        setting = SimpleNamespace(descriptors=descriptors, same_network=True)
        ((sockets, reason),) = socket_reader.sockets_of({0: setting}, "algo-1", hosts).values()
        assert reason == ""
        return [socket.send_queue_bytes for socket in sockets]

    return seen_with


def test_between_hosts_the_fullest_instant_is_shown(seen):
    assert seen([0, 100, 400_000, 0, 7], HOSTS) == [400_000]


def test_a_connection_that_is_closed_meanwhile_is_still_shown(seen):
    assert seen([5, None, None, None, None], HOSTS) == [5]


def test_on_one_host_it_is_read_once(seen):
    assert seen([5], {"127.0.0.1": "algo-1"}) == [5]
