"""Asking a fork server that is there no more."""

import os
import select
import sys
import textwrap

import pytest

from paceline.launch.agent import fork_server
from paceline.launch.agent.fork_server import ForkRefused

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
    monkeypatch.setattr(fork_server, "PROGRAM", program)
    server = fork_server.start_fork_server(sys.executable, os.environ, None)
    try:
        select.select([server.connection], [], [])
        with pytest.raises(ForkRefused, match=r"^the fork server ended with -9$"):
            server.fork([sys.executable, "-u", "train.py"], {}, None, 1, 2)
    finally:
        server.close()
