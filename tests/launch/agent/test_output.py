"""The pump with pipes in place of ranks: what a full disk and an odd terminal may not do to it."""

import os
import threading
from pathlib import Path

from paceline.launch.agent.output import Destination, Pump


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
