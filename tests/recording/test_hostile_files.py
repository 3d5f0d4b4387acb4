"""Whatever lies where a recording's file should be, reading it neither waits nor ends the reader."""

import json
import os
import subprocess
import sys

import pytest

from paceline.recording.evidence import evidence, read_run
from paceline.recording.jsonl import RECENT_BYTES, read_json_lines
from paceline.recording.layout import RunDirectory
from paceline.recording.log_tails import stderr_tails
from paceline.recording.logs import LogChoice, log_files
from paceline.recording.plain_files import open_plain
from paceline.recording.ring import HEADER_BYTES, NotARing, RecordKind, RingReader, RingWriter
from paceline.recording.runs import list_runs, read_document
from paceline.recording.string_table import StringTable
from paceline.recording.writer import EventLog


def laid(path, what):
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to(what)


@pytest.mark.parametrize("what", ["pipe", "directory", "/dev/zero", "/dev/tty"])
@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "events.jsonl",
        "submission.json",
        "hosts/algo-1/telemetry.jsonl",
        "hosts/algo-1/attempt_0/rank_0.seg",
        "hosts/algo-1/attempt_0/rank_0.err",
    ],
)
def test_nothing_of_a_recording_is_waited_for(recording, tmp_path, name, what):
    made = recording()
    made.identity()
    made.event("host_joined", host="algo-1")
    made.segment("algo-1", 0)
    made.log("algo-1", 0, b"a\n", stream="err")
    laid(made.path / name, what)
    found = evidence(made.path)
    assert found.run.id == "r-000001"
    stderr_tails((RunDirectory(made.path),), 0)
    for log in log_files((RunDirectory(made.path),), LogChoice()):
        list(log.lines())
    assert [run.path for run in list_runs(made.path.parent, tmp_path / "index")] == [made.path]


@pytest.mark.parametrize("what", ["pipe", "directory", "/dev/zero"])
def test_only_an_ordinary_file_is_opened(tmp_path, what):
    laid(tmp_path / "file", what)
    with pytest.raises(OSError, match="not an ordinary file"):
        open_plain(tmp_path / "file")


def test_an_event_that_would_go_into_a_pipe_is_lost_and_counted(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    log = EventLog(tmp_path / "events.jsonl")
    assert not log.append({"event": "status"})
    assert log.lost == 1


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{}" + " " * (5 << 20), "[]", "null", ""])
def test_a_document_that_is_none_is_empty(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    assert read_document(tmp_path / "run.json") == {}


def test_texts_of_a_rank_that_made_them_a_pipe_are_none(tmp_path):
    os.mkfifo(tmp_path / "0.texts")
    assert StringTable(tmp_path / "0.texts").update() == b""


_CUT = """
import os, sys
from pathlib import Path
from paceline.recording.ring import RingReader
path = Path(sys.argv[1])
reader = RingReader(path)
os.truncate(path, int(sys.argv[2]))
for look in (reader.header, reader.drain, reader.page, reader.exchanges):
    try:
        look()
    except ValueError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("size", [0, 100, HEADER_BYTES])
def test_a_ring_that_is_cut_off_does_not_end_its_reader(tmp_path, size):
    ring = RingWriter(tmp_path / "0.ring", capacity=1024)
    for index in range(2000):
        ring.write(RecordKind.STEP, 0, index, index)
    done = subprocess.run(
        [sys.executable, "-c", _CUT, ring.path, str(size)], capture_output=True, text=True, check=False
    )
    # Not -SIGBUS. With a whole header that says so, the header alone can be read.
    assert (done.returncode, done.stdout.split()) == (0, ["NotARing"] * (1 if size == HEADER_BYTES else 4))


def test_a_ring_is_read_across_its_end(tmp_path):
    ring = RingWriter(tmp_path / "0.ring", capacity=16)
    reader = RingReader(ring.path)
    seen = []
    for index in range(100):
        ring.write(RecordKind.STEP, 0, index, index)
        if index % 7 == 6:
            raw, lost = reader.drain()
            assert lost == 0
            seen += [int.from_bytes(raw[at + 8 : at + 16], "little") for at in range(0, len(raw), 64)]
    assert seen == list(range(98))


def test_a_closed_reader_reads_nothing(tmp_path):
    reader = RingReader(RingWriter(tmp_path / "0.ring", capacity=16).path)
    reader.close()
    with pytest.raises(ValueError):
        reader.header()


@pytest.mark.parametrize("what", ["pipe", "directory", "/dev/zero"])
def test_a_ring_that_is_no_file_is_none(tmp_path, what):
    laid(tmp_path / "0.ring", what)
    with pytest.raises((OSError, NotARing)):
        RingReader(tmp_path / "0.ring")


def test_a_hostile_number_in_a_run_is_no_traceback(recording):
    made = recording()
    (made.path / "run.json").write_text(
        json.dumps({"id": "r-000001", "agent_pid": 2**80, "machine": os.uname().nodename})
    )
    read_run((RunDirectory(made.path),))


@pytest.mark.parametrize("padding", [0, 2000], ids=["many", "long"])
def test_of_events_without_end_how_it_began_and_how_it_stands_are_read(tmp_path, padding):
    """A job of hundreds of ranks says every half minute how fast each of them is."""
    count = 60_000 if not padding else 25_000
    filler = "x" * padding
    path = tmp_path / "events.jsonl"
    path.write_text(
        "".join(f'{{"event": "tempo", "number": {number}, "text": "{filler}"}}\n' for number in range(count))
    )
    records, complaints = read_json_lines(path)
    numbers = [record["number"] for record in records]
    assert numbers[0] == 0 and numbers[-1] == count - 1 and numbers == sorted(set(numbers)) and len(numbers) <= 32_000
    (complaint,) = complaints
    assert "in its middle were not read" in complaint


def test_to_answer_about_now_no_whole_file_of_events_is_read(tmp_path):
    line = '{"t_ns": 1, "event": "notice", "text": "' + "x" * 1000 + '"}\n'
    events = RunDirectory(tmp_path).events_file
    events.write_text('{"event": "first"}\n' + line * 12_000 + '{"event": "run_finished", "exit_code": 0}\n')
    run, found, complaints = read_run((RunDirectory(tmp_path),), recent=True)
    assert (found[0]["event"], run.exit_code) == ("first", 0)
    assert sum(len(json.dumps(one)) for one in found) <= RECENT_BYTES
    assert any("MiB in its middle were not read" in complaint for complaint in complaints)
