"""What an emulated network really delivers: throughput and round trip between two hosts, as a plain TCP program sees them."""

import json
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from paceline.emulate.hosts import Hosts
from paceline.emulate.keeper import program

_CHUNK_BYTES = 1 << 18
# A token bucket begins full, and TCP begins slowly: neither is the rate.
_WARM_UP_SECONDS = 0.5


def throughput_mbit(hosts: Hosts, source: int, target: int, *, seconds: float = 2.0) -> float:
    """Payload that arrives, in 10^6 bits per second, on one connection, after it has warmed up for half a second.

    Holds:  a little less than the rate of the slower link: headers take about 4 % of it
    """
    with _served(hosts, target, "sink") as (port, server):
        _client(hosts, source, "source", hosts.address(target), port, str(_WARM_UP_SECONDS + seconds))
        return float(server.communicate(timeout=30)[0].split()[-1])


def round_trip_ms(hosts: Hosts, source: int, target: int, *, count: int = 20) -> float:
    """Median time of one byte there and one back."""
    with _served(hosts, target, "echo") as (port, _):
        return float(_client(hosts, source, "ask", hosts.address(target), port, str(count)))


@contextmanager
def _served(hosts: Hosts, index: int, what: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    server = hosts.run_in(index, [*program("main", "measure"), what], stdout=subprocess.PIPE, text=True)
    with server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip(), server
        finally:
            server.kill()


def _client(hosts: Hosts, index: int, *words: str) -> str:
    with hosts.run_in(index, [*program("main", "measure"), *words], stdout=subprocess.PIPE, text=True) as client:
        return str(client.communicate(timeout=60)[0]).strip()


def main(words: Sequence[str]) -> int:
    """One end of a measurement, inside a host: sink, echo, source ADDRESS PORT SECONDS, or ask ADDRESS PORT COUNT."""
    if words[0] in ("sink", "echo"):
        with socket.create_server(("", 0)) as server:
            _say(str(server.getsockname()[1]))
            connection, _ = server.accept()
        with connection:
            _sink(connection) if words[0] == "sink" else _echo(connection)
        return 0
    with socket.create_connection((words[1], int(words[2])), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _source(connection, float(words[3])) if words[0] == "source" else _ask(connection, int(words[3]))
    return 0


def _sink(connection: socket.socket) -> None:
    """Count what comes after the warm-up, between the first and the last arrival."""
    started = first = last = None
    count = 0
    while chunk := connection.recv(_CHUNK_BYTES):
        last = time.monotonic()
        started = started or last
        if first is not None:
            count += len(chunk)
        elif last - started >= _WARM_UP_SECONDS:
            first = last
    _say(f"{count * 8 / 1e6 / (last - first) if first and last and last > first else 0.0:.3f}")


def _echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while byte := connection.recv(1):
        connection.sendall(byte)


def _source(connection: socket.socket, seconds: float) -> None:
    chunk, end = bytes(_CHUNK_BYTES), time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(chunk)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)


def _ask(connection: socket.socket, count: int) -> None:
    times = []
    for _ in range(count):
        sent = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        times.append(time.monotonic() - sent)
    _say(json.dumps(statistics.median(times) * 1000))


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())
