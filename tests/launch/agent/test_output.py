"""The pump with pipes in place of ranks: what a full disk, an odd terminal and long lines may not do to it."""

import os
import random
import threading
import time
from pathlib import Path

import pytest

from paceline.launch.agent.output import LONGEST_FILTERED_BYTES, Destination, Pump


def pumped(tmp_path, data: bytes, *, console: int | None = None, **terms) -> Pump:
    """A pump that has carried `data` of one rank and ended."""
    reading, writing = os.pipe()
    pump = Pump()
    pump.add(reading, 0, "out", Destination(log_file=tmp_path / "rank_0.out", console_fd=console, **terms))
    writer = threading.Thread(target=_write, args=(writing, data))
    writer.start()
    writer.join(20)
    assert not writer.is_alive(), "the rank is blocked: nobody reads its pipe"
    assert pump.drain(20)
    pump.close()
    return pump


def _write(fd: int, data: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(data)


def test_a_full_disk_under_the_filtered_copy_stops_neither_the_log_nor_the_rank(tmp_path):
    data = b"loss 1\n" * 100_000
    pump = pumped(tmp_path, data, filtered_file=Path("/dev/full"), filters=("loss",))
    assert (tmp_path / "rank_0.out").read_bytes() == data
    assert pump.lost_bytes() == len(data)


def test_a_full_disk_under_the_recording_leaves_torchruns_own_files_whole(tmp_path):
    (tmp_path / "rank_0.out").symlink_to("/dev/full")
    pump = pumped(tmp_path, b"x" * 200_000, extra_file=tmp_path / "stdout.log")
    assert (tmp_path / "stdout.log").stat().st_size == 200_000
    assert pump.lost_bytes() == 200_000


def test_a_terminal_that_somebody_made_non_blocking_gets_every_line(tmp_path):
    reading, console = os.pipe()
    os.set_blocking(console, False)
    data = b"a line of output\n" * 40_000
    received = bytearray()

    def read() -> None:
        while chunk := os.read(reading, 4096):
            received.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    pumped(tmp_path, data, console=console)
    os.close(console)
    reader.join(20)
    os.close(reading)
    assert bytes(received) == data


def test_words_for_a_terminal_that_nobody_reads_never_hold_up_the_agent():
    reading, console = os.pipe()
    pump = Pump()
    # More wake-ups than a pipe holds, while the pump's thread waits for the terminal.
    for _ in range(100_000):
        pump.say(console, "x" * 10)
    os.close(reading)
    pump.close()
    os.close(console)


@pytest.mark.parametrize("seed", range(20))
def test_the_filtered_copy_has_the_lines_that_contain_a_text_however_they_arrive(tmp_path, seed):
    drawn = random.Random(seed)
    line_ends = (b"\n", b"\r", b"\n\n")
    lines = [
        bytes(drawn.choices(b"los =.x", k=drawn.choice((0, 3, 40, 70_000)))) + drawn.choice(line_ends)
        for _ in range(60)
    ]
    data = b"".join(lines) + drawn.choice((b"", b"loss at the end", b"nothing"))
    filters = drawn.choice((("loss",), ("lo", "=="), ("nowhere",)))
    pumped(tmp_path, data, filtered_file=tmp_path / "filtered", filters=filters)
    expected = [line for line in data.splitlines(keepends=True) if any(text.encode() in line for text in filters)]
    assert (tmp_path / "filtered").read_bytes() == b"".join(expected)


def test_a_line_that_is_too_long_to_be_looked_at_is_passed_on_and_counted(tmp_path):
    long = b"x" * (3 * LONGEST_FILTERED_BYTES) + b"\n"
    data = b"no\n" + long + b"loss\nno\n" + long + b"no end"
    pump = pumped(tmp_path, data, filtered_file=tmp_path / "filtered", filters=("loss",))
    assert (tmp_path / "filtered").read_bytes() == long + b"loss\n" + long
    assert pump.long_lines() == 2 and (tmp_path / "rank_0.out").read_bytes() == data


def test_what_a_line_costs_grows_as_its_length(tmp_path):
    def seconds(size: int) -> float:
        began = time.process_time()
        # In pieces of a few bytes: what is looked at again with each piece costs the square.
        reading, writing = os.pipe()
        pump = Pump()
        terms = Destination(tmp_path / "log", None, filtered_file=tmp_path / "filtered", filters=("loss", "none"))
        pump.add(reading, 0, "out", terms)
        for _ in range(size // 50):
            os.write(writing, b"x" * 50)
        os.close(writing)
        assert pump.drain(60)
        pump.close()
        return time.process_time() - began

    seconds(50_000)
    assert seconds(6_400_000) < 64 * 8 * seconds(100_000)


def test_a_process_that_writes_without_end_keeps_the_pump_from_no_other_stream(tmp_path, monkeypatch):
    pump, ended = Pump(), threading.Event()
    (busy, busy_end), (other, other_end) = os.pipe(), os.pipe()
    read = os.read

    def read_and_write_again(descriptor: int, size: int) -> bytes:
        chunk = read(descriptor, size)
        if descriptor == busy and not ended.is_set():
            os.write(busy_end, chunk)
        return chunk

    monkeypatch.setattr(os, "read", read_and_write_again)
    pump.add(busy, 0, "out", Destination(tmp_path / "busy", None))
    pump.add(other, 1, "out", Destination(tmp_path / "other", None))
    os.write(busy_end, b"x" * 4096)
    asked = threading.Thread(target=pump.catch_up, args=(0, 60.0))
    asked.start()
    asked.join(30)
    caught_up = not asked.is_alive()
    ended.set()
    os.close(busy_end)
    os.close(other_end)
    assert caught_up and pump.drain(30)
    pump.close()
