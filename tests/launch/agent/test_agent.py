"""One host's agent on its own: messages that come close together, and what it says when it cannot do what it is told."""

import asyncio
import os
from dataclasses import replace

import pytest

from paceline.facts import Job, Placement, Program, ProgramKind
from paceline.launch.agent.agent import HostAgent
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.job_processes import guarded
from paceline.launch.agent.output import Pump
from paceline.launch.agent.scratch import make_scratch
from paceline.launch.job.messages import ExitedMessage, IdleMessage, RefusedMessage, StartAttemptMessage, StopMessage
from paceline.recording.layout import RunDirectory

pytestmark = pytest.mark.process


@pytest.fixture
def host(tmp_path):
    """A host agent whose program leaves a file behind, and what it has said so far."""
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'started')!r}, 'w').close()\n")
    said, pump = [], Pump()
    mark = os.urandom(16).hex()
    scratch = make_scratch(mark, {}, shared_memory=tmp_path / "none")
    with guarded(mark, scratch.roots) as processes:
        agent = HostAgent(
            job=Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target=str(script))),
            identity=HostIdentity(run_id="r-1", job_name="j", name="h0", mark=mark, environ=dict(os.environ)),
            directory=RunDirectory(tmp_path / "run"),
            scratch=scratch,
            pump=pump,
            processes=processes,
            uplink=said.append,
        )
        yield agent, said
        pump.close()


FORM = StartAttemptMessage(
    attempt=0,
    placements=(Placement(host="h0", address="127.0.0.1", node_rank=0, first_rank=0, ranks=1),),
    master_addr="127.0.0.1",
    store_port=1,
)


def told(agent, *commands):
    """Give the commands without a turn of the loop between them, then wait until no rank is left."""

    async def main():
        for command, *arguments in commands:
            command(*arguments)
        async with asyncio.timeout(30):
            await agent.wait_idle()
        await agent.finish(0, "")

    asyncio.run(main())


def test_a_rank_that_ends_well_is_reported_and_then_the_host_is_idle(host, tmp_path):
    agent, said = host
    told(agent, (agent.start_attempt, FORM))
    exits = [message.exit.code for message in said if isinstance(message, ExitedMessage)]
    assert exits == [0] and IdleMessage(attempt=0) in said and (tmp_path / "started").exists()


def test_what_is_kept_of_the_ranks_is_reported_when_none_is_left(host):
    agent, said = host
    agent = replace(agent, job=replace(agent.job, resume=True))
    told(agent, (agent.start_attempt, FORM))
    assert [message.kept for message in said if isinstance(message, IdleMessage)] == [{0: []}]


STOP = StopMessage(signal="SIGTERM", grace_seconds=30.0, reason="enough")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_stop_right_behind_the_start_is_not_lost(host, tmp_path, end):
    agent, said = host
    told(agent, (agent.start_attempt, FORM), (agent.stop, STOP) if end == "stop" else (agent.kill,))
    assert IdleMessage(attempt=0) in said and not (tmp_path / "started").exists()


def test_what_keeps_a_host_from_starting_is_said_and_never_only_swallowed(host):
    agent, said = host
    agent = replace(agent, job=replace(agent.job, program=replace(agent.job.program, arguments=("a\0b",))))
    told(agent, (agent.start_attempt, FORM))
    refused = [message for message in said if isinstance(message, RefusedMessage)]
    assert len(refused) == 1 and "null byte" in refused[0].saw
    assert IdleMessage(attempt=0) in said
