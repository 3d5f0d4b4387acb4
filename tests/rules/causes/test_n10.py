"""N10: on its way out, while others wait."""

import pytest

from paceline.diagnosis.verdict import diagnose
from paceline.facts import RankError
from paceline.findings import Confidence
from paceline.rules import discover

TRAIN = "/home/me/train.py"
EXIT_HANDLER = f"{TRAIN}:12 upload"
ALL_REDUCE = "/venv/site-packages/torch/distributed/distributed_c10d.py:2800 all_reduce"


@pytest.fixture
def leaving(case, snapshot, heartbeat, stall, at):
    """A case in which rank 1 has been leaving for 36 s when it is looked at."""

    def made(*frames, basis="flight recorder", waiting=(0,), **seen):
        heartbeats = [heartbeat(0), heartbeat(1, finalizing_ns=at(24))]
        still = stall(basis=basis, waiting=waiting, operation="allreduce", group="0", index=37)
        return case(still=still, snapshots=[snapshot(1, *(frames or (EXIT_HANDLER,)), **seen)], heartbeats=heartbeats)

    return made


def test_it_says_since_when_where_and_who_waits_in_what(found, leaving):
    (finding,) = found("N10", leaving())
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", Confidence.HIGH)
    assert "ended 36 s ago" in finding.saw[0]
    assert f"{TRAIN}:12" in finding.saw[1]
    assert finding.saw[2].startswith("rank 0 waits in all_reduce (collective 37 of group 0) for rank 1")


def test_an_exception_that_the_rank_reported_is_why_it_leaves(found, leaving):
    raised = RankError(type="IndexError", message="list index out of range\n", time_ns=0, file=TRAIN, line=31)
    (finding,) = found("N10", leaving(raised=raised))
    assert f"it raised IndexError at {TRAIN}:31 (list index out of range) 36 s ago" in finding.saw[0]
    assert finding.next[0] == "paceline logs r-000001 --rank 1 --stderr"
    (finding,) = found("N10", leaving(raised=RankError(type="MyError", message="", time_ns=0)))
    assert "it raised MyError 36 s ago" in finding.saw[0]


@pytest.mark.parametrize(
    "seen",
    [
        {},
        {"cpu_fraction": 1.0},
        {"cpu_fraction": 1.0, "stack_moved": True},
        {"written_bytes_per_second": 5e6},
        {"children_cpu_fraction": 1.0},
        {"ping_answers": None, "traceback_answers": None, "stacks": None},
    ],
    ids=["sleeps", "spins", "computes", "writes", "waits for a child", "no stack"],
)
def test_whatever_it_does_at_its_exit_is_one_finding(leaving, seen):
    judged = diagnose(leaving(**seen), discover("causes"))
    assert [finding.code for finding in judged.findings if finding.level in ("stall", "waiting")] == ["N10"]


def test_by_stacks_alone_it_is_likely(found, leaving):
    (finding,) = found("N10", leaving(basis="stacks"))
    assert finding.confidence is Confidence.LIKELY


def test_a_rank_that_waits_itself_in_an_exit_handler_holds_up_nobody(found, leaving):
    assert not found("N10", leaving(ALL_REDUCE, EXIT_HANDLER))


def test_a_rank_that_nobody_waits_for_may_take_as_long_as_it_likes(found, leaving):
    assert not found("N10", leaving(waiting=()))


def test_a_stopped_rank_is_left_to_its_own_cause(found, leaving):
    assert not found("N10", leaving(state="T"))


def test_a_rank_that_trains_is_not_leaving(found, case, snapshot):
    assert not found("N10", case(snapshots=[snapshot(1)]))


def test_without_a_snapshot_it_is_not_judged(missing, case):
    assert missing("N10", case()) == "a snapshot of rank 1"
