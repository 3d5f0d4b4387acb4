"""Measures what an emulated network delivers, with plain TCP and UDP programs in its hosts."""

import json
import os
import select
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.lab.emulate.links import cannot_emulate
from paceline.parts.lab.emulate.namespace_holder import program
from paceline.parts.lab.emulate.network import Delivered, DeliveredPath, wrong_paths
from paceline.parts.lab.emulate.relay import be_punctual

__all__ = ["measure_network", "round_trip_ms", "throughput_mbit"]

_CHUNK_BYTES = 1 << 18
# A token bucket starts full, and TCP starts slowly: neither shows the rate.
_WARM_UP_SECONDS = 0.5
_WARM_UP_ROUND_TRIPS = 20
_MOST_PATHS = 16
_DATAGRAM_BYTES = 200
_DATAGRAM_ON_WIRE_BITS = (_DATAGRAM_BYTES + 42) * 8
_DATAGRAMS_PER_SECOND = 8000
_DATAGRAMS_AT_A_TIME = 20
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
# On a short path, TCP queues little by itself.
_BUFFER_BYTES = 16 << 20


def measure_network(hosts: Hosts, *, seconds: float = 1.0) -> Delivered:
    """Measure from every host to the next host, all at the same time as in a ring exchange: first the round trip, then rate and loss.

    A value that is wrong is measured once more, for twice the time, before it counts: a busy machine has slow seconds.

    Units:   takes about `seconds` + 1.5, and more if the delay is long
    Holds:   one path for each host, of the first 16; a single host has none
    """
    began = time.monotonic()
    if hosts.count < 2:
        return Delivered(paths=())
    first = _measured(hosts, seconds)
    found = _measured(hosts, 2 * seconds) if wrong_paths(first.paths) else first
    return replace(found, seconds=time.monotonic() - began)


def _measured(hosts: Hosts, seconds: float) -> Delivered:
    pairs = [(index, (index + 1) % hosts.count) for index in range(min(hosts.count, _MOST_PATHS))]
    asked_ms = [2 * hosts.one_way_ms(*pair) for pair in pairs]
    round_trips = _at_once(
        hosts, "echo", "ask", [(*pair, _count(ms)) for pair, ms in zip(pairs, asked_ms, strict=True)]
    )
    rates, fraction = _rates(hosts, pairs, seconds, max(asked_ms))
    loss, count = hosts.network.loss_fraction, _datagrams(hosts.network.rate_mbit)
    losses = _at_once(hosts, "count", "scatter", [(*pair, count) for pair in pairs]) if loss else []
    paths = tuple(
        DeliveredPath(
            source=hosts.names[source],
            target=hosts.names[target],
            rate_mbit=rates[place],
            rate_mbit_asked=hosts.network.rate_mbit,
            round_trip_ms=round_trips[place],
            round_trip_ms_asked=asked_ms[place],
            lost_fraction=losses[place] if loss else None,
            lost_fraction_asked=loss,
            sent_count=count if loss else 0,
        )
        for place, (source, target) in enumerate(pairs)
    )
    return Delivered(paths=paths, relay_cpu_fraction=fraction)


def throughput_mbit(hosts: Hosts, source: int, target: int, *, seconds: float = 2.0) -> float:
    """Received payload in 10^6 bits per second, on one connection, after half a second of warm-up.

    Holds:  a little less than the rate of the slower link: headers need about 4 % of it
    """
    return _rates(hosts, [(source, target)], seconds, 2 * hosts.one_way_ms(source, target))[0][0]


def round_trip_ms(hosts: Hosts, source: int, target: int, *, count: int = 20) -> float:
    """Median time of one byte to the target and back."""
    return _at_once(hosts, "echo", "ask", [(source, target, count)])[0]


def _rates(
    hosts: Hosts, pairs: Sequence[tuple[int, int]], seconds: float, longest_ms: float
) -> tuple[list[float], float | None]:
    """The rate of each pair, and the share of one CPU that the relay used meanwhile."""
    warm_up = max(_WARM_UP_SECONDS, _WARM_UP_ROUND_TRIPS * longest_ms / 1000)
    used, began = hosts.relay_use(), time.monotonic()
    said = _at_once(hosts, "sink", "source", [(*pair, warm_up + seconds) for pair in pairs], str(warm_up), str(seconds))
    use, passed = hosts.relay_use(), time.monotonic() - began
    return said, None if used is None or use is None else (use.cpu_seconds - used.cpu_seconds) / passed


