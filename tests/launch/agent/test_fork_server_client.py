"""A fork server that loads, and one that is there no more."""

import asyncio
import json
import os
import select
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paceline.launch.agent import fork_server_client
from paceline.launch.agent.fork_server_client import ForkRefused

# It is asked, and killed before it has read the question or after that.
PROGRAM = """
import json, os, select, signal, socket, sys

connection = socket.socket(fileno=int(sys.argv[1]))
connection.send(json.dumps({{"ready": True}}).encode())
select.select([connection], [], [])
{then}
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("then", ["", "connection.recv(100)"], ids=["unread", "read"])
def test_a_fork_server_that_is_killed_when_asked_says_how_it_ended(tmp_path, monkeypatch, then):
    program = tmp_path / "dying.py"
    program.write_text(textwrap.dedent(PROGRAM.format(then=then)))
    monkeypatch.setattr(fork_server_client, "PROGRAM", program)
    server = fork_server_client.start_fork_server(sys.executable, os.environ, None)
    try:
        select.select([server.connection], [], [])
        with pytest.raises(ForkRefused, match=r"^the fork server ended with -9$"):
            server.fork([sys.executable, "-u", "train.py"], {}, None, 1, 2)
    finally:
        server.close()


LOADS = """
import json, os, socket, sys, time

connection = socket.socket(fileno=int(sys.argv[1]))
while not os.path.exists("loaded"):
    time.sleep(0.01)
connection.send(json.dumps({"ready": True}).encode())
connection.recv(1)
"""


@pytest.mark.parametrize(
    "seconds, wanted_looks, is_loading",
    [(60.0, 99, False), (0.0, 99, True), (60.0, 2, True)],
    ids=["until it has loaded", "not for ever", "not for an attempt that was given up"],
)
def test_a_restart_waits_for_a_fork_server_that_loads(tmp_path, monkeypatch, seconds, wanted_looks, is_loading):
    program = tmp_path / "loads.py"
    program.write_text(LOADS)
    monkeypatch.setattr(fork_server_client, "PROGRAM", program)
    server = fork_server_client.start_fork_server(sys.executable, os.environ, str(tmp_path))
    looks = []

    def is_wanted():
        looks.append(server.is_loading)
        is_still_wanted = len(looks) <= wanted_looks
        if len(looks) == 3 and is_still_wanted:
            (tmp_path / "loaded").touch()
        return is_still_wanted

    try:
        assert server.is_loading
        asyncio.run(server.loaded(seconds, is_wanted))
        assert server.is_loading is is_loading
    finally:
        server.close()


def test_the_fork_server_imports_with_the_priority_of_a_rank(tmp_path):
    """At a lower one it is never ready on a machine whose CPUs are all busy."""
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(
        "import gc, json, os, threading\nfrom . import cuda\n"
        "task = threading.get_native_id()\n"
        "found = [os.sched_getscheduler(task), os.getpriority(os.PRIO_PROCESS, task), gc.isenabled()]\n"
        "json.dump(found, open('priority', 'w'))\n"
    )
    (torch / "cuda.py").write_text("def is_initialized(): return False\n")
    script = "from paceline.worker.fork_server import preload; print(preload(None))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(fork_server_client.PROGRAM).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "None\n", done.stderr
    usual = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    assert json.loads((tmp_path / "priority").read_text()) == [*usual, False]
