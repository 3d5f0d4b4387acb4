"""N12: a rank's device is behind. The recordings are those of tests/diagnosis/nccl_recordings.py."""

import pytest
from tests.diagnosis.nccl_recordings import FORMS, NOW_NS, heartbeats_of, traces_of

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.snapshots import HostSnapshot
from paceline.diagnosis.verdict import diagnose
from paceline.rules import discover

SYNCHRONIZE = (
    "/usr/lib/python3/site-packages/torch/cuda/__init__.py:1040 synchronize",
    "/home/me/train.py:60 step",
)


@pytest.mark.parametrize("form", [form for form in FORMS if "timing" in form])
def test_the_rank_on_whose_device_the_collective_has_not_begun(case, snapshot, form):
    heartbeats = heartbeats_of(traces_of(form, "compute_blocked"))
    still = StallDetector(3).observe(heartbeats, NOW_NS)
    snapshots = [snapshot(rank, *SYNCHRONIZE) for rank in heartbeats]
    judged = diagnose(
        case(world_size=3, still=still, snapshots=snapshots, heartbeats=heartbeats.values()), discover("causes")
    )
    (finding,) = judged.findings
    assert (finding.code, finding.ranks, finding.confidence) == ("N12", (1,), "high")
    assert "has begun on the devices of the others and not on that of rank 1" in finding.saw[0]


def counters(rank, completed, world):
    return GroupCounters(
        name="0",
        enqueued=9,
        completed=completed,
        recorder="nccl",
        ranks=tuple(range(world)),
        operation="all_reduce",
    )


@pytest.mark.parametrize("behind", [(1,), (0,), (0, 3)])
def test_what_is_over_on_the_others_shows_the_device_that_is_behind(case, snapshot, heartbeat, behind):
    world = 4
    heartbeats = {
        rank: heartbeat(rank, groups=(counters(rank, 5 if rank in behind else 7, world),)) for rank in range(world)
    }
    still = StallDetector(world).observe(heartbeats, heartbeats[0].at_ns)
    assert (still.late, still.behind) == (behind, behind)
    snapshots = [snapshot(rank, *SYNCHRONIZE) for rank in range(world)]
    (finding,) = diagnose(
        case(world_size=world, still=still, snapshots=snapshots, heartbeats=heartbeats.values()), discover("causes")
    ).findings
    assert (finding.code, finding.ranks, finding.confidence) == ("N12", behind, "likely")
    assert finding.saw[0].startswith("other devices wait in all_reduce 6 of group 0 or are past it")


def test_an_error_of_the_gpu_makes_it_sure(found, case, snapshot, heartbeat, stall):
    still = stall(late=(1,), behind=(1,), recorder="nccl", group="0", index=6)
    host = HostSnapshot(
        host="algo-1", at_ns=0, kernel_lines=("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",)
    )
    (finding,) = found("N12", case(still=still, host_snapshots=[host]))
    assert finding.confidence == "high" and "Xid" in finding.saw[1]
    elsewhere = HostSnapshot(host="algo-9", at_ns=0, kernel_lines=host.kernel_lines)
    (finding,) = found("N12", case(still=still, host_snapshots=[elsewhere]))
    assert finding.confidence == "likely"


def test_a_late_rank_that_waits_for_its_own_device_is_not_asleep_in_its_own_code(case, snapshot, witness):
    judged = diagnose(case(snapshots=[snapshot(1, *SYNCHRONIZE), witness(0)]), discover("causes"))
    assert [(finding.code, finding.ranks) for finding in judged.findings] == [("N12", (1,))]


def test_a_sleeper_is_no_matter_of_a_device(found, case, snapshot):
    assert not found("N12", case(snapshots=[snapshot(1)]))
