"""N14: NCCL's own counts name the rank that has launched fewer collectives, where nothing else does."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.hang.nccl_counts import nccl_counts
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.snapshots import HostSnapshot, RasGroup, RasProcess
from paceline.diagnosis.verdict import diagnose
from paceline.rules import discover

PIDS = {rank: 1000 + rank for rank in range(4)}


def process(rank):
    return RasProcess(host="10.0.0.7", pid=PIDS[rank])


def uneven(behind, ahead, launched=(40, 41), **more):
    fields = {"size": 4, "is_still": True, "is_whole": True, "launched": launched} | more
    return RasGroup(behind=tuple(map(process, behind)), ahead=tuple(map(process, ahead)), **fields)


EQUAL = RasGroup(size=4, is_still=True, is_whole=True, launched=(41, 41))


@pytest.fixture
def hanging(case, heartbeat):
    """A job of four ranks of which nothing else says who is late."""

    def make(*groups, pids=PIDS, **fields):
        heartbeats = [heartbeat(rank, pid=pid) for rank, pid in pids.items()]
        made = case(
            world_size=4,
            heartbeats=heartbeats,
            host_snapshots=[HostSnapshot(host="algo-1", at_ns=0, ras=groups or None)],
            **fields,
        )
        if made.stall is None:
            return made
        return replace(made, stall=replace(made.stall, late=(), behind=(), together=False))

    return make


def test_the_rank_with_fewer_collectives_is_named(found, hanging):
    (finding,) = found("N14", hanging(EQUAL, uneven([2], [0, 1, 3])))
    assert (finding.ranks, finding.confidence) == ((2,), "likely")
    assert "rank 2 launched 40 collectives, others 41" in finding.saw[0]


def test_a_rank_that_waits_in_another_communicator_is_not_named(found, hanging):
    (finding,) = found("N14", hanging(uneven([2], [0]), uneven([3], [1, 2])))
    assert finding.ranks == (3,)


def test_counts_that_still_change_name_nobody(found, hanging):
    assert not found("N14", hanging(uneven([2], [0, 1, 3], is_still=False)))


def test_a_rank_whose_nccl_does_not_answer_is_named(found, hanging):
    (finding,) = found("N14", hanging(RasGroup(size=4, is_still=True, is_whole=False, silent=(process(1),))))
    assert finding.ranks == (1,) and "does not answer" in finding.saw[0]


def test_counts_of_another_job_are_left_alone(found, hanging):
    strange = RasGroup(size=2, is_still=True, is_whole=True, behind=(RasProcess(host="h", pid=9),), ahead=(process(0),))
    assert not found("N14", hanging(strange))


def test_a_process_id_that_two_hosts_have_names_nobody(found, hanging):
    assert not found("N14", hanging(uneven([2], [0, 1]), pids=PIDS | {3: PIDS[2]}))


def test_where_another_source_names_the_rank_it_says_nothing(found, case, heartbeat):
    heartbeats = [heartbeat(rank, pid=pid) for rank, pid in PIDS.items()]
    snapshot = HostSnapshot(host="algo-1", at_ns=0, ras=(uneven([2], [0, 1, 3]),))
    assert not found("N14", case(world_size=4, heartbeats=heartbeats, host_snapshots=[snapshot]))


def test_without_a_hang_or_without_an_answer_nothing_is_said(found, hanging):
    assert not found("N14", hanging())
    assert not found("N14", hanging(uneven([2], [0, 1, 3]), still=False))


def test_equal_counts_show_that_no_rank_is_missing(case, heartbeat):
    inside = GroupCounters(name="0", enqueued=5, completed=4, recorder="nccl", ranks=(0, 1))
    heartbeats = {rank: heartbeat(rank, pid=PIDS[rank], groups=(inside,)) for rank in (0, 1)}
    still = StallDetector(2).observe(heartbeats, heartbeats[0].at_ns)
    snapshot = HostSnapshot(host="algo-1", at_ns=0, ras=(replace(EQUAL, size=2),))
    hang = case(still=still, heartbeats=heartbeats.values(), host_snapshots=[snapshot])
    assert nccl_counts(hang).all_alike
    (finding,) = diagnose(hang, discover("causes")).findings
    assert finding.code == "N11" and any("launched as many collectives" in line for line in finding.saw)
