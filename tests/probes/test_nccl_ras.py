"""NCCL's RAS service: its answers in both forms, and a server on this machine that speaks its protocol, or does not."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from paceline.probes import nccl_ras
from paceline.probes.nccl_ras import RasMissing, parse_answer, parse_json, parse_text, read


def rank(number, pid, all_reduce, **status):
    state = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    counts = {"Broadcast": 3, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": all_reduce}
    return {
        "rank": number, "host": "10.0.0.7", "pid": pid, "cuda_dev": number, "nvml_dev": number,
        "status": state | status, "collective_counts": counts,
    }  # fmt: skip


def document(ranks, missing=(), size=None, timeouts=0):
    """As NCCL 2.30 writes it (src/ras/client_support.cc, rasDumpCommsToJSON)."""
    return {
        "nccl_version": "2.30.7", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2026-11-27 15:00:00",
        "communicators_count": 1,
        "communicators": [{
            "hash": "0xae94423cfbb2ef4a", "secondary_hash": "0x1:0x2", "size": size or len(ranks) + len(missing),
            "ranks_count": len(ranks), "missing_ranks_count": len(missing), "ranks": list(ranks), "missing_ranks": list(missing),
        }],
        "ras": {"collection_time_sec": 0.001, "timeouts_count": timeouts},
    }  # fmt: skip


GONE = {
    "rank": 2, "host": "10.0.0.7", "pid": 72, "cuda_dev": 2, "nvml_dev": 2,
    "status": {"unresponsive": True, "considered_dead": False},
}  # fmt: skip
DOCUMENT = document([rank(0, 70, 41), rank(1, 71, 40), rank(3, 73, 41, async_error=6)], [GONE], timeouts=1)
# Headings, rows and sentences are those of NCCL's client_support.cc; hosts, processes and counts are made up.
TEXT = """NCCL version 2.27.5 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       3-4         8         8   RUNNING  INCOMPLETE,MISMATCH
    1         2         1         4         4         8   RUNNING  ERROR

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 72 on node 10.0.0.7 managing GPU 2

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 2 -- GPU 2 managed by process 72 on node 10.0.0.7

#1-0 (00a079b828ff1a70) ERROR
  Asynchronous error on 1 rank
  Rank 3 reported Remote process error -- GPU 3 (NVML 7) managed by process 73 on node 10.0.0.7

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  5 ranks have launched up to operation 6650
  Rank 1 has launched up to operation 6649 -- GPU 1 managed by process 71 on node 10.0.0.7
  Rank 6 has not launched any operations -- GPU 2 managed by process 82 on node 10.0.0.8

"""


def test_a_document_has_the_counts_of_each_rank_and_who_gave_no_data():
    (one,) = parse_json(json.dumps(DOCUMENT)).communicators
    assert {known.pid: known.counts["AllReduce"] for known in one.ranks} == {70: 41, 71: 40, 73: 41}
    assert one.missing == (RasMissing(pid=72, host="10.0.0.7"),) and one.size == 4 and not one.is_whole
    assert one.most["AllReduce"] == 41
    assert {known.pid: known.error for known in one.ranks if known.error} == {73: "asynchronous error 6"}


def test_the_text_form_names_the_odd_ranks():
    answer = parse_text(TEXT)
    first, second = sorted(answer.communicators, key=lambda one: -one.size)
    assert {known.pid: dict(known.counts) for known in first.ranks} == {71: {"AllReduce": 6649}, 82: {"AllReduce": 0}}
    assert first.most == {"AllReduce": 6650} and first.missing == (RasMissing(pid=72, host="10.0.0.7"),)
    assert [(known.pid, known.error) for known in second.ranks] == [(73, "Remote process error")]
    assert answer.silent == (RasMissing(pid=72, host="10.0.0.7"),)


def test_several_ranks_of_one_count_stand_below_it():
    text = TEXT.replace(
        "  Rank 1 has launched up to operation 6649 -- GPU 1",
        "  2 ranks have launched up to operation 6649\n  Rank 0 -- GPU 0 managed by process 70 on node 10.0.0.7\n  Rank 1 -- GPU 1",
    )
    first = max(parse_text(text).communicators, key=lambda one: one.size)
    assert {known.pid: known.counts["AllReduce"] for known in first.ranks} == {70: 6649, 71: 6649, 82: 0}


@pytest.mark.parametrize("whole", [json.dumps(DOCUMENT, indent=2), TEXT])
def test_an_answer_that_is_cut_off_is_none(whole):
    for length in range(0, len(whole.rstrip()) - 1, 7):
        cut = whole[:length]
        if "\nWarnings\n" in cut:
            continue
        with pytest.raises(ValueError):
            parse_answer(cut)


@pytest.mark.parametrize(
    "hostile",
    [
        "", "{}", "[]", '{"communicators": 3}', "[" * 100_000, '{"communicators": ' + "[" * 100_000, "HTTP/1.1 400 Bad Request\r\n\r\n",
        json.dumps({"communicators": [{"ranks": [{}] * (1 << 17 | 1)}]}),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(hostile):
    with pytest.raises(ValueError):
        parse_answer(hostile)


@pytest.mark.parametrize("value", [None, "x", -1, 1.5, True, [], {}, 10**400])
def test_a_value_of_another_kind_is_not_taken(value):
    broken = document([rank(0, 70, 41) | {"pid": value, "host": value, "collective_counts": {"AllReduce": value}}])
    (one,) = parse_json(json.dumps(broken)).communicators
    assert all(isinstance(known.pid, int) and isinstance(known.host, str) for known in one.ranks)
    assert all(isinstance(count, int) and count >= 0 for count in one.most.values())


# ---------------------------------------------------------------------------------------------------------------- asking


class Service:
    """Takes connections as NCCL's thread does, and does with each what it is told."""

    def __init__(self, *behaviours):
        self.behaviours = list(behaviours)
        self.commands = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.open = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.open.append(connection)
            behave = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
            threading.Thread(target=behave, args=(self, connection), daemon=True).start()

    def close(self):
        self.server.close()
        for connection in self.open:
            connection.close()


