"""torch's TCPStore, asked by a client that changes nothing: real servers of both kinds, a real job, and servers that mean no good."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patient
from ports import free_port

from paceline.probes.tcp_store import StoreAnswer, StoreState, ask_store

# Enough for a machine that is busy; a question takes a millisecond.
SECONDS = 20.0

SERVER = """
import json, sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv=sys.argv[1] == "libuv")
for name in ("one", "default_pg/0//cpu//0/0", "default_pg/0//cpu//0/2", "default_pg/0//7//cpu//0/1"):
    store.set(name, name + " as it was")
print(store.port, flush=True)
for _ in sys.stdin:
    keys = sorted(store.list_keys())
    print(json.dumps([store.num_keys(), {key: store.get(key).decode() for key in keys}]), flush=True)
"""


@contextmanager
def program(code, *arguments, **environment):
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def store_of(kind):
    with program(SERVER, kind) as process:
        yield process, int(process.stdout.readline())


def content(process):
    """Number of keys and all values, as the server itself has them."""
    print(file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


KINDS = pytest.mark.parametrize("kind", ["libuv", "threads"])


@pytest.mark.process
@KINDS
def test_asking_a_hundred_times_changes_nothing_and_prints_nothing(kind):
    with store_of(kind) as (process, port):
        before = content(process)
        for _ in range(100):
            answer = ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=SECONDS)
            assert answer.state is StoreState.ANSWERS and answer.detail == ""
            assert answer.key_count == before[0] and len(answer.keys) == before[0]
        assert content(process) == before
        assert answer.address == f"127.0.0.1:{port}" and 0 < answer.seconds < SECONDS and answer.joined is None
        assert answer.published("0") == {0, 2} and answer.published("7") == {1} and answer.published("8") == frozenset()
        said, errors = process.communicate()
    assert said == errors == ""


@pytest.mark.process
@KINDS
def test_an_older_server_is_not_asked_for_its_keys(kind):
    with store_of(kind) as (_, port):
        answer = ask_store("127.0.0.1", port, lists_keys=False, timeout_seconds=SECONDS)
    assert answer.state is StoreState.ANSWERS and answer.key_count > 3
    assert answer.keys is None and answer.published("0") is None


@pytest.mark.process
@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_a_host_is_a_name_or_an_address_of_either_kind(host):
    with store_of("libuv") as (_, port):
        answer = ask_store(host, port, lists_keys=True, timeout_seconds=SECONDS)
    assert answer.state is StoreState.ANSWERS and answer.address == (
        f"[::1]:{port}" if host == "::1" else f"localhost:{port}"
    )


@pytest.mark.process
@KINDS
def test_a_stopped_server_is_silent_and_is_as_before_once_it_goes_on(kind):
    with store_of(kind) as (process, port):
        before = content(process)
        os.kill(process.pid, signal.SIGSTOP)
        for _ in range(5):
            answer = ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=0.2)
            assert (
                answer.state is StoreState.SILENT and answer.key_count is None and 0.2 <= answer.seconds < patient(2.0)
            )
        os.kill(process.pid, signal.SIGCONT)
        assert content(process) == before
        assert ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=SECONDS).state is StoreState.ANSWERS
        said, errors = process.communicate()
    assert said == errors == ""


# The first line comes when the rank is at the store, the second when it has its group, the third when it has the next one.
RANK = """
import os, sys
import torch.distributed as dist
rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
print("at the store", flush=True)
sys.stdin.readline()
dist.init_process_group("gloo", store=dist.PrefixStore("default_pg", store), rank=rank, world_size=2)
print("has a group", flush=True)
sys.stdin.readline()
dist.new_group([1, 0], backend="gloo")
print("has another", flush=True)
sys.stdin.readline()
"""


@pytest.mark.process
def test_a_job_of_two_ranks_is_seen_arriving():
    port = free_port()

    def asked():
        return ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=SECONDS)

    def until(holds):
        ends_at = time.monotonic() + patient(30.0)
        while not holds(answer := asked()) and time.monotonic() < ends_at:
            time.sleep(0.05)
        return answer

    with program(RANK, "0", str(port)) as first:
        alone = until(lambda answer: answer.joined == 1)
        assert (alone.state, alone.key_count, alone.keys, alone.published("0")) == (
            "answers",
            1,
            ("init/",),
            frozenset(),
        )
        with program(RANK, "1", str(port)) as second:
            assert [one.stdout.readline() for one in (first, second)] == ["at the store\n"] * 2
            print(file=first.stdin, flush=True)
            half = until(lambda answer: answer.published("0"))
            assert (half.joined, half.published("0")) == (2, {0})
            print(file=second.stdin, flush=True)
            assert [one.stdout.readline() for one in (first, second)] == ["has a group\n"] * 2
            assert asked().published("0") == {0, 1} and asked().published("1") == frozenset()
            print(file=second.stdin, flush=True)
            # new_group sorts its ranks, so this is rank 1 of the group too.
            assert until(lambda answer: answer.published("1")).published("1") == {1}
            print(file=first.stdin, flush=True)
            assert [one.stdout.readline() for one in (first, second)] == ["has another\n"] * 2
            assert asked().published("0") == asked().published("1") == {0, 1}


@pytest.mark.parametrize(
    ("keys", "group", "ranks"),
    [
        (None, "0", None),
        ((), "0", set()),
        (("init/", "/0//cpu//0/0", "/0//cpu//0/1"), "0", {0, 1}),
        (("/default_pg/0//cpu//0/4", "/default_pg/0//cpu//1/4", "/default_pg/0//cuda//0/5"), "0", {4, 5}),
        (("/default_pg/0//ad56679d//cpu//0/1",), "ad56679d", {1}),
        (("/default_pg/0//1//cpu//0/1",), "0", set()),
        (("/a/0//cpu//0/0", "/b/0//cpu//0/1"), "0", None),
        (("/default_pg/0//cpu//0/x", "/default_pg/0//cpu//0/", "default_pg", "/0//cpu//0/1/2", "/0//cuda//cuda:0//0"), "0", set()),
        (("/default_pg/0//cpu//0/" + "9" * 5000, "/0//cpu//0/٣", "\n/0//cpu//0/1"), "0", set()),
    ],
)  # fmt: skip
def test_who_has_published_is_read_from_the_names_of_keys(keys, group, ranks):
    assert StoreAnswer(address="x:1", state=StoreState.ANSWERS, keys=keys).published(group) == ranks


# ------------------------------------------------------------------------------------------------------- nobody, and others


def test_a_port_without_a_listener_refuses():
    answer = ask_store("127.0.0.1", free_port(), lists_keys=True, timeout_seconds=SECONDS)
    assert answer.state is StoreState.REFUSED and answer.detail == ""


def test_a_connection_that_nobody_takes_times_out():
    with socket.socket() as full, socket.socket() as waits, socket.socket() as waits_too:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for other in (waits, waits_too):
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        answer = ask_store("127.0.0.1", full.getsockname()[1], lists_keys=True, timeout_seconds=0.3)
    assert answer.state is StoreState.TIMED_OUT and 0.3 <= answer.seconds < patient(2.0)


def test_a_name_that_is_not_found_in_time_times_out(monkeypatch):
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(30) and [])
    answer = ask_store("store.example", 29500, lists_keys=True, timeout_seconds=0.2)
    found.set()
    assert answer.state is StoreState.TIMED_OUT and answer.seconds < patient(2.0)


@pytest.mark.parametrize(
    ("host", "port"),
    [("no.such.host.invalid", 1), ("a" * 300, 1), ("", -1), ("127.0.0.1", 1 << 16), ("a\0b", 1), ("ü" * 70, 1)],
)
def test_what_is_no_address_is_an_error_in_words(host, port):
    answer = ask_store(host, port, lists_keys=True, timeout_seconds=SECONDS)
    assert answer.state in (StoreState.FAILED, StoreState.REFUSED) and (
        answer.detail or answer.state is StoreState.REFUSED
    )


# --------------------------------------------------------------------------------------------------------- hostile servers


@contextmanager
def server(behave):
    """A server that does with each connection what it is told, until the connection is closed."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve():
        try:
            while True:
                connection, _ = listening.accept()
                with connection:
                    try:
                        behave(connection, ended)
                    except (OSError, struct.error):
                        continue
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(30)


