"""A run is asked through its socket, and a run that cannot be asked says so."""

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from paceline.errors import HostLost, UsageError
from paceline.facts import Run
from paceline.process_identity import start_ticks
from paceline.recording.control import ask
from paceline.recording.liveness import Machine

HERE = Machine("node05", "boot-a", "pid:[1]")


@pytest.fixture
def own_run(tmp_path):
    return Run(
        id="r-000001",
        name="",
        directory=str(tmp_path),
        command=(),
        started_ns=1,
        first_host="algo-1",
        agent_pid=os.getpid(),
        agent_start_ticks=start_ticks(os.getpid()),
        machine="node05",
        boot_id="boot-a",
        pid_namespace="pid:[1]",
        control_socket=str(tmp_path / "s"),
    )


@pytest.fixture
def agent(own_run):
    """An agent that answers one request with what it was given to say."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(own_run.control_socket)
    server.listen()
    asked = []

    def serve(reply):
        def one():
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                asked.append(json.loads(lines.readline()))
                connection.sendall(reply)

        thread = threading.Thread(target=one)
        thread.start()
        return thread, asked

    yield serve
    server.close()


def test_the_agent_is_asked_and_its_answer_comes_back(own_run, agent):
    thread, asked = agent(b'{"ok":true}\n')
    assert ask(own_run, {"command": "stop", "now": False}, machine=HERE) == {"ok": True}
    thread.join()
    assert asked == [{"command": "stop", "now": False}]


@pytest.mark.parametrize("reply", [b"", b"garbage\n", b"[1]\n"])
def test_an_answer_that_is_none_is_an_agent_that_does_not_answer(own_run, agent, reply):
    thread, _ = agent(reply)
    with pytest.raises(HostLost) as lost:
        ask(own_run, {"command": "status"}, machine=HERE)
    thread.join()
    assert lost.value.code == "U19"


def test_an_agent_on_another_machine_is_named_with_its_pid(own_run):
    with pytest.raises(UsageError) as refused:
        ask(own_run, {"command": "stop"}, machine=Machine("login1", "boot-b", "pid:[1]"))
    assert refused.value.code == "U19"
    assert f"pid {os.getpid()} on node05" in refused.value.what
    assert refused.value.next == f"ssh node05 kill -TERM {os.getpid()}"


def test_an_agent_that_is_gone_is_said_to_be(own_run):
    with pytest.raises(HostLost) as lost:
        ask(replace(own_run, agent_start_ticks=1), {"command": "stop"}, machine=HERE)
    assert lost.value.code == "U19"
    assert "node05" in lost.value.what and "another process" in lost.value.saw


def test_a_socket_that_is_not_there_is_an_agent_that_does_not_answer(own_run):
    with pytest.raises(HostLost) as lost:
        ask(own_run, {"command": "stop"}, machine=HERE)
    assert own_run.control_socket in lost.value.saw


def test_a_run_without_a_socket_cannot_be_asked(own_run):
    with pytest.raises(UsageError) as refused:
        ask(replace(own_run, control_socket=None), {"command": "stop"}, machine=HERE)
    assert refused.value.code == "U19"


def test_who_only_wants_to_look_is_never_told_to_send_a_signal(own_run):
    with pytest.raises(HostLost) as lost:
        ask(own_run, {"command": "look"}, machine=HERE)
    assert lost.value.next == "paceline why r-000001"
    with pytest.raises(UsageError) as refused:
        ask(own_run, {"command": "look"}, machine=Machine("login1", "boot-b", "pid:[1]"))
    assert refused.value.next == f"ssh node05 paceline stack {own_run.directory}"


def test_an_agent_of_another_user_is_said_to_be_one(own_run, agent, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", denied)
    with pytest.raises(UsageError) as refused:
        ask(own_run, {"command": "look"}, machine=HERE)
    assert refused.value.code == "U19" and "another user" in refused.value.what
    assert refused.value.next == "as the user who started it: paceline stack r-000001"


STRANGER = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(sys.argv[1])
os.setuid(2002)
listener.listen()
print("here", flush=True)
connection, _ = listener.accept()
print(len(connection.recv(1)), flush=True)
connection.sendall(b'{"ok":true}' + bytes([10]))
"""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_who_listens_in_the_agents_place_is_told_nothing(own_run):
    words = [sys.executable, "-c", STRANGER, own_run.control_socket]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as stranger:
        assert stranger.stdout.readline() == "here\n"
        with pytest.raises(UsageError) as refused:
            ask(own_run, {"command": "stop", "now": True}, machine=HERE)
        assert refused.value.code == "U19" and "another user listens there" in refused.value.saw
        assert stranger.stdout.readline() == "0\n"