def _at_once(hosts: Hosts, serve: str, client: str, pairs: Sequence[tuple[int, int, float]], *argv: str) -> list[float]:
    """The result for each (source, target, argument of the client). The server has the result of a sink, the client all others."""
    with ExitStack() as stack:
        servers = [stack.enter_context(_started(hosts, target, serve, *argv)) for _, target, _ in pairs]
        ports = [_line(server) for server in servers]
        clients = [
            stack.enter_context(_started(hosts, source, client, hosts.address(target), port, str(argument)))
            for (source, target, argument), port in zip(pairs, ports, strict=True)
        ]
        return [float(_line(process)) for process in (servers if serve == "sink" else clients)]


@contextmanager
def _started(hosts: Hosts, index: int, *argv: str) -> Iterator[subprocess.Popen[str]]:
    # The program gets its own session. So Ctrl-C ends it through this process, without output.
    program_argv = [*program("main", "measure"), *argv]
    with hosts.run_in(index, program_argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise cannot_emulate(f"a measurement between the hosts ended without a result, with {process.wait()}")
    return line


def _count(round_trip_ms: float) -> int:
    # The count for one second, if the delay is long.
    return max(5, min(20, int(1000 / max(round_trip_ms, 1.0))))


def _datagrams(rate_mbit: float | None) -> int:
    """The number of datagrams for one second at half the rate."""
    fits = int((rate_mbit or 1000.0) * 1e6 / 2 / _DATAGRAM_ON_WIRE_BITS)
    return max(_DATAGRAMS_AT_A_TIME, min(_DATAGRAMS_PER_SECOND, fits))


# -- inside a host


def main(argv: Sequence[str]) -> int:
    """One end of a measurement: sink WARM-UP SECONDS, echo, count; or source, ask, scatter with ADDRESS PORT and SECONDS or COUNT."""
    # If the program waits for a CPU, the link seems slow.
    be_punctual(rests=argv[0] in ("echo", "ask"))
    if argv[0] in ("sink", "echo", "count"):
        with socket.create_server(("", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            _say(str(server.getsockname()[1]))
            connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if argv[0] == "sink":
                _sink(connection, float(argv[1]), float(argv[2]))
            else:
                _echo(connection) if argv[0] == "echo" else _tally(connection)
        return 0
    with socket.create_connection((argv[1], int(argv[2])), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        match argv[0]:
            case "source":
                _source(connection, float(argv[3]))
            case "ask":
                _ask(connection, int(argv[3]))
            case "scatter":
                _scatter(connection, argv[1], int(argv[3]))
    return 0


def _sink(connection: socket.socket, warm_up: float, seconds: float) -> None:
    """Count bytes after the warm-up, from arrival to arrival, until the time is over. Bytes that arrive later are not waited for."""
    started = first = last = None
    count = 0
    while chunk := connection.recv(_CHUNK_BYTES):
        last = time.monotonic()
        started = started or last
        if first is not None:
            count += len(chunk)
            if last - first >= seconds:
                break
        elif last - started >= warm_up:
            first = last
    _say(f"{count * 8 / 1e6 / (last - first) if first and last and last > first else 0.0:.3f}")


def _source(connection: socket.socket, seconds: float) -> None:
    connection.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    # Send for twice the time: the other end decides when it has enough.
    chunk, end = bytes(_CHUNK_BYTES), time.monotonic() + 2 * seconds
    try:
        while time.monotonic() < end:
            connection.sendall(chunk)
    except ConnectionError:
        return


def _echo(connection: socket.socket) -> None:
    while byte := connection.recv(1):
        connection.sendall(byte)


def _ask(connection: socket.socket, count: int) -> None:
    times = []
    for _ in range(count):
        sent = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        times.append(time.monotonic() - sent)
    _say(json.dumps(statistics.median(times) * 1000))


def _tally(connection: socket.socket) -> None:
    """Count datagrams until the other end says that it has sent all. It says so when the last datagram has had time to arrive."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as counter:
        counter.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        counter.bind(("", 0))
        connection.sendall(f"{counter.getsockname()[1]}\n".encode())
        count = 0
        while True:
            ready, _, _ = select.select([counter, connection], [], [])
            if counter in ready:
                count += bool(counter.recv(_DATAGRAM_BYTES))
            elif connection in ready:
                connection.recv(1)
                connection.sendall(f"{count}\n".encode())
                return


def _scatter(connection: socket.socket, address: str, count: int) -> None:
    port = int(connection.recv(16))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((address, port))
        gap, due = _DATAGRAMS_AT_A_TIME / count, time.monotonic()
        for number in range(count):
            if number % _DATAGRAMS_AT_A_TIME == 0:
                due += gap
                time.sleep(max(0.0, due - time.monotonic()))
            sender.send(bytes(_DATAGRAM_BYTES))
    # The TCP byte overtakes no datagram: it is sent after them on the same path.
    connection.sendall(b"x")
    arrived = int(connection.recv(16))
    _say(json.dumps(1 - arrived / count))


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())
