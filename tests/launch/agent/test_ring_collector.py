"""Rings as the agent reads them, also those that a crashing rank has written over."""

import os
import socket
import threading

import pytest

from paceline.launch.agent.ring_collector import RingCollector
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import HEADER_BYTES, Cell, RecordKind, RingWriter, parse_records


def ring(tmp_path, number: int) -> RingWriter:
    writer = RingWriter(tmp_path / f"0-{number}.ring", capacity=256)
    writer.cells[Cell.PID], writer.cells[Cell.RANK] = 1000 + number, number
    return writer


def collector(tmp_path) -> RingCollector:
    return RingCollector(tmp_path, RunDirectory(tmp_path / "run"), "h", 0)


@pytest.mark.parametrize("cell", list(Cell))
@pytest.mark.parametrize("value", [0, 1, 77, 2**63, 2**64 - 1])
def test_a_cell_that_was_written_over_costs_that_rank_and_no_other(tmp_path, cell, value):
    broken, sound = ring(tmp_path, 0), ring(tmp_path, 1)
    rings = collector(tmp_path)
    rings.drain()
    broken.write(1, 0, 1, 2)
    rings.drain()
    broken.cells[cell] = value
    for _ in range(2):
        sound.write(1, 0, 1, 2)
        rings.drain()
        assert 1001 in rings.pids()
        rings.progress(), rings.exiting(), rings.newly_joined()
    rings.close()
    broken.drop()
    sound.drop()


def test_rings_may_appear_while_another_thread_looks(tmp_path):
    rings, done = collector(tmp_path), threading.Event()
    writers = []

    def look() -> None:
        while not done.is_set():
            rings.look()

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(100):
        writers.append(ring(tmp_path, number))
        rings.pids(), rings.progress(), rings.exiting()
    done.set()
    looking.join()
    rings.look()
    assert sorted(rings.pids()) == [1000 + number for number in range(100)]
    rings.close()
    for writer in writers:
        writer.drop()


def test_an_attempt_that_is_over_leaves_no_ring_behind(tmp_path):
    writer = ring(tmp_path, 0)
    rings = collector(tmp_path)
    rings.drain()
    rings.close()
    writer.drop()
    assert not list(tmp_path.glob("*.ring"))


@pytest.mark.parametrize("training", [1, 2])
def test_a_second_process_under_a_ranks_number_does_not_hide_how_far_the_rank_is(tmp_path, training):
    # torch's asynchronous checkpoint in a process of its own joins a process group as the same rank.
    writers = {number: ring(tmp_path, number) for number in (1, 2)}
    for writer in writers.values():
        writer.cells[Cell.RANK] = 0
    writers[training].cells[Cell.STEP_COUNT] = 7
    rings = collector(tmp_path)
    rings.look()
    assert [(rank["step_count"], rank["pid"]) for rank in rings.progress().values()] == [(7, 1000 + training)]
    rings.close()
    for writer in writers.values():
        writer.drop()


TEXTS = (
    '["group", 1, "0", [0, 1], "gloo"]',
    '["signature", 1, {"operation": "allreduce", "reduce_op": "SUM", "dtype": "float32", "shape": [4]}]',
    '["site", 2, "/home/me/train.py", 41, "step", []]',
)


def test_calls_are_taken_once_with_the_step_that_they_belong_to(tmp_path):
    writer = ring(tmp_path, 1)
    rings = collector(tmp_path)
    rings.look()
    assert rings.take_calls() == []
    (tmp_path / "0-1.texts").write_text("\n".join(TEXTS) + "\n")
    writer.write(RecordKind.STEP, 0, 12, 99)
    writer.write(RecordKind.CALL, 1, 7, 1234, 1, 1, 2, 16, 7)
    writer.write(RecordKind.CALL, 11, 0, 1235, 1, 0, 0, 4, 8)
    (found,) = rings.take_calls()
    assert (found.rank, found.group, found.group_ranks, found.backend, found.lost) == (1, "0", (0, 1), "gloo", 0)
    reduced, sent = found.calls
    assert (reduced.operation, reduced.reduce_op, reduced.shape, reduced.step, reduced.index) == (
        *("all_reduce", "SUM", (4,)),
        *(12, 7),
    )
    assert str(reduced.site) == "/home/me/train.py:41 in step"
    assert (sent.operation, sent.index, sent.dtype, sent.site) == ("send", 0, None, None)
    assert rings.take_calls() == []
    # The recording keeps the step and no call.
    rings.drain()
    (segment,) = (tmp_path / "run").rglob("rank_1.seg")
    assert [record.kind for record in parse_records(segment.read_bytes()[HEADER_BYTES:])] == [RecordKind.STEP]
    rings.close()
    assert not list(tmp_path.glob("*.texts"))
    writer.drop()


