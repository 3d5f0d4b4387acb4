"""What a host reports of the ends of its ranks, and when: judged ones, kills that the job may go on from, and companions that were lost."""

import asyncio
import json
import signal
from types import SimpleNamespace

import pytest

from paceline.facts import Placement
from paceline.launch.agent.attempt_exits import AttemptExits, was_killed
from paceline.launch.agent.companion import Companions
from paceline.launch.agent.exit_reason import Ending
from paceline.launch.agent.ring_collector import Leaving
from paceline.launch.agent.workers import WorkerEnd
from paceline.launch.job.outcome import MISMATCH_CODE


class State:
    """Stands for the buffers of ranks: those whose numbers are in `stops` found another state than was kept."""

    def __init__(self, keeps=True, stops=()):
        self.keeps, self.stops, self.step_counts = keeps, stops, None

    def may_go_on(self, step_counts):
        self.step_counts = step_counts
        return self.keeps

    def stopped(self, local_rank):
        return local_rank in self.stops

    def not_put_back(self, local_rank):
        return False


def end(rank, code, *, signalled_ns=0):
    return WorkerEnd(SimpleNamespace(rank=rank, local_rank=rank - 4), 1000 + rank, code, 14, signalled_ns)


def reported(tmp_path, act, state=None):
    """What a host with ranks 4 and 5 has reported when `act(exits)` is over, and of that the judged exits."""
    said = []

    async def main():
        exits = AttemptExits(
            attempt=SimpleNamespace(
                identity=SimpleNamespace(name="h"), message=SimpleNamespace(attempt=2), state=state, errors=tmp_path,
                placement=Placement(host="h", address="a", node_rank=1, first_rank=4, ranks=2),
            ),
            began=0.0,
            oom_before=None,
            pump=SimpleNamespace(of_attempt=lambda: SimpleNamespace(catch_up=print, tail=lambda rank, stream: "")),
            monitor=SimpleNamespace(
                ranks_by_pid=dict, last_words=lambda pid: None, headers=lambda: {5: SimpleNamespace(step_count=7)}
            ),
            companions=Companions("h", list, print, print, print),
            report=said.append,
            event=print,
            spawn=asyncio.ensure_future,
        )  # fmt: skip
        await act(exits)
        return exits

    exits = asyncio.run(main())
    told = [(message.exit.rank, message.exit.code, message.early, message.resumable) for message in said]
    return exits, told, [message.exit for message in said if not message.early]


def test_an_end_is_reported_once_it_is_judged(tmp_path):
    async def act(exits):
        exits.ended(end(4, 0), [1005])
        exits.ended(end(5, 3), [])
        await exits.judged()

    exits, said, _ = reported(tmp_path, act)
    assert sorted(said) == [(4, 0, False, False), (5, 3, False, False)]
    assert not exits.keep_state


def test_the_kill_of_a_rank_whose_state_is_kept_is_reported_before_it_is_judged(tmp_path):
    async def act(exits):
        exits.ended(end(4, -signal.SIGKILL), [1005])
        exits.ended(end(5, -signal.SIGKILL, signalled_ns=13), [])
        await exits.judged()

    state = State()
    exits, said, _ = reported(tmp_path, act, state)
    kill = -signal.SIGKILL
    assert said[0] == (4, kill, True, True) and sorted(said[1:]) == [(4, kill, False, False), (5, kill, False, False)]
    assert exits.keep_state and state.step_counts == {1: 7}


def test_the_kill_of_a_rank_that_keeps_no_state_is_only_judged(tmp_path):
    async def act(exits):
        exits.ended(end(4, -signal.SIGKILL), [])
        await exits.judged()

    exits, said, _ = reported(tmp_path, act, State(keeps=False))
    assert said == [(4, -signal.SIGKILL, False, False)] and not exits.keep_state


def test_a_rank_that_ended_by_itself_as_the_others_were_killed_is_judged_before_it_is_reported(tmp_path):
    async def act(exits):
        exits.ended(end(4, 1), [1005])
        exits.ended(end(5, -signal.SIGKILL, signalled_ns=13), [])
        await exits.report_early()

    (tmp_path / "1004.json").write_text(json.dumps({"type": "KeyError", "message": "'x'", "time_ns": 1}))
    _, said, judged = reported(tmp_path, act, State())
    assert (4, 1, False, False) in said and (4, 1, True, False) not in said
    assert {rank for rank, *_ in said} == {4, 5}
    assert [exit.error.type for exit in judged if exit.rank == 4] == ["KeyError"]


def test_a_rank_that_found_another_state_is_named(tmp_path):
    async def act(exits):
        exits.report = lambda message: found.append(message.exit.state_mismatch)
        exits.ended(end(4, MISMATCH_CODE), [1005])
        exits.ended(end(5, MISMATCH_CODE), [])
        await exits.judged()

    found = []
    reported(tmp_path, act, State(stops=(1,)))
    assert sorted(found) == [False, True]


def test_if_a_companion_is_lost_that_is_why_each_rank_ended(tmp_path):
    async def act(exits):
        exits.companions.lost = "the server of h ended with 3"
        exits.ended(end(4, -signal.SIGKILL, signalled_ns=13), [])
        exits.report_not_run(5, Ending(1, note=exits.companions.lost))
        await exits.judged()

    _, said, judged = reported(tmp_path, act)
    assert sorted(said) == [(4, 1, False, False), (5, 1, False, False)]
    assert {exit.note for exit in judged} == {"the server of h ended with 3"}


@pytest.mark.parametrize(
    ("code", "signalled_ns", "said", "killed"),
    [
        (-signal.SIGKILL, 0, None, True),
        (-signal.SIGSEGV, 0, None, True),
        (-signal.SIGKILL, 0, Leaving(1, 0), True),
        (-signal.SIGSEGV, 0, Leaving(1, 0), False),
        (-signal.SIGKILL, 13, None, False),
        (1, 0, None, False),
    ],
)
def test_a_rank_was_killed_in_its_work_by_another(code, signalled_ns, said, killed):
    assert was_killed(end(4, code, signalled_ns=signalled_ns), SimpleNamespace(said=said)) is killed
