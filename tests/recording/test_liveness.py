"""A dead agent is told from a living one and from one that cannot be looked at."""

import os
from dataclasses import replace

import pytest

from paceline.facts import Run
from paceline.process_identity import start_ticks
from paceline.recording.liveness import Machine, agent_gone, can_be_seen, this_machine

HERE = Machine("node05", "boot-a", "pid:[1]")


@pytest.fixture
def own_run():
    return Run(
        id="r-000001",
        name="",
        directory="/nowhere",
        command=(),
        started_ns=1,
        first_host="algo-1",
        agent_pid=os.getpid(),
        agent_start_ticks=start_ticks(os.getpid()),
        machine="node05",
        boot_id="boot-a",
        pid_namespace="pid:[1]",
    )


def test_this_process_is_alive(own_run):
    assert agent_gone(own_run, HERE) is None
    assert can_be_seen(own_run, HERE)


def test_a_pid_that_is_free_is_gone(own_run):
    gone = agent_gone(replace(own_run, agent_pid=2**22 + 1), HERE)
    assert gone == "pid 4194305 on node05 no longer exists"


def test_a_pid_that_was_given_to_another_process_is_gone(own_run):
    gone = agent_gone(replace(own_run, agent_start_ticks=1), HERE)
    assert gone == f"pid {os.getpid()} on node05 is another process now"


def test_a_machine_that_was_started_again_has_lost_its_agent(own_run):
    gone = agent_gone(replace(own_run, boot_id="boot-before"), HERE)
    assert gone == f"node05 was started again after pid {os.getpid()} was"


@pytest.mark.parametrize(
    "elsewhere",
    [
        Machine("node06", "boot-b", "pid:[1]"),
        Machine("node05", "boot-a", "pid:[2]"),
        Machine("node06", None, None),
    ],
    ids=["another machine", "another pid namespace", "a machine that tells nothing"],
)
def test_what_cannot_be_looked_at_is_not_called_gone(own_run, elsewhere):
    assert agent_gone(replace(own_run, agent_pid=2**22 + 1), elsewhere) is None
    assert not can_be_seen(own_run, elsewhere)


def test_a_run_without_a_pid_is_not_called_gone(own_run):
    assert agent_gone(replace(own_run, agent_pid=None), HERE) is None


def test_a_zombie_counts_as_gone():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert start_ticks(child) is None
    os.waitpid(child, 0)


def test_this_machine_is_named():
    assert this_machine().hostname == os.uname().nodename
