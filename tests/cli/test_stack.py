"""`paceline stack`, of a run that lasts through its agent's socket, of one that has ended from its recording."""

import json
import os
import socket
import threading

import pytest

from paceline.cli import main
from paceline.diagnosis.snapshots import Frame, RankSnapshot, ThreadStack
from paceline.process_identity import start_ticks
from paceline.recording.fact_json import to_plain
from paceline.recording.liveness import this_machine


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


def snapshot(rank: int, line: int, **fields) -> RankSnapshot:
    frames = (Frame(file="/home/you/train.py", line=line, function="step", users=True),)
    stacks = (ThreadStack(pid=rank, thread="MainThread", main=True, frames=frames),)
    return RankSnapshot(host="algo-1", rank=rank, pid=rank, at_ns=1, state="S", stacks=stacks, **fields)


@pytest.fixture
def running(recording, tmp_path):
    """A run whose agent is this process, and what its socket was asked."""
    made = recording("r-aaaaaa")
    machine, path = this_machine(), str(tmp_path / "s")
    made.identity(
        agent_pid=os.getpid(),
        agent_start_ticks=start_ticks(os.getpid()),
        machine=machine.hostname,
        boot_id=machine.boot_id,
        pid_namespace=machine.pid_namespace,
        control_socket=path,
    )
    made.event("status", status="InProgress", secondary_status="Training")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    asked, threads = [], []

    def answer(reply):
        def one():
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                asked.append(json.loads(lines.readline()))
                connection.sendall(json.dumps(reply).encode() + b"\n")

        threads.append(threading.Thread(target=one))
        threads[-1].start()
        return asked

    yield answer
    for thread in threads:
        thread.join()
    server.close()


def test_a_run_that_lasts_is_looked_at_now(running, capsys):
    asked = running({"ok": True, "looks": [to_plain(snapshot(0, 3)), to_plain(snapshot(2, 9))]})
    assert main(["stack", "--rank", "0,2-3", "--native", "--diff"]) == 0
    out = capsys.readouterr().out
    assert asked == [{"command": "look", "ranks": [0, 2, 3], "deep": True}]
    assert "most: rank 0 at /home/you/train.py:3 in step" in out and "rank 2: asleep" in out
    assert "not judged: rank 3: not looked at" in out


def test_every_rank_is_asked_for_where_none_is_named(running, capsys):
    asked = running({"ok": True, "looks": [to_plain(snapshot(0, 3)), {"rank": "?"}]})
    assert main(["stack", "--json"]) == 0
    assert asked == [{"command": "look", "ranks": None, "deep": False}]
    assert json.loads(capsys.readouterr().out)["groups"] == [[0]]


@pytest.mark.parametrize(
    ("reply", "code"),
    [({"ok": False, "error": "unknown command 'look'"}, 200), ({"ok": True, "looks": []}, 3), ({"ok": True}, 3)],
)
def test_an_agent_that_does_not_look_is_said(running, capsys, reply, code):
    running(reply)
    assert main(["stack"]) == code
    assert "r-aaaaaa" in capsys.readouterr().err


def test_an_ended_run_shows_the_last_snapshot_of_its_last_attempt(recording, capsys):
    made = recording("r-bbbbbb")
    made.identity()
    for rank, line, attempt in ((0, 1, 0), (0, 2, 1), (1, 2, 1), (0, 3, 1)):
        made.event("look", host="algo-1", rank=rank, look=to_plain(snapshot(rank, line, attempt=attempt)))
    made.event("look", host="algo-1", rank=7, look="cut off")
    made.finish(code=1, status="Failed")
    assert main(["stack", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(one["rank"], one["stacks"][0]["frames"][0]["line"]) for one in facts["snapshots"]] == [(0, 3), (1, 2)]
    assert facts["ended"] is True


def test_a_run_without_a_snapshot_and_ranks_that_are_none(recording, capsys):
    made = recording("r-cccccc")
    made.identity()
    made.finish()
    assert main(["stack"]) == 3
    assert "paceline why r-cccccc" in capsys.readouterr().err
    assert main(["stack", "--rank", "x"]) == 2


def test_what_an_ended_run_cannot_show_is_said(recording, capsys):
    made = recording("r-dddddd")
    made.identity()
    made.event("look", host="algo-1", rank=0, look=to_plain(snapshot(0, 3)))
    made.finish()
    assert main(["stack", "--native"]) == 0
    assert "not judged: C++ frames: the run has ended" in capsys.readouterr().out
    assert main(["stack", "--rank", "7"]) == 3
    assert "r-dddddd holds no stack of rank 7" in capsys.readouterr().err