@pytest.mark.parametrize(
    ("brought", "texts", "found"),
    [
        ("backend=nccl-lazy", [], {"nccl-lazy", "nccl"}),
        ("rank=1\nbackend=cpu:gloo,cuda:xccl\nMASTER_PORT=2000", [], {"cpu:gloo,cuda:xccl", "nccl"}),
        ("backend=gloo", [], {"gloo", "nccl"}),
        ("rank=1", [], set()),
        ("", [], set()),
        ("backend=ucc", TEXTS, {"gloo"}),
    ],
)
def test_before_any_call_from_python_the_backend_is_that_of_the_rendezvous(tmp_path, brought, texts, found):
    writer = ring(tmp_path, 1)
    writer.text("rendezvous", brought)
    rings = collector(tmp_path)
    rings.look()
    (tmp_path / "0-1.texts").write_text("".join(f"{text}\n" for text in texts))
    writer.write(RecordKind.CALL, 1, 7, 1234, 1, 1, 2, 16, 7)
    rings.take_calls()
    assert rings.backends() == {1: found}
    rings.close()
    writer.drop()


def test_of_very_many_calls_every_rank_tells_the_same_blocks_and_the_newest_once_it_stands(tmp_path):
    writer = ring(tmp_path, 1)
    writer.cells[Cell.WORLD_SIZE] = 1000
    rings = collector(tmp_path)
    rings.look()
    for index in range(4090, 4190):
        writer.write(RecordKind.CALL, 1, index, 0, 1, 0, 0, 0, 0)
    (found,) = rings.take_calls()
    assert [call.index for call in found.calls] == list(range(4096, 4160))
    assert found.lost == 36
    (found,) = rings.take_calls()
    assert [call.index for call in found.calls] == list(range(4126, 4190))
    assert rings.take_calls() == []
    rings.close()
    writer.drop()


def test_a_rank_that_makes_few_calls_tells_them_all(tmp_path):
    writer = ring(tmp_path, 1)
    writer.cells[Cell.WORLD_SIZE] = 2
    rings = collector(tmp_path)
    rings.look()
    for index in range(1, 101):
        writer.write(RecordKind.CALL, 1, index, 0, 1, 0, 0, 0, 0)
    (found,) = rings.take_calls()
    assert (len(found.calls), found.lost) == (100, 0)
    rings.close()
    writer.drop()


def test_of_two_processes_of_one_rank_the_one_that_trains_is_heard(tmp_path):
    trains, saves = ring(tmp_path, 1), ring(tmp_path, 2)
    saves.cells[Cell.RANK] = 1
    trains.cells[Cell.STEP_COUNT] = 5
    rings = collector(tmp_path)
    rings.look()
    for writer in (trains, saves):
        writer.write(RecordKind.CALL, 1, 1, 0, 1, 0, 0, 0, 0)
    assert [found.rank for found in rings.take_calls()] == [1]
    assert {rank: header.pid for rank, header in rings.headers().items()} == {1: 1001}
    rings.close()
    trains.drop(), saves.drop()


def test_a_ring_that_an_agent_waits_for_has_no_name_and_cannot_be_cut_off(tmp_path):
    rings = collector(tmp_path)
    writer = ring(tmp_path, 0)
    assert not list(tmp_path.glob("*.ring"))
    rings.look()
    assert rings.pids() == [1000]
    (reader,) = [held.reader for held in rings._rings.values()]
    for size in (0, 4096, 1 << 45):
        with pytest.raises(PermissionError):
            os.truncate(f"/proc/self/fd/{reader._descriptor}", size)
    rings.close()
    writer.drop()


def test_a_ring_that_is_a_file_has_no_name_once_it_was_seen(tmp_path):
    """Where the kernel has no memory without a name, or the rank was there before its agent listened."""
    writer = ring(tmp_path, 0)
    assert (tmp_path / "0-0.ring").exists()
    rings = collector(tmp_path)
    rings.look()
    assert rings.pids() == [1000] and not list(tmp_path.glob("*.ring"))
    writer.write(1, 0, 1, 2)
    writer.cells[Cell.STEP_COUNT] = 5
    rings.look()
    assert rings.headers()[0].step_count == 5
    rings.close()
    writer.drop()


def test_a_ring_of_another_attempt_is_handed_to_nobody_here(tmp_path):
    rings = collector(tmp_path)
    other = RingWriter(tmp_path / "1-7.ring", capacity=256)
    rings.look()
    assert rings.pids() == [] and (tmp_path / "1-7.ring").exists()
    rings.close()
    other.drop()


@pytest.mark.parametrize("sent", [(b"../../x", True), (b"0-1.ring", False), (b"0-2.ring", True), (b"", True)])
def test_what_is_no_ring_is_not_taken_for_one(tmp_path, sent):
    rings = collector(tmp_path)
    name, with_descriptor = sent
    opened = os.open(os.devnull, os.O_RDWR)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.connect(str(tmp_path / "0.sock"))
        socket.send_fds(there, [name], [opened] if with_descriptor else [])
    os.close(opened)
    before = len(os.listdir("/proc/self/fd"))
    writer = ring(tmp_path, 3)
    rings.look()
    rings.look()
    assert rings.pids() == [1003]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    rings.close()
    writer.drop()
