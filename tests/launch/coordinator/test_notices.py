"""What ranks want the person to know: told once, however many ranks say it."""

import asyncio
from types import SimpleNamespace

import pytest

from paceline.facts import Job, Placement, Program, ProgramKind
from paceline.launch.agent.peer import PeerAgent
from paceline.launch.agent.ring_collector import RingCollector
from paceline.launch.coordinator.coordinator import MOST_OF_RANKS, Notices
from paceline.launch.job.messages import FinishMessage, StartAttemptMessage
from paceline.launch.job.outcome import completed
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import Cell, RingWriter


def said(text, rank=0, attempt=0):
    return {"text": text, "rank": rank, "attempt": attempt, "topic": "gradients"}


def test_the_first_rank_that_says_it_is_told_and_the_others_are_not():
    notices = Notices()
    assert [notices.are_new("notice", said("direct", rank)) for rank in range(3)] == [True, False, False]
    assert notices.are_new("notice", said("rank 2 differs", 2))
    assert notices.are_new("notice", said("direct", attempt=1))


def test_what_agents_say_themselves_is_always_told():
    notices = Notices()
    assert all(notices.are_new("notice", {"text": "installing x"}) for _ in range(2))
    assert all(notices.are_new("rank_started", {"rank": 1, "text": "same"}) for _ in range(2))


def test_ranks_that_never_stop_talking_are_not_told_for_ever():
    notices = Notices()
    assert sum(notices.are_new("notice", said(str(number))) for number in range(MOST_OF_RANKS * 2)) == MOST_OF_RANKS


def test_a_notice_beside_the_ring_is_taken_once_and_cannot_steer_the_terminal(tmp_path):
    writer = RingWriter(tmp_path / "2-7.ring", capacity=256)
    writer.cells[Cell.PID], writer.cells[Cell.RANK] = 7, 3
    rings = RingCollector(tmp_path, RunDirectory(tmp_path / "run"), "h", 2)
    (tmp_path / "2-7.texts").write_text('["notice", 1, "gradients", "direct\\u001b[2J chosen"]\n["notice", 2, "x"]\n')
    rings.drain()
    assert rings.newly_said() == [{"rank": 3, "attempt": 2, "topic": "gradients", "text": "direct [2J chosen"}]
    assert rings.newly_said() == []
    rings.close()
    writer.drop()


@pytest.mark.parametrize(
    ("here", "there", "told"), [("ring", "auto", 1), ("auto", "auto", 0), (None, "auto", 0), ("ring", None, 1)]
)
def test_a_host_that_was_started_with_another_strategy_says_whose_counts(here, there, told):
    placed = Placement(host="algo-2", address="b", node_rank=0, first_rank=0, ranks=1)
    messages = [
        StartAttemptMessage(attempt=0, placements=(placed,), master_addr="a", store_port=1, gradients=there),
        FinishMessage(outcome=completed()),
    ]
    said = []

    async def hear():
        return messages.pop(0)

    async def beat():
        return None

    async def finish(exit_code, failure):
        return None

    local = SimpleNamespace(
        identity=SimpleNamespace(name="algo-2"), start_attempt=lambda message: None, finish=finish,
        event=lambda name, **fields: said.append(fields["text"]),
    )  # fmt: skip
    job = Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), gradients=here)
    link = SimpleNamespace(hear=hear, beat=beat, close=lambda: None)
    agent = PeerAgent(job=job, link=link, first_name="algo-1", local=local, report=lambda event: None)
    asyncio.run(agent.run())
    assert len(said) == told and all("the first host's counts" in text for text in said)
