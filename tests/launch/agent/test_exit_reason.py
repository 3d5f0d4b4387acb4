"""Whose end is a rank's own, and whose is our signal's: by what came first, not by which process was the first to be gone."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from paceline.diagnosis.crash.root_cause import SAVED_AND_LEFT
from paceline.launch.agent.exit_reason import HIDDEN, ExitContext, reported_error, why_ended
from paceline.launch.agent.ring_collector import Leaving
from paceline.launch.agent.workers import WorkerEnd

SECOND = 1_000_000_000
PID = 4711


class Pump:
    """Stands for the log pump of a rank that printed this."""

    def __init__(self, printed):
        self.printed = printed

    def catch_up(self, rank):
        pass

    def tail(self, rank, stream):
        return self.printed


def ended(
    tmp_path, code, *, signalled=0.0, raised=None, done=None, overdue=False, printed="", told_to_save=False, below=()
):
    """The ending of a process that was gone at 14 s; `raised`, `done`: when it had an exception, when its program was done."""
    if raised is not None:
        record = {"type": "KeyError", "message": "'x'", "time_ns": int(raised * SECOND)}
        (tmp_path / f"{PID}.json").write_text(json.dumps(record))
    said = None if done is None else Leaving(int(done * SECOND), 1 if raised is not None else 0)
    around = ExitContext(
        pump=Pump(printed),
        errors=tmp_path,
        said=said,
        others=frozenset(),
        oom_before=None,
        began=0.0,
        told_to_save=told_to_save,
        below=frozenset(below),
    )
    end = WorkerEnd(SimpleNamespace(rank=1), PID, code, 14 * SECOND, int(signalled * SECOND), overdue)
    return asyncio.run(why_ended(end, around))


@pytest.mark.parametrize("code", [1, -signal.SIGTERM])
def test_who_had_raised_before_our_signal_fell_by_itself(tmp_path, code):
    """Its interpreter took so long to go that the rank that only missed it was gone first, and we signalled the rest."""
    ending = ended(tmp_path, code, raised=10.0, done=10.1, signalled=13.0)
    assert (ending.code, ending.error.type, ending.signalled_by_us) == (1, "KeyError", False)


@pytest.mark.parametrize("code", [0, -signal.SIGTERM])
def test_whose_program_was_done_before_our_signal_left_by_itself(tmp_path, code):
    ending = ended(tmp_path, code, done=10.0, signalled=13.0)
    assert (ending.code, ending.signalled_by_us) == (0, False)


@pytest.mark.parametrize(
    ("code", "below", "raised", "hidden"),
    [
        (0, [PID + 1], [PID + 1], True),
        (0, [PID + 1, PID + 2], [PID + 1, PID + 2], True),
        # Another process of this rank has made good what the first one could not.
        (0, [PID + 1, PID + 2], [PID + 1], False),
        (0, [], [PID + 1], False),
        (0, [PID + 1], [], False),
    ],
)
def test_a_shell_that_hides_what_its_python_raised(tmp_path, code, below, raised, hidden):
    for place, pid in enumerate(raised):
        record = {"type": "LookupError", "message": f"{place}", "time_ns": (20 - place) * SECOND}
        (tmp_path / f"{pid}.json").write_text(json.dumps(record))
    ending = ended(tmp_path, code, below=below)
    assert ending.code == 0
    assert (ending.note == HIDDEN, ending.error is not None) == (hidden, hidden)
    assert not hidden or ending.error.message == f"{len(raised) - 1}"


def test_who_ends_well_after_our_signal_ended_by_it(tmp_path):
    assert ended(tmp_path, 0, done=13.5, signalled=13.0).signalled_by_us


def test_who_raises_because_of_our_signal_ended_by_it(tmp_path):
    assert ended(tmp_path, 1, raised=13.2, done=13.3, signalled=13.0).signalled_by_us


def test_the_code_of_tensorflows_handler_after_a_stop_means_that_the_rank_has_saved(tmp_path):
    assert ended(tmp_path, 42, signalled=13.0, told_to_save=True).note == SAVED_AND_LEFT
    assert ended(tmp_path, 42, signalled=13.0).note == ""
    assert ended(tmp_path, 1, signalled=13.0, told_to_save=True).note == ""


def test_who_says_nothing_and_is_killed_by_us_ended_by_it(tmp_path):
    ending = ended(tmp_path, -signal.SIGTERM, signalled=13.0)
    assert (ending.code, ending.error, ending.signalled_by_us) == (-signal.SIGTERM, None, True)


def test_without_a_signal_of_ours_every_end_is_the_ranks_own(tmp_path):
    assert not ended(tmp_path, 1, raised=10.0).signalled_by_us
    assert not ended(tmp_path, 0, done=10.0).signalled_by_us


@pytest.mark.parametrize("by", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_after_the_program_was_done_is_reported_as_the_crash_it_is(tmp_path, by):
    ending = ended(tmp_path, -by, done=13.0)
    assert ending.code == -by
    assert by is signal.SIGKILL or ending.note.startswith(
        f"its program was done with code 0; the interpreter's shutdown was ended by {by.name}"
    )


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ("terminate called without an active exception\n", "gloo"),
        ("FATAL: exception not rethrown\n", "is PyTorch's own and comes after the script's work"),
    ],
)
def test_a_thread_that_wanted_pythons_lock_too_late_is_named(tmp_path, printed, named):
    ending = ended(tmp_path, -signal.SIGABRT, done=13.0, printed=printed)
    assert ending.code == -signal.SIGABRT and named in ending.note
    assert named not in ended(tmp_path, -signal.SIGABRT, printed=printed).note


def test_who_hung_in_its_shutdown_and_was_ended_by_us_has_the_code_that_it_meant(tmp_path):
    ending = ended(tmp_path, -signal.SIGKILL, done=3.0, overdue=True)
    assert (ending.code, ending.note) == (
        0,
        "its program was done with code 0; the interpreter's shutdown hung and was cut off",
    )


HOSTILE = """
import asyncio, pathlib, resource, sys
sys.path[:0] = sys.argv[1:3]
# Of the processor's time: a busy machine takes longer, and no more of it.
resource.setrlimit(resource.RLIMIT_CPU, (8, 8))
from test_exit_reason import ended
texts = ("port: 1 ", "terminate called after throwing an instance of 'x", "\\n", "x", "what():  ", "port: 1 EADDR", " ")
for text in texts:
    ended(pathlib.Path(sys.argv[3]), 3, printed=text * (65536 // len(text)))
    ended(pathlib.Path(sys.argv[3]), 3, printed="terminate called after throwing an instance of 'x'" + text * 9000)
print("done")
"""


def test_what_a_rank_printed_cannot_keep_the_agent_busy(tmp_path, repository):
    argv = [str(repository / "src"), str(repository / "tests" / "launch" / "agent"), str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", HOSTILE, *argv], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr or done.returncode


def test_a_reason_is_looked_for_at_both_ends_of_a_long_line(tmp_path):
    assert ended(tmp_path, 3, printed="a" * 5000 + "b" * 5000).tail.endswith(f"{'a' * 1900} ... {'b' * 2000}")


@pytest.mark.parametrize("name", [f"{PID}.json", "torchelastic_1.json"])
def test_an_error_file_that_is_none_is_passed_over(tmp_path, name):
    (tmp_path / "secret.json").write_text('{"type": "Secret", "time_ns": 1, "message": "m"}')
    for make in (
        os.mkfifo,
        lambda path: path.symlink_to(tmp_path / "secret.json"),
        lambda path: path.write_text("[" * 99999),
    ):
        path = tmp_path / name
        path.unlink(missing_ok=True)
        make(path)
        found = ended(tmp_path, 3).error
        # The linked file itself is a child's record by its own name only.
        assert found is None


def test_a_message_without_end_is_cut_as_in_a_ranks_own_file(tmp_path):
    recorded = {"message": {"message": "RuntimeError: " + "x" * 100_000, "extraInfo": {}}}
    (tmp_path / "torchelastic_1.json").write_text(json.dumps(recorded))
    error = ended(tmp_path, 3).error
    assert error.type == "RuntimeError" and error.message == "x" * 4096
    (tmp_path / "torchelastic_1.json").write_text(json.dumps({"message": {"message": "x" * 100_000}}))
    assert ended(tmp_path, 3).error.type == "x" * 4096


@pytest.mark.parametrize(
    ("written", "known"),
    [
        (
            {"type": "E", "message": "m" * 99_999, "source": "x" * 99_999, "file": "f", "line": 3},
            {"message": "m" * 4096, "source": "x" * 4096, "line": 3},
        ),
        ({"type": "E", "message": 7, "file": ["f"], "line": "3"}, {"message": "", "file": None, "line": None}),
        ({"type": "t" * 99_999}, {"type": "t" * 4096}),
        ({"type": "E", "message": "caf\udce9"}, {"message": "caf?"}),
        ({"type": "E", "line": 1 << 63}, {"line": None}),
        ({"type": "E", "message": "m" * (1 << 20)}, None),
        ({"type": "E", "time_ns": "soon"}, None),
        ({"type": "E", "time_ns": 1 << 63}, None),
        ({"time_ns": 5}, None),
        (["E"], None),
    ],
    ids=[
        "a line of code of 100 kB",
        "other types",
        "a long name",
        "no UTF-8",
        "no line",
        "a file of 1 MiB",
        "no time",
        "another time",
        "no type",
        "a list",
    ],
)
def test_what_a_rank_wrote_about_its_exception_has_the_types_and_lengths_that_other_hosts_take(
    tmp_path, written, known
):
    if isinstance(written, dict) and "type" in written:
        written = {"time_ns": 5, **written}
    (tmp_path / f"{PID}.json").write_text(json.dumps(written))
    error = reported_error(tmp_path, PID)
    if known is None:
        assert error is None
    else:
        assert {name: getattr(error, name) for name in known} == known


def test_a_rank_that_wrote_nothing_has_raised_nothing(tmp_path):
    assert reported_error(tmp_path, PID) is None
