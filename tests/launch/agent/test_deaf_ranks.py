"""Ranks that catch SIGTERM and go on, as TensorFlow's do: killed after a failure, told of at a stop."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import pytest
from patience import patient

from paceline.launch.agent.deaf_ranks import DeafRanks

pytestmark = pytest.mark.process

# A file with the name of TensorFlow's library stands for it: what is looked at is the name of a mapped file.
RANK = """
import mmap, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
file = open(sys.argv[1], "rb")
kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
saved = open(sys.argv[2], "wb", buffering=0)
until = time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    saved.write(bytes(1 << 16))
    time.sleep(0.02)
time.sleep(1000)
"""


@contextmanager
def rank(tmp_path, name="libtensorflow_framework.so.2", saves_seconds=0.0):
    library = tmp_path / name
    library.write_bytes(bytes(4096))
    words = [sys.executable, "-c", RANK, str(library), str(tmp_path / "saved"), str(saves_seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def watch(process, how):
    """What is told, and how long it took until the rank had ended or nothing more is done."""
    told = []

    async def main():
        deaf = DeafRanks(lambda: [process.pid] if process.poll() is None else [], told.append)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(patient(30)):
            await how(deaf)
        return asyncio.get_running_loop().time() - began

    return told, asyncio.run(main())


def test_after_a_failure_a_rank_that_goes_on_is_killed_and_it_is_told_why(tmp_path):
    with rank(tmp_path) as process:
        told, _ = watch(process, lambda deaf: deaf.after_failure())
        assert process.wait() == -9
    assert told == [
        "TensorFlow takes SIGTERM as a notice of preemption and goes on; without all ranks nothing can be saved, "
        "so its ranks are killed 3 s after the signal"
    ]


@pytest.mark.slow
def test_a_rank_that_is_writing_is_not_killed_before_it_has_written(tmp_path):
    with rank(tmp_path, saves_seconds=6.0) as process:
        _, seconds = watch(process, lambda deaf: deaf.after_failure())
        assert process.wait() == -9
    assert seconds >= 6.0 and (tmp_path / "saved").stat().st_size > 0


@pytest.mark.slow
def test_a_rank_without_such_a_library_keeps_its_grace(tmp_path):
    with rank(tmp_path, name="libtorch_cpu.so") as process:
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(DeafRanks(lambda: [process.pid], print).after_failure(), 5))
        assert process.poll() is None


def test_at_a_stop_it_is_told_what_the_ranks_will_do_and_nothing_is_killed(tmp_path):
    with rank(tmp_path) as process:
        told, _ = watch(process, lambda deaf: deaf.after_stop(120.0))
        assert process.poll() is None
    (text,) = told
    assert text.startswith("TensorFlow takes SIGTERM as a notice of preemption and goes on; ")
    assert text.endswith("SIGKILL follows 120 s after the signal (--stop-grace); at once: paceline stop --now")
