"""The agent's side of the process that saves the state."""

import asyncio
import os
from pathlib import Path

import pytest
from kept_state import Rank, complete
from patience import patient

from paceline.parts.resume.agent.saver_client import StateSaver
from paceline.parts.resume.agent.saver_process import SaverOrder
from paceline.parts.resume.recording.saved_state import JobFacts
from paceline.parts.resume.state_store import state_store

JOB = JobFacts(run_id="r-1", script="/t.py", script_sha256="00", hash_seed="7")


@pytest.fixture
def rank():
    made = Rank()
    made.keep(1)
    yield made
    os.close(made.descriptor)


class Told:
    """What the agent is told, as it comes."""

    def __init__(self):
        self.answers = asyncio.Queue()

    async def one(self):
        return await asyncio.wait_for(self.answers.get(), patient(60))


def with_saver(rank, place, play):
    async def whole():
        told = Told()
        order = SaverOrder((rank.descriptor,), str(place), JOB, 3600.0)
        saver = StateSaver(order, dict(os.environ), told.answers.put_nowait)
        try:
            await play(saver, told)
        finally:
            saver.close()
        assert not os.path.exists(f"/proc/{saver.pid}")

    asyncio.run(whole())


def test_the_first_save_is_told_and_each_request_is_answered(tmp_path, rank):
    store = state_store(str(tmp_path))

    async def play(saver, told):
        assert (await told.one()).step == 1
        rank.keep(2)
        answer = await saver.ask("save", patient(60))
        assert (answer.step, answer.failed, saver.newest.step) == (2, "", 2) and sorted(complete(store)) == [1, 2]
        assert (await saver.ask("end", patient(60))).failed == "" and complete(store) == {}
        assert told.answers.empty()

    with_saver(rank, tmp_path, play)


def test_nothing_on_its_command_line_is_what_a_user_kills_agents_by(tmp_path, rank):
    async def play(saver, told):
        # It is empty for a moment while the new program begins.
        while not (words := Path(f"/proc/{saver.pid}/cmdline").read_bytes()):
            pass
        _, *arguments = words.split(b"\0")
        assert b"state-saver" in arguments and not any(b"paceline" in argument for argument in arguments)

    with_saver(rank, tmp_path, play)


def test_it_has_a_low_priority_beside_the_sessions_of_the_ranks_too(tmp_path, rank):
    async def play(saver, told):
        await told.one()
        assert os.getpriority(os.PRIO_PROCESS, saver.pid) == 10
        group = Path(f"/proc/{saver.pid}/autogroup")
        if group.exists():
            assert group.read_text().endswith(" nice 10\n")

    with_saver(rank, tmp_path, play)


def test_a_saver_that_was_killed_is_told_once_and_answers_with_the_step_that_is_there(tmp_path, rank):
    async def play(saver, told):
        await told.one()
        os.kill(saver.pid, 9)
        said = await told.one()
        assert said.step == 1 and "ended by itself" in said.failed and saver.has_left
        answer = await saver.ask("save", patient(60))
        assert answer.step == 1 and answer.failed and told.answers.empty()

    with_saver(rank, tmp_path, play)


def test_a_save_that_fails_is_told_once_until_one_has_succeeded(tmp_path, rank):
    place = tmp_path / "state"
    place.write_text("in the way")

    async def play(saver, told):
        assert (await told.one()).failed
        for _ in range(3):
            assert (await saver.ask("save", patient(60))).failed
        assert told.answers.empty()
        place.unlink()
        assert (await saver.ask("save", patient(60))).step == 1
        assert (await told.one()).failed == ""

    with_saver(rank, place, play)
