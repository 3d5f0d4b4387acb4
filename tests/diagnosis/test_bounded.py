"""Logs and dumps that were made to cost: a verb answers them in two seconds of CPU and 100 MB more than it needs to start."""

import base64
import json
import pickle
import subprocess
import sys

import pytest

from paceline.diagnosis.logs.flight_recorder_dumps import parse_dump

# On cores that others use too, the same work takes up to twice the CPU time; what is bounded here would take hours otherwise.
CPU_SECONDS = 5
MEMORY_BYTES = 100 << 20

# Modules are loaded first: their size is this Python's, and how long they take the machine's.
_ANSWER = """
import os, resource, sys
import paceline.cli.why, paceline.cli.why_log, paceline.cli.ps, paceline.cli.top, paceline.cli.logs, paceline.diagnosis.build_case
import paceline.recording.log_tails, paceline.views.why
from paceline.cli import main
from paceline.rules import all_causes
all_causes()
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
cpu = resource.getrusage(resource.RUSAGE_SELF)
cpu_seconds = int(cpu.ru_utime + cpu.ru_stime + 1)
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds + int(sys.argv[2]),) * 2)
raise SystemExit(main(sys.argv[3:]))
"""


def answer(*words):
    limits = (str(MEMORY_BYTES), str(CPU_SECONDS))
    command = [sys.executable, "-c", _ANSWER, *limits, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")


def assert_answered(done):
    assert done.returncode in (0, 2, 3), (done.returncode, done.stderr[-2000:])
    assert "Traceback" not in done.stderr, done.stderr[-2000:]


def shared_lists(depth):
    """Lists of two times the list before: few bytes, 2**depth leaves."""
    value = []
    for _ in range(depth):
        value = [value, value]
    return value


def entry(**fields):
    return {"collective_seq_id": 1, "profiling_name": "nccl:all_reduce", "process_group": ["0", "default"], **fields}


def dump(**fields):
    return pickle.dumps({"entries": [entry(**fields)]}, 2)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("field", ["profiling_name", "process_group", "pg_id", "input_sizes", "input_dtypes", "frames"])
def test_shared_containers_of_a_dump_are_not_written_out(tmp_path, field):
    value = shared_lists(60)
    content = dump(**{field: [{"filename": value, "line": value}] if field == "frames" else value})
    (tmp_path / "trace_0").write_bytes(content)
    assert len(content) < 2000
    assert_answered(answer("why", "--log", tmp_path / "trace_0"))


def test_the_members_of_a_group_are_not_written_out(tmp_path):
    document = {"entries": [entry()], "pg_config": {"0": {"ranks": shared_lists(60)}}, "pg_status": {"0": {}}}
    (tmp_path / "trace_0").write_bytes(pickle.dumps(document, 2))
    assert_answered(answer("why", "--log", tmp_path / "trace_0"))


def test_a_list_in_itself_has_an_end():
    loop = []
    loop.append(loop)
    assert parse_dump("trace_0", dump(input_sizes=loop)).groups[0].calls[1].shapes == "..."


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}" + b"((" * 4 + b"t" + b"2\x86" * 4000 + b"K\x01s.",
        b"\x80\x04}" + b")" + b"2\x86" * 400 + b"K\x01s.",
        b"\x80\x04\x8f(" + b")" + b"2\x86" * 400 + b"\x90.",
        b"\x80\x05\x96" + (1 << 45).to_bytes(8, "little") + b"a.",
        b"\x80\x02]" + b"(" + b"N" * (8 << 20) + b"e.",
        b"\x80\x02" + b"(" * (8 << 20),
        b"\x80\x02" + b"]q\x00" * (2 << 20),
    ],
    ids=[
        "marks",
        "key_of_shared_tuples",
        "set_of_shared_tuples",
        "bytearray",
        "many_values",
        "many_marks",
        "many_lists",
    ],
)
def test_a_pickle_that_was_made_to_cost_does_not(tmp_path, content):
    (tmp_path / "trace_0").write_bytes(content)
    assert_answered(answer("why", "--log", tmp_path / "trace_0"))


def test_a_dump_as_long_as_real_ones_is_read_whole():
    frames = [{"name": "step", "filename": "train.py", "line": line} for line in range(30)]
    entries = [entry(collective_seq_id=number, pg_id=0, input_sizes=[[4]], frames=frames) for number in range(2000)]
    read = parse_dump("trace_0", pickle.dumps({"entries": entries}, 2))
    assert (len(read.groups[0].calls), read.note) == (2000, "")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '"x', "9" * 5000])
def test_a_text_dump_that_is_none_is_no_traceback(tmp_path, text):
    (tmp_path / "trace_0").write_text('{"entries": [' + text)
    assert_answered(answer("why", "--log", tmp_path / "trace_0"))


LINES = {
    "base64_zeros": base64.b64encode(bytes(1 << 20)).decode(),
    "digits": "1" * (1 << 20) + " clients joined",
    "underscores": "A_" * (1 << 19) + " on rank 1",
    "shared_memory": "/dev/shm" * (1 << 17) + " No space left",
    "nccl_segments": "nccl-shm" * (1 << 17) + " (size",
    "fields": "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(" + "A" * (1 << 20),
    "blanks": " " * (1 << 20) + "File",
    "escapes": "\x1b]" * (1 << 19),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", LINES)
def test_a_line_without_an_end_costs_no_more_than_a_line(tmp_path, kind):
    (tmp_path / "job.log").write_text(LINES[kind])
    assert_answered(answer("why", "--log", tmp_path / "job.log"))


def test_many_long_lines_cost_what_their_bytes_do(tmp_path):
    (tmp_path / "job.log").write_text(f"{LINES['base64_zeros'][:4000]}\n" * 262)
    assert_answered(answer("why", "--log", tmp_path / "job.log"))


@pytest.mark.parametrize("kind", ["nested", "many_objects"])
def test_a_hostile_record_is_counted_and_not_read(tmp_path, kind):
    text = {"nested": "[" * (1 << 20), "many_objects": '{"event":"x","a":[' + ",".join(['{"":0}'] * (1 << 20)) + "]}"}[
        kind
    ]
    (tmp_path / "run.json").write_text(json.dumps({"id": "r-000001", "started_ns": 1}))
    (tmp_path / "events.jsonl").write_text(text + "\n")
    assert_answered(answer("why", tmp_path))


EXIT = {"t_ns": 9, "event": "rank_exited", "host": "a", "rank": 1, "attempt": 0, "code": 1, "time_ns": 9,
        "error": {"type": "ValueError", "message": "m", "time_ns": 9, "file": "t.py", "line": 3}}  # fmt: skip


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("event", "count"), [({"event": "x"}, 400_000), (EXIT, 160_000)], ids=["small", "exits"])
def test_of_events_without_end_the_first_and_the_last_are_read(tmp_path, event, count):
    (tmp_path / "run.json").write_text(json.dumps({"id": "r-000001", "started_ns": 1}))
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(event)}\n" * count)
    done = answer("why", tmp_path)
    assert_answered(done)
    assert "MiB in its middle were not read" in done.stdout
