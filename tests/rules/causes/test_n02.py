"""N02: stopped by a signal, or held by a debugger."""

import pytest

from paceline.diagnosis.snapshots import Socket


def test_a_stopped_rank_is_told_how_to_go_on(found, case, snapshot):
    unread = Socket(local="a", remote="b", state="ESTABLISHED", receive_queue_bytes=384, send_queue_bytes=0)
    (finding,) = found("N02", case(snapshots=[snapshot(1, state="T", stacks=None, sockets=(unread,))]))
    assert finding.ranks == (1,)
    assert finding.next == ("on algo-1: kill -CONT 1001",)
    assert "384 bytes lie unread in its sockets" in finding.saw


def test_a_debugger_is_named(found, case, snapshot):
    (finding,) = found("N02", case(snapshots=[snapshot(1, state="t", tracer_pid=777)]))
    assert finding.title == "rank held by a debugger"
    assert "process 777" in finding.next[0]


@pytest.mark.parametrize("seen", [{"state": "S"}, {"state": "D"}, {"state": "R"}, {"state": "T", "frozen": True}])
def test_other_states_are_left_alone(found, case, snapshot, seen):
    assert not found("N02", case(snapshots=[snapshot(1, **seen)]))


def test_a_traced_rank_that_runs_is_not_held(found, case, snapshot):
    assert not found("N02", case(snapshots=[snapshot(1, state="S", tracer_pid=777)]))


def test_without_a_state_it_is_not_judged(missing, case, snapshot):
    assert missing("N02", case(snapshots=[snapshot(1, state=None)])) == "the process state of rank 1"


def test_a_process_that_is_gone_cannot_be_continued(found, case, snapshot):
    (finding,) = found("N02", case(snapshots=[snapshot(1, state="T")], lasts=False))
    assert "kill -CONT" not in finding.next[0] and "algo-1" in finding.next[0]
