"""The TCP connections of the ranks in a snapshot, each with the host at its other end."""

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import replace

from paceline.diagnosis.snapshots import Socket
from paceline.launch.inspect.rank_snapshot import RankSetting
from paceline.probes.sockets import TcpSocket, read_sockets

_MOST = 64
# The queue before a slow link is full while gradients are sent, and empty while the ranks compute: one sample could miss it.
_SAMPLES = 5
_APART_SECONDS = 0.04


def sockets_of(
    settings: Mapping[int, RankSetting | None], host: str, hosts_by_address: Mapping[str, str]
) -> dict[int, tuple[tuple[Socket, ...] | None, str]]:
    """Rank -> its connections, or None with the reason why they could not be read.

    A connection between hosts is sampled several times, in 0.2 s. The result is the sample with the most waiting bytes.
    """
    found: dict[int, tuple[tuple[Socket, ...] | None, str]] = {}
    readable = {}
    for rank, setting in settings.items():
        if setting is None or setting.descriptors is None:
            found[rank] = (None, "")
        elif setting.same_network is False:
            found[rank] = (None, "sockets: the rank is in another network namespace than its agent")
        else:
            readable[rank] = setting.descriptors.inodes
    try:
        several_hosts = len(set(hosts_by_address.values())) > 1
        connections = _fullest(frozenset().union(*readable.values()), _SAMPLES if several_hosts else 1)
    except (OSError, ValueError) as error:
        return found | dict.fromkeys(readable, (None, f"sockets: the kernel does not tell ({error})"))
    for rank, inodes in readable.items():
        mine = [connections[inode] for inode in sorted(inodes) if inode in connections]
        mine.sort(key=_waiting_bytes, reverse=True)
        found[rank] = (tuple(plain_socket(one, host, hosts_by_address) for one in mine[:_MOST]), "")
    return found


def _fullest(inodes: frozenset[int], samples: int) -> dict[int, TcpSocket]:
    """The sample of each connection with the most waiting bytes; of equal samples, the last."""
    fullest: dict[int, TcpSocket] = {}
    for number in range(samples):
        if number:
            time.sleep(_APART_SECONDS)
        for inode, connection in read_sockets(inodes).items():
            if inode not in fullest or _waiting_bytes(connection) >= _waiting_bytes(fullest[inode]):
                fullest[inode] = connection
    return fullest


def _waiting_bytes(connection: TcpSocket) -> int:
    return connection.receive_queue_bytes + connection.send_queue_bytes


def plain_socket(connection: TcpSocket, host: str, hosts_by_address: Mapping[str, str]) -> Socket:
    """One connection in the form of a Case."""
    info = connection.info
    bare = Socket(
        local=endpoint(connection.local, connection.local_port),
        remote=endpoint(connection.remote, connection.remote_port),
        state=connection.state,
        receive_queue_bytes=connection.receive_queue_bytes,
        send_queue_bytes=connection.send_queue_bytes,
        peer_host=_host_at(connection, host, hosts_by_address),
    )
    if info is None:
        return bare
    return replace(
        bare,
        unacked=info.unacked,
        backoff=info.backoff,
        retransmits=info.retransmits,
        lost=info.lost,
        rto_ms=info.rto_ms,
        rtt_ms=info.rtt_ms,
        min_rtt_ms=info.min_rtt_ms,
        delivery_rate=info.delivery_rate,
        not_sent_bytes=info.not_sent_bytes,
        busy_ms=info.busy_ms,
        window_limited_ms=info.window_limited_ms,
        sent_bytes=info.acked_bytes,
        received_bytes=info.received_bytes,
        last_sent_ms=info.last_sent_ms,
        last_received_ms=info.last_received_ms,
        congestion_window=info.congestion_window,
    )


def endpoint(address: str, port: int) -> str:
    """Address and port as one text.

    Holds:  endpoint("10.0.0.1", 80) == "10.0.0.1:80"; endpoint("::1", 80) == "[::1]:80"
    """
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _host_at(connection: TcpSocket, host: str, hosts_by_address: Mapping[str, str]) -> str | None:
    if (known := hosts_by_address.get(connection.remote)) is not None:
        return known
    here = connection.remote == connection.local or ipaddress.ip_address(connection.remote).is_loopback
    return host if here else None
