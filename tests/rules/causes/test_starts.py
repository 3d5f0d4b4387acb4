"""R01 to R07 and R10: ranks that cannot meet, judged from what each brought to the rendezvous."""

from dataclasses import replace

import pytest

from paceline.diagnosis.snapshots import HostSnapshot
from paceline.diagnosis.verdict import diagnose
from paceline.findings import NO_CODE
from paceline.rules import discover


def started(rank, pid=None, host="algo-1"):
    return {"event": "rank_started", "host": host, "rank": rank, "attempt": 0, "pid": pid or 1000 + rank}


def came(rank, pid=None, host="algo-1", size=2, **more):
    brought = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "script_crc": "a1", "torch": "2.13.0", **more}
    pid = pid or 1000 + rank
    return {
        "event": "rank_joined", "host": host, "rank": rank, "attempt": 0, "pid": pid, "world_size": size, "rendezvous": brought,
    }  # fmt: skip


@pytest.fixture
def meeting(case):
    """A job none of whose ranks has made a step; the heartbeats say who stands in init_process_group."""

    def make(*events, still=True, **fields):
        made = case(still=still, heartbeats=fields.pop("heartbeats", ()), events=events, **fields)
        return replace(made, ranks={rank: replace(record, step_count=0) for rank, record in made.ranks.items()})

    return make


def judged(case):
    causes = [cause for cause in discover("causes") if cause.code[0] in "CRM"]
    found = diagnose(case, causes).findings
    return [(finding.code, finding.ranks) for finding in found if finding.code != NO_CODE]


BOTH = (started(0), started(1))


def test_ranks_that_agree_and_can_meet_are_no_finding(meeting):
    assert judged(meeting(*BOTH, came(0), came(1))) == []


def test_a_host_that_has_not_come_is_named_with_its_ranks(meeting, found):
    entry = {"host": "node 1", "ranks": [2, 3], "saw": "its agent never contacted 10.0.0.1:29400"}
    (finding,) = found("R01", meeting(missing_hosts=(entry,), still=False))
    assert finding.ranks == (2, 3) and finding.hosts == ("node 1",) and entry["saw"] in finding.saw


def test_a_world_size_above_what_was_started(meeting):
    assert judged(meeting(*BOTH, came(0, size=3), came(1, size=3))) == [("R01", (2,))]


def test_a_rank_that_never_calls_init(meeting, found, heartbeat, missing):
    waiting = [heartbeat(0, phase="rendezvous", step_count=0)]
    (finding,) = found("R01", meeting(*BOTH, came(0), heartbeats=waiting))
    assert finding.ranks == (1,) and "pid 1001" in finding.saw[0]
    assert missing("R01", meeting(came(0), heartbeats=waiting)) == "which ranks were started"


def test_another_port_than_rank_0s(meeting):
    assert judged(meeting(*BOTH, came(0), came(1, MASTER_PORT="1"))) == [("R02", (1,))]


def test_what_a_connection_from_its_host_saw(meeting, snapshot, found):
    events = (*BOTH, came(0), came(1, host="algo-2"))
    for seen in ("refused", "timed out", "no route"):
        (finding,) = found("R02", meeting(*events, snapshots=[snapshot(1, rendezvous_seen=seen)]))
        assert finding.ranks == (1,) and any(seen in line for line in finding.saw)
    assert found("R02", meeting(*events, snapshots=[snapshot(1, rendezvous_seen="connected")])) == []


def test_a_name_that_nobody_knows(meeting, snapshot):
    events = (*BOTH, came(0), came(1, MASTER_ADDR="no-such-host"))
    assert judged(meeting(*events, snapshots=[snapshot(1, rendezvous_seen="name not known")])) == [("R03", (1,))]
    tail = "[c10d] The IPv6 network addresses of (no-such-host, 29500) cannot be retrieved (gai error: -2 - Name or service not known)."
    assert judged(meeting(*events, tails={1: tail})) == [("R03", (1,))]