def says(*answers):
    """One of these answers to each query after the ping, which is answered right."""

    def behave(connection, ended):
        connection.sendall(connection.recv(100)[6:10])
        for answer in answers:
            assert connection.recv(1000)
            connection.sendall(answer)
        ended.wait(30)

    return behave


def closes(connection, ended):
    connection.shutdown(socket.SHUT_RDWR)


def endless(connection, ended):
    while not ended.is_set():
        connection.sendall(b"x" * (1 << 16))


def endless_list(connection, ended):
    """A list of as many keys as there may be, each as long as one may be."""
    connection.sendall(connection.recv(100)[6:10])
    for answer in (number(9), MISSING, number(1 << 18)):
        connection.recv(1000)
        connection.sendall(answer)
    while not ended.is_set():
        connection.sendall(number(1 << 16) + b"k" * (1 << 16))


def drips(piece, pings=False):
    def behave(connection, ended):
        query = connection.recv(100)
        if pings:
            connection.sendall(query[6:10])
        while not ended.wait(0.05):
            connection.sendall(piece)

    return behave


def web(connection, ended):
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def echo(connection, ended):
    while query := connection.recv(1000):
        connection.sendall(query)


def number(value):
    return struct.pack("<Q", value)


HERE, MISSING = b"\0", b"\1"
BAD = {
    "closes at once": (closes, StoreState.FAILED, None, None),
    "says nothing": (lambda connection, ended: ended.wait(30), StoreState.SILENT, None, None),
    "endless bytes": (endless, StoreState.NOT_A_STORE, None, None),
    "a web server": (web, StoreState.NOT_A_STORE, None, None),
    "an echo": (echo, StoreState.NOT_A_STORE, None, None),
    "drips before the ping": (drips(b"\xff"), StoreState.NOT_A_STORE, None, None),
    "a drip of one byte": (lambda c, ended: (c.sendall(b"x"), ended.wait(30)), StoreState.SILENT, None, None),
    "nothing after the ping": (says(), StoreState.ANSWERS, None, None),
    "drips after the ping": (drips(b"\0", pings=True), StoreState.NOT_A_STORE, 0, None),
    "closes after the ping": (lambda c, ended: c.sendall(c.recv(100)[6:10]), StoreState.ANSWERS, None, None),
    "a negative number of keys": (says(number((1 << 64) - 1)), StoreState.NOT_A_STORE, None, None),
    "a huge number of keys": (says(number(1 << 62), MISSING), StoreState.ANSWERS, 1 << 62, None),
    "neither here nor missing": (says(number(1), b"\7"), StoreState.NOT_A_STORE, 1, None),
    "a huge number of clients": (says(number(1), HERE, number(1 << 60)), StoreState.NOT_A_STORE, 1, None),
    "no number of clients": (says(number(1), HERE, number(4) + b"four"), StoreState.NOT_A_STORE, 1, None),
    "an empty number": (says(number(1), HERE, number(0)), StoreState.NOT_A_STORE, 1, None),
    "more than it was asked": (says(number(1) + b"and more"), StoreState.NOT_A_STORE, 1, None),
    "a huge list": (says(number(1), HERE, number(1) + b"2", number(1 << 63)), StoreState.NOT_A_STORE, 1, 2),
    "a huge key": (says(number(1), HERE, number(1) + b"2", number(1) + number(1 << 40)), StoreState.NOT_A_STORE, 1, 2),
    "a list that is cut off": (says(number(2), HERE, number(1) + b"2", number(2) + number(3) + b"key"), StoreState.ANSWERS, 2, 2),
    "an endless list": (endless_list, StoreState.NOT_A_STORE, 9, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_no_server_makes_it_wait_raise_or_grow(kind):
    behave, state, count, joined = BAD[kind]
    with server(behave) as port:
        tracemalloc.start()
        try:
            answer = ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=1.0)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (answer.state, answer.key_count, answer.joined, answer.keys) == (state, count, joined, None)
    assert answer.seconds < patient(3.0) and peak < 64 << 20
    assert answer.detail or state is StoreState.SILENT


@settings(max_examples=40)
@given(
    pieces=st.lists(
        st.one_of(st.binary(max_size=40), st.integers(0, 3).map(number), st.just(HERE), st.just(MISSING)), max_size=6
    )
)
def test_random_answers_end_in_an_answer(pieces):
    def behave(connection, ended):
        connection.sendall(connection.recv(100)[6:10])
        for piece in pieces:
            connection.recv(1000)
            connection.sendall(piece)

    with server(behave) as port:
        answer = ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=0.25)
    # The ping is answered; on a busy machine not in time.
    assert answer.state in (StoreState.ANSWERS, StoreState.NOT_A_STORE, StoreState.SILENT)
    assert answer.seconds < patient(2.0)


