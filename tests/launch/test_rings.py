"""Rings as the agent reads them, also those that a crashing rank has written over."""

import threading

import pytest

from paceline.launch.rings import RingCollector
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import Cell, RingWriter


def ring(tmp_path, number: int) -> RingWriter:
    writer = RingWriter(tmp_path / f"0-{number}.ring", capacity=64)
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
