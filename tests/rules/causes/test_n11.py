"""N11: a collective that all ranks have come to does not end. The recordings are those of tests/diagnosis/nccl_recordings.py."""

import pytest
from tests.diagnosis.nccl_recordings import FORMS, NOW_NS, heartbeats_of, traces_of

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.verdict import diagnose
from paceline.rules import discover

SYNCHRONIZE = (
    "/usr/lib/python3/site-packages/torch/cuda/__init__.py:1040 synchronize",
    "/home/me/train.py:60 step",
)


def recorded(case, snapshot, form, situation):
    heartbeats = heartbeats_of(traces_of(form, situation))
    stall = StallDetector(len(heartbeats)).observe(heartbeats, NOW_NS)
    snapshots = [snapshot(rank, *SYNCHRONIZE) for rank in heartbeats]
    return case(world_size=len(heartbeats), still=stall, snapshots=snapshots, heartbeats=heartbeats.values())


@pytest.mark.parametrize("form", FORMS)
def test_a_hung_kernel_is_told_as_one_and_no_rank_is_named(case, snapshot, form):
    judged = diagnose(recorded(case, snapshot, form, "hung_kernel"), discover("causes"))
    (finding,) = judged.findings
    assert (finding.code, finding.ranks, finding.hosts) == ("N11", (), ())
    assert "all_reduce 5 of group 0, 4,096 float32, by NCCL's flight recorder" in finding.saw[0]
    assert finding.confidence == ("high" if "timing" in form else "likely")
    assert any("what would decide it" in text for text in finding.next) == ("timing" not in form)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "2.4.1" and "timing" not in form])
def test_without_timing_a_kernel_before_the_collective_looks_the_same(case, snapshot, form):
    (finding,) = diagnose(recorded(case, snapshot, form, "compute_blocked"), discover("causes")).findings
    assert (finding.code, finding.ranks, finding.confidence) == ("N11", (), "likely")
    assert "a kernel before it may be the reason" in finding.saw[1]


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_rank_is_no_hung_collective(found, case, snapshot, form):
    assert not found("N11", recorded(case, snapshot, form, "missing_rank"))


def test_what_waits_on_a_device_without_a_comparison_is_not_judged(missing, case, snapshot, heartbeat, stall):
    """A batch of sends on torch 2.15: the recorder counts that something is not over, and does not show it."""
    counters = GroupCounters(name="0", enqueued=4, completed=4, recorder="nccl2", ranks=(0, 1), unshown=True)
    still = stall(late=(), waiting=(0, 1), basis="phase")
    heartbeats = [heartbeat(rank, groups=(counters,)) for rank in (0, 1)]
    assert missing("N11", case(still=still, heartbeats=heartbeats)) == (
        "in what ranks 0-1 wait on the device, and for which ranks"
    )


def test_gloo_alone_is_never_a_matter_of_devices(found, case, snapshot, heartbeat, stall):
    counters = GroupCounters(name="0", enqueued=5, completed=4)
    still = stall(late=(), waiting=(0, 1))
    assert not found("N11", case(still=still, heartbeats=[heartbeat(rank, groups=(counters,)) for rank in (0, 1)]))
