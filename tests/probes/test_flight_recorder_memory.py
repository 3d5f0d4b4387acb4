"""torch's flight recorder in a process's memory has what torch itself writes of it, and no memory harms its reader."""

import json
import os
import random
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.diagnosis.flight_recorder import parse_trace, traces_of
from paceline.probes import flight_recorder_memory
from paceline.probes.flight_recorder_memory import LAYOUTS, _Recorder, read_recorders
from paceline.probes.remote_memory import RemoteMemory, Unreadable

CALLS = Path(__file__).with_name("recorded_calls.py")


@contextmanager
def ranks(folder, count, what, **more):
    """Processes of torch alone, which have made their calls and wait; with their standard output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "TORCH_"))}
    environment |= {"WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | more
    started = [
        subprocess.Popen(
            [sys.executable, str(CALLS), str(folder), what],
            env=environment | {"RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


STATES = ("scheduled", "started", "completed")


@pytest.mark.process
def test_it_is_what_torch_writes_of_it(tmp_path):
    with ranks(tmp_path, 2, "calls") as started:
        for rank, process in enumerate(started):
            dump = process.stdout.readline().encode()
            theirs = json.loads(dump)
            found = read_recorders(process.pid, frames=True)
            ((name, document),) = found.documents
            assert (name, found.reason) == ("gloo", "")
            for mine, their in zip(document["entries"], theirs["entries"], strict=True):
                # A call that was over when torch wrote is over now; one that was not may be since.
                assert (STATES.index(mine["state"]), mine["retired"]) >= (
                    STATES.index(their["state"]),
                    their["retired"],
                )
                same = mine.keys() - {"frames", "state", "retired"}
                assert {key: mine[key] for key in same} == {key: their[key] for key in same}
            assert document["pg_status"].keys() == theirs["pg_status"].keys()
            for group, counters in document["pg_status"].items():
                written = {key: int(count) for key, count in theirs["pg_status"][group].items()}
                assert counters["last_enqueued_collective"] == written["last_enqueued_collective"]
                assert counters["last_completed_collective"] >= written["last_completed_collective"], rank
            assert [e.index for e in traces_of(found.documents).entries] == [e.index for e in parse_trace(dump).entries]


@pytest.mark.process
def test_each_call_has_the_lines_that_issued_it(tmp_path):
    lines = CALLS.read_text().splitlines()
    with ranks(tmp_path, 2, "calls") as started:
        for process in started:
            process.stdout.readline()
        ((_, document),) = read_recorders(started[0].pid, frames=True).documents
    issued = [
        next((frame["line"] for frame in entry["frames"] if frame["filename"] == str(CALLS)), None)
        for entry in document["entries"]
    ]
    said = [lines[line - 1].strip() for line in issued]
    # Sends are not in gloo's recorder; DDP's own calls are those of a forward and a backward pass.
    assert [text for text in dict.fromkeys(said) if not text.startswith("model = ")] == [
        "dist.all_reduce(torch.ones(3, 4))",
        "dist.broadcast(torch.ones(2, dtype=torch.int64), 0, group=second)",
        "dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2))",
        "model(torch.ones(2, 3)).sum().backward()",
        "dist.barrier()",
    ]


@pytest.mark.process
def test_it_is_read_while_it_is_written(tmp_path):
    """Whatever is read is a call that was made: its name, its shape and its number belong together."""
    with ranks(tmp_path, 1, "without end") as (process,):
        process.stdout.readline()
        newest = 0
        for number in range(150):
            found = read_recorders(process.pid, frames=number % 10 == 0)
            for _, document in found.documents:
                for entry in document["entries"]:
                    index = entry["collective_seq_id"]
                    assert entry["profiling_name"] == "gloo:all_reduce" and entry["op_id"] == index
                    assert entry["input_sizes"] in ([[index % 7 + 1]], [])
                newest = max([newest, *(entry["collective_seq_id"] for entry in document["entries"])])
        assert process.poll() is None and newest > 2000


@pytest.mark.process
def test_a_recorder_that_is_off_and_one_that_was_not_needed_say_so(tmp_path):
    with ranks(tmp_path, 1, "nothing") as (process,):
        process.stdout.readline()
        assert "no collective" in read_recorders(process.pid).reason
    with ranks(tmp_path, 1, "off", TORCH_FR_BUFFER_SIZE="0") as (process,):
        process.stdout.readline()
        assert "TORCH_FR_BUFFER_SIZE" in read_recorders(process.pid).reason


@pytest.mark.process
def test_a_process_without_torch_and_one_that_is_gone_say_so():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert read_recorders(process.pid).reason == "it has no torch"
        process.stdin.close()
    assert "No such" in read_recorders(process.pid).reason


@pytest.mark.parametrize("release", [(2, 7), (2, 9), (2, 99), (3, 0)])
def test_of_an_unknown_torch_nothing_is_read(release, monkeypatch):
    monkeypatch.setattr(flight_recorder_memory, "torch_release", lambda memory: release)
    assert read_recorders(os.getpid()).reason == f"the flight recorder of torch {release[0]}.{release[1]} is not known"


# ------------------------------------------------------------------------------------------------------ hostile memory


class Made(RemoteMemory):
    """Memory with made bytes behind every address: mostly addresses and small numbers, so that more of it is believed."""

    def __init__(self, seed, entries):
        super().__init__(0)
        self.drawn, self.entries, self.reads, self.bytes = random.Random(seed), entries, 0, 0

    def read(self, address, size):
        self.reads, self.bytes = self.reads + 1, self.bytes + size
        if not 0 < size <= 1 << 20 or not 0x1000 <= address < 1 << 47 or self.drawn.random() < 0.02:
            raise Unreadable(14, "Bad address")
        if self.reads == 1:
            return b"\1" * size
        words = [self._word(address + 8 * place) for place in range(size // 8 + 1)]
        return struct.pack(f"<{len(words)}Q", *words)[:size]

    def _word(self, address):
        kinds = (
            0,
            1,
            2,
            7,
            16,
            1 << 20,
            address + 16,
            address - 16,
            1 << 40,
            0x2000,
            (1 << 64) - 1,
            1_700_000_000_000_000_000,
        )
        kind = self.drawn.choice((*kinds, self.drawn.getrandbits(64), self.drawn.getrandbits(8)))
        return kind % (1 << 64)


@pytest.mark.parametrize("layout", dict.fromkeys(LAYOUTS.values()), ids=["2.8", "2.10"])
@pytest.mark.parametrize("seed", range(60))
def test_no_memory_makes_its_reader_raise_or_go_on_without_end(seed, layout):
    for entries in range(20):
        memory = Made(seed * 100 + entries, entries)
        try:
            _, document, reason = _Recorder(memory, 0x10_0000, layout, None).read("gloo")
        except Unreadable:
            continue
        assert (document is None) == bool(reason)
        assert memory.reads < 50_000 and memory.bytes < 64 << 20
        if document is not None:
            traces_of([("gloo", document), ("nccl", document), ("nccl2", document)])
