"""A host's fork server: started once every rank has made a step, and what is said where ranks are no forks of it."""

import asyncio
import os
import sys
from types import SimpleNamespace

import pytest

from paceline.launch.agent import fork_server_client
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.host_fork_server import HostForkServer

SPEC = SimpleNamespace(argv=[sys.executable, "-u", "train.py"], environment=dict(os.environ), working_directory=None)
LOADS = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).recv(1)"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host of two ranks, and its events. The fork server never has loaded."""
    program = tmp_path / "loads.py"
    program.write_text(LOADS)
    monkeypatch.setattr(fork_server_client, "PROGRAM", program)
    monkeypatch.setattr(fork_server_client, "is_subreaper", lambda: True)
    events = []
    identity = HostIdentity(run_id="r", job_name="j", name="h", mark="m", environ={})
    server = HostForkServer(identity, 2, set(), lambda name, **fields: events.append((name, fields)))
    yield server, events
    server.close()


def headers(*step_counts, environment_changed=False):
    return {
        rank: SimpleNamespace(step_count=count, environment_changed=environment_changed)
        for rank, count in enumerate(step_counts)
    }


def start(server, seen, spec=SPEC):
    """Let it wait for the first steps; `seen`: the headers at each look."""
    asyncio.run(server.start_after_first_step(spec, 0, iter(seen).__next__, keeps_state=False))


def test_it_starts_once_every_rank_has_made_a_step_and_not_twice(host):
    server, events = host
    start(server, [{}, headers(1), headers(1, 0), headers(2, 1)])
    assert server.lasting == {server.server.pid} and events == [("fork_server", {"attempt": 0, "refused": ""})]
    start(server, [])
    server.close()
    assert (server.server, server.lasting) == (None, set())


def test_no_attempt_that_is_over_starts_one(host):
    server, events = host
    start(server, [headers(1, 0), None])
    assert server.server is None and events == []


def test_why_there_is_none_is_recorded_and_said_at_a_restart(host):
    server, events = host
    server.ranks_started(0, "")
    server.ranks_started(1, "")
    start(server, [headers(1, 1)], SimpleNamespace(**{**vars(SPEC), "argv": ["sh", "train.sh"]}))
    server.ranks_started(2, "")
    early, refused = "its ranks had not made their first step", fork_server_client.NOT_PYTHON
    text = "the ranks of h are new processes, not forks"
    assert events == [
        ("notice", {"text": f"{text}: {early}"}),
        ("fork_server", {"attempt": 0, "refused": refused}),
        ("notice", {"text": f"{text}: {refused}"}),
    ]


def test_one_that_refused_is_ended_and_one_that_loads_is_not(host):
    server, events = host
    start(server, [headers(1, 1)])
    server.ranks_started(1, "it has not imported torch yet")
    process = server.server.process
    process.kill()
    process.wait()
    server.ranks_started(2, "the fork server ended with -9")
    assert server.server is None and [fields["text"].rpartition(": ")[2] for name, fields in events[1:]] == [
        "it has not imported torch yet",
        "the fork server ended with -9",
    ]