def test_a_loopback_address_is_wrong_on_another_host_only(meeting):
    events = (*BOTH, came(0, MASTER_ADDR="127.0.0.1"), came(1, host="algo-2", MASTER_ADDR="127.0.0.1"))
    assert judged(meeting(*events)) == [("R03", (1,))]
    assert judged(meeting(*BOTH, came(0, MASTER_ADDR="127.0.0.1"), came(1, MASTER_ADDR="127.0.0.1"))) == []


def test_hosts_of_one_machine_meet_at_loopback_addresses(meeting):
    apart = (came(0, MASTER_ADDR="127.0.0.1"), came(1, host="algo-2", MASTER_ADDR="127.0.0.1"))
    here = {"event": "host_joined", "host": "algo-2", "address": "127.0.0.1", "ranks": 1}
    assert judged(meeting(here, *BOTH, *apart)) == []


def test_two_processes_under_one_rank(meeting, exit_of, found):
    events = (*BOTH, came(0), came(0, pid=1001))
    (finding,) = found("R06", meeting(*events))
    assert finding.ranks == (1,) and "started as rank 1, joined as rank 0" in finding.saw[1]
    in_use = exit_of(
        1,
        error=("DistNetworkError", "failed to listen. port: 29500, name: EADDRINUSE, message: address already in use"),
    )
    assert judged(meeting(*events, still=False, lasts=False, exits=(in_use,))) == [("R06", (1,))]
    assert judged(meeting(*events, still=False, lasts=False, exits=(replace(in_use, rank=0),))) == [("R06", (1,))]


def test_a_helper_process_of_a_rank_is_no_second_rank(meeting, found):
    assert found("R06", meeting(*BOTH, came(0), came(0, pid=4242), came(1))) == []


def test_a_rank_that_is_not_below_the_world_size(meeting):
    assert judged(meeting(*BOTH, came(0), came(2, pid=1001))) == [("R06", (1,))]


def test_world_sizes_that_disagree(meeting):
    assert judged(meeting(*BOTH, came(0), came(1, size=3))) == [("R06", (1,))]


def test_ranks_that_already_step_have_met(case, found):
    made = case(events=(*BOTH, came(0), came(1, size=3, MASTER_PORT="1")))
    assert [found(code, made) for code in ("R01", "R02", "R03", "R06")] == [[], [], [], []]


def test_a_clock_far_away_is_named_only_in_trouble(meeting, found):
    snapshots = [HostSnapshot(host="algo-2", at_ns=1, clock_offset_seconds=-300.0, round_trip_seconds=0.001)]
    (finding,) = found("R10", meeting(host_snapshots=snapshots))
    assert finding.hosts == ("algo-2",) and "300 s behind" in finding.saw[0]
    assert found("R10", meeting(host_snapshots=snapshots, still=False)) == []


def test_another_script_is_named_by_its_checksum(meeting, missing, found):
    (finding,) = found("M10", meeting(*BOTH, came(0), came(1, host="algo-2", script_crc="b2")))
    assert finding.ranks == (1,) and finding.hosts == ("algo-2",) and "b2" in finding.saw[0]
    bare = {**came(0), "rendezvous": {}}
    assert missing("M10", meeting(*BOTH, bare)) == "which code each rank runs"


def test_another_python_counts_only_where_there_is_trouble(meeting, found):
    events = (*BOTH, came(0, python="3.11.7"), came(1, python="3.12.1"))
    assert found("M10", meeting(*events, still=False)) == []
    assert found("M10", meeting(*events))[0].ranks == (1,)


def test_another_tensorflow_is_named_where_there_is_trouble(meeting, found):
    events = (*BOTH, came(0, tensorflow="2.21.0"), came(1, tensorflow="2.18.0"))
    assert found("M10", meeting(*events, still=False)) == []
    (finding,) = found("M10", meeting(*events))
    assert finding.saw[0].startswith("TensorFlow on rank 1 (2.18.0) is not that of rank 0 ")


def test_the_most_common_version_is_taken_for_the_right_one(meeting, found):
    events = [came(rank, script_crc="old" if rank == 0 else "new") for rank in range(4)]
    assert found("M10", meeting(*map(started, range(4)), *events, world_size=4))[0].ranks == (0,)