def test_only_questions_are_sent_one_at_a_time_and_each_as_a_whole():
    sent = []
    key = number(5) + b"init/"

    def behave(connection, ended):
        for answer in (None, number(1), HERE, number(1) + b"2", number(1) + key):
            sent.append(connection.recv(1000))
            connection.sendall(sent[0][6:10] if answer is None else answer)
        sent.append(connection.recv(1000))

    with server(behave) as port:
        answer = ask_store("127.0.0.1", port, lists_keys=True, timeout_seconds=SECONDS)
    assert (answer.joined, answer.keys) == (2, ("init/",))
    # VALIDATE and PING, GETNUMKEYS, CHECK of one key, GET of it, LIST_KEYS, and the end.
    assert sent[0][:6] == struct.pack("<BIB", 0, 0x3C85F7CE, 13) and len(sent[0]) == 10
    assert sent[1:] == [b"\x07", b"\x05" + number(1) + key, b"\x03" + key, b"\x11", b""]


def test_a_key_that_is_missing_is_not_read():
    sent = []

    def behave(connection, ended):
        for answer in (None, number(0), MISSING):
            sent.append(connection.recv(1000))
            connection.sendall(sent[0][6:10] if answer is None else answer)
        sent.append(connection.recv(1000))

    with server(behave) as port:
        assert ask_store("127.0.0.1", port, lists_keys=False, timeout_seconds=SECONDS).joined is None
    assert sent[3:] == [b""]