@contextmanager
def service(*behaviours):
    one = Service(*behaviours)
    try:
        yield one
    finally:
        one.close()


def answers(text, knows_json=True):
    def behave(one, connection):
        with connection, connection.makefile("rwb", buffering=0) as lines:
            for line in lines:
                command = line.decode().strip()
                one.commands.append(command)
                if command.startswith("CLIENT PROTOCOL"):
                    lines.write(b"SERVER PROTOCOL 2\n")
                elif command == "STATUS":
                    lines.write(text.encode())
                    return
                elif command.startswith("SET FORMAT") and not knows_json:
                    lines.write(b"ERROR: Unknown command SET FORMAT json\n")
                else:
                    lines.write(b"OK\n")

    return behave


def says_nothing(one, connection):
    while connection.recv(4096):
        pass


def drips(one, connection):
    connection.recv(4096)
    connection.sendall(b"SERVER PROTOCOL 2\n")
    while True:
        try:
            connection.sendall(b"{")
        except OSError:
            return
        time.sleep(0.05)


def drips_at_once(one, connection):
    connection.recv(4096)
    while True:
        try:
            connection.sendall(b"S")
        except OSError:
            return
        time.sleep(0.05)


def floods(one, connection):
    connection.recv(4096)
    connection.sendall(b"SERVER PROTOCOL 2\nOK\nOK\n")
    try:
        while True:
            connection.sendall(b"x" * (1 << 20))
    except OSError:
        return


def test_a_port_is_held_for_the_ranks_and_takes_no_connection_from_them():
    def as_nccl(port, *options):
        listening = socket.socket()
        for option in options:
            listening.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            listening.bind(("127.0.0.1", port))
            listening.listen()
        except OSError:
            listening.close()
            raise
        return listening

    held = nccl_ras.RasPort()
    port = int(held.address.rpartition(":")[2])
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1.0)
    with pytest.raises(OSError):
        as_nccl(port, socket.SO_REUSEADDR)
    with as_nccl(port, socket.SO_REUSEADDR, socket.SO_REUSEPORT) as one:
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", port), 10.0):
                one.accept()[0].close()
    held.release()


@pytest.mark.parametrize(("said", "configured"), [("NCCL_RAS_ADDR=localhost:7\n", True), ("NCCL_DEBUG=INFO\n", False)])
def test_a_configuration_file_of_nccl_is_not_overruled(tmp_path, said, configured):
    (tmp_path / ".nccl.conf").write_text(said)
    assert nccl_ras.configured_in_a_file({"HOME": str(tmp_path)}) is configured
    assert nccl_ras.configured_in_a_file({"NCCL_CONF_FILE": str(tmp_path / ".nccl.conf")}) is configured
    assert not nccl_ras.configured_in_a_file({})


def test_one_question_is_asked_and_nothing_is_changed():
    with service(answers(json.dumps(DOCUMENT))) as one:
        answer = read(one.address, 10.0)
    assert not answer.reason and len(answer.communicators) == 1 and answer.timeouts == 1
    assert one.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "STATUS"]


def test_an_older_nccl_answers_in_text():
    with service(answers(TEXT, knows_json=False)) as one:
        assert len(read(one.address, 10.0).communicators) == 2


def test_a_stopped_process_is_passed_over_for_another_one():
    with service(says_nothing, answers(json.dumps(DOCUMENT))) as one:
        assert not read(one.address, 10.0).reason


@pytest.mark.parametrize("behave", [says_nothing, drips, drips_at_once])
def test_what_does_not_answer_in_time_is_not_judged(behave, monkeypatch):
    monkeypatch.setattr(nccl_ras, "_LEFT_OPEN_SECONDS", 0.0)
    with service(behave) as one:
        began = time.monotonic()
        answer = read(one.address, 0.4)
        took = time.monotonic() - began
    assert answer.reason == "it did not answer within 0.4 s" and not answer.communicators
    # Each byte of a trickle would begin a limit of its own anew: 256 of them take 12 s.
    assert took < 10.0


def test_a_flood_ends_at_its_bound(monkeypatch):
    monkeypatch.setattr(nccl_ras, "_MOST_BYTES", 1 << 22)
    with service(floods) as one:
        assert "more than 4194304 bytes" in read(one.address, 30.0).reason


def test_another_service_on_the_port_is_no_answer():
    def web(one, connection):
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.close()

    with service(web) as one:
        assert read(one.address, 10.0).reason == "it is not NCCL's RAS service"


def test_a_port_without_a_service_is_a_reason():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert read(f"127.0.0.1:{port}").reason


@pytest.mark.parametrize(
    "address", ["", "localhost", ":28028", "localhost:", "localhost:x", "localhost:70000", "localhost:0"]
)
def test_an_address_that_is_none_is_a_reason(address):
    assert "is no host:port" in read(address).reason
