"""N09: frozen by a control group."""

import pytest

from paceline.diagnosis.verdict import diagnose
from paceline.rules import discover


def test_a_frozen_rank(found, case, snapshot):
    (finding,) = found("N09", case(snapshots=[snapshot(1, state="D", frozen=True, thread_states={"D": 13})]))
    assert (finding.ranks, finding.level) == ((1,), "stall")
    assert "threads: 13 in state D" in finding.saw
    assert "/proc/1001/cgroup" in finding.next[0]


@pytest.mark.parametrize("state", ["S", "D", "T", "R"])
def test_a_rank_that_is_not_frozen_is_left_alone(found, case, snapshot, state):
    assert not found("N09", case(snapshots=[snapshot(1, state=state, frozen=False)]))


def test_a_hang_in_the_kernel_is_not_judged_without_the_freezers_word(missing, case, snapshot):
    assert (
        missing("N09", case(snapshots=[snapshot(1, state="D", frozen=None)]))
        == "whether the control group of rank 1 is frozen"
    )


def test_a_sleeper_needs_no_freezers_word(found, case, snapshot):
    assert not found("N09", case(snapshots=[snapshot(1, state="S", frozen=None)]))


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("N01", {}),
        ("N02", {"state": "T", "stacks": None}),
        ("N06", {"cpu_fraction": 1.0}),
        ("N07", {"traceback_answers": False}),
        ("N08", {"state": "D", "wait_channel": "fuse_get_req"}),
        ("N09", {"state": "D", "frozen": True}),
    ],
)
def test_each_of_the_n_causes_wins_on_its_own_evidence(case, snapshot, witness, code, seen):
    """The whole judge, with every cause there is: one answer, and the right one."""
    judged = diagnose(case(snapshots=[snapshot(1, **seen), witness(0)]), discover("causes"))
    stalls = [finding.code for finding in judged.findings if finding.level in ("stall", "waiting")]
    assert stalls == [code]
