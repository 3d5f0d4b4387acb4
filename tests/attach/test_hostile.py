"""A process that is looked at decides neither what is opened, nor whom we connect to, nor what is kept of it."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import msgspec
import pytest

from paceline.attach import collect
from paceline.attach.collect import _addresses_at, _last_raised
from paceline.attach.look_here import LookRequest, look_here
from paceline.diagnosis.snapshots import Socket

SECRET = "hunter2hunter2"
pytestmark = pytest.mark.process


@contextmanager
def rank(*arguments, stderr=subprocess.DEVNULL, **environment):
    """A process that says that it is the only rank of a job, and waits."""
    told = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29555",
    }
    code = "import sys, signal; print('here', flush=True); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={"PATH": os.defpath, **told, **environment},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def seen_of(process):
    return look_here(LookRequest(pids=(process.pid,), host="a"))


def test_no_secret_of_its_environment_or_its_arguments_is_kept():
    with rank(
        f"--token={SECRET}", API_TOKEN=SECRET, AWS_SECRET_ACCESS_KEY=SECRET, NCCL_SECRET=SECRET, HF_TOKEN=SECRET
    ) as process:
        found = seen_of(process)
    assert found.evidence[0].ranks[0].pid == process.pid
    assert SECRET not in msgspec.json.encode(found).decode()


def test_nobody_is_connected_to_at_an_address_that_its_environment_names():
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.settimeout(0)
        with rank(MASTER_PORT=str(trap.getsockname()[1])) as process:
            found = seen_of(process)
        assert found.evidence[0].store is None
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_only_the_other_end_of_a_connection_of_a_rank_is_an_address_of_its_store():
    def connection(local, remote, state="established"):
        return Socket(local=local, remote=remote, state=state, receive_queue_bytes=0, send_queue_bytes=0)

    sockets = [
        connection("10.0.0.7:41000", "10.0.0.9:443"),
        connection("10.0.0.7:41001", "10.0.0.8:29500", "syn_sent"),
        connection("10.0.0.7:41002", "[fd00::8]:29500"),
    ]
    assert list(_addresses_at("29500", sockets)) == ["fd00::8"]
    assert list(_addresses_at("6379", sockets)) == []


def test_a_pipe_that_it_has_as_stderr_is_not_opened(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    os.write(end, b"Traceback (most recent call last):\nValueError: read me\n")
    try:
        with rank(stderr=end) as process:
            monkeypatch.setattr(collect.os, "open", lambda *_: pytest.fail("it was opened"))
            assert _last_raised(process.pid) == ""
    finally:
        os.close(end)


def test_of_a_long_stderr_the_end_is_read_and_of_its_last_exception_a_line(tmp_path, monkeypatch):
    text = "noise\n" * 200_000
    trace = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in <module>\n    f()\nValueError: bad sample\n'
    path = tmp_path / "err.txt"
    path.write_text(text + "[rank0]: ".join(["", *trace.splitlines(keepends=True)]))
    with path.open("ab") as stream, rank(stderr=stream) as process:
        assert _last_raised(process.pid) == "ValueError: bad sample at /home/me/train.py:7"
        monkeypatch.setattr(collect, "_TAIL_BYTES", 16)
        assert _last_raised(process.pid) == ""


@pytest.mark.parametrize(
    "environment",
    [
        {"WORLD_SIZE": "9999999"},
        {"MASTER_ADDR": "$(reboot)", "MASTER_PORT": "1"},
        {"MASTER_ADDR": "a" * 5000},
        {"TORCHELASTIC_RUN_ID": "\x1b[2J" * 50},
        {"GROUP_WORLD_SIZE": "-1", "TORCHELASTIC_RESTART_COUNT": "9" * 400},
        {"SLURM_NNODES": "0x10"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_no_value_of_its_environment_breaks_a_look(environment):
    with rank(**environment) as process:
        found = seen_of(process)
    assert found.evidence or found.none


def test_a_rank_that_ends_while_it_is_looked_at_is_said_and_nothing_else():
    with rank() as process:
        real = collect.look_at

        def ends_in_between(*arguments, **options):
            process.kill()
            process.wait()
            return real(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collect, "look_at", ends_in_between)
            found = seen_of(process)
    (one,) = found.evidence
    assert any("ended while it was looked at" in note for note in one.notes)
    assert one.ranks == () and one.missing == (0,)
