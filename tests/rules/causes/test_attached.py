"""C15, C16, R11, R12 and N15: what is said only of a job that paceline did not start."""

import pytest

from paceline.diagnosis.case import Attached, StoreSeen
from paceline.facts import RankRecord

MEETING = (
    "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py:2100 _new_process_group_helper",
    "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py:1800 init_process_group",
    "/home/me/train.py:12 <module>",
)
STORE = StoreSeen(address="10.0.0.7:29500", answer="answers", joined=3)


def record(rank):
    return RankRecord(host="algo-1", rank=rank, attempt=0, pid=1000 + rank, world_size=4)


def attached(host="algo-1", **fields):
    return {host: Attached(host=host, **{"launcher": "torchrun", "launcher_pid": 900, "store": STORE, **fields})}


def silent(answer):
    return StoreSeen(address="10.0.0.7:29500", answer=answer, holder="pid 900 (torchrun), state T")


def test_a_rank_that_raised_and_stays_is_named_with_the_thread_that_keeps_it(found, case, snapshot, stack):
    stacks = (
        stack("/usr/lib/python3.11/threading.py:1583 _shutdown"),
        stack("/home/me/upload.py:7 send", thread="uploader", main=False),
    )
    raised = {1: "ValueError: bad sample at /home/me/train.py:40"}
    (finding,) = found("C15", case(snapshots=[snapshot(1, stacks=stacks)], attached=attached(raised=raised)))
    assert (finding.ranks, finding.confidence, finding.level) == ((1,), "likely", "crash")
    assert "ValueError: bad sample at /home/me/train.py:40" in finding.saw[0]
    assert any("uploader is at /home/me/upload.py:7" in line for line in finding.saw)


@pytest.mark.parametrize("raised", [{}, {0: "ValueError: another's at /home/me/train.py:40"}])
def test_a_rank_in_its_program_or_without_an_exception_has_not_raised(found, case, snapshot, raised):
    assert not found("C15", case(snapshots=[snapshot(1)], attached=attached(raised={1: "ValueError: caught"})))
    leaving = snapshot(1, "/usr/lib/python3.11/threading.py:1583 _shutdown")
    assert not found("C15", case(snapshots=[leaving], attached=attached(raised=raised)))


@pytest.mark.parametrize(("launcher_pid", "confidence"), [(900, "high"), (None, "likely")])
def test_a_rank_without_a_process_is_named_and_the_others_are_to_be_ended(
    found, case, witness, launcher_pid, confidence
):
    told = attached(missing=(1,), launcher_pid=launcher_pid)
    (finding,) = found("C16", case(snapshots=[witness(0)], attached=told))
    assert (finding.ranks, finding.confidence) == ((1,), confidence)
    assert "rank 1 of 2 has no process on algo-1" in finding.saw[0]
    assert finding.next[1] == "end the others: kill 1000"


def test_nobody_is_gone_while_the_job_moves_or_where_all_are_there(found, case, witness):
    assert not found("C16", case(still=False, snapshots=[witness(0)], attached=attached(missing=(1,))))
    assert not found("C16", case(snapshots=[witness(0)], attached=attached()))
    assert not found("C16", case(snapshots=[witness(0)]))


@pytest.mark.parametrize("answer", ["silent", "refused", "timed out"])
def test_a_store_that_does_not_answer_is_named_with_its_holder(found, case, snapshot, answer):
    told = attached(store=silent(answer))
    (finding,) = found("R11", case(snapshots=[snapshot(0, *MEETING), snapshot(1, *MEETING)], attached=told))
    assert finding.saw[:2] == (
        f"a connection to 10.0.0.7:29500: {answer}",
        "it is held by pid 900 (torchrun), state T",
    )
    assert "ranks 0-1 wait for it" in finding.saw[2]


def test_a_store_is_not_blamed_that_answers_or_that_nobody_waits_for(found, case, snapshot):
    assert not found("R11", case(snapshots=[snapshot(0, *MEETING)], attached=attached()))
    assert not found("R11", case(snapshots=[snapshot(0)], attached=attached(store=silent("silent"))))
    assert not found("R11", case(snapshots=[snapshot(0, *MEETING)], attached=attached(store=None)))


STALE = StoreSeen(address="10.0.0.7:29500", answer="answers", joined=5)


def test_a_restart_whose_ranks_all_meet_at_a_store_with_more_clients_looks_for_old_addresses(found, case, snapshot):
    both = [snapshot(0, *MEETING), snapshot(1, *MEETING)]
    (finding,) = found("R12", case(snapshots=both, attached=attached(restarts=1, store=STALE)))
    assert "counted 5 clients of 2 ranks" in finding.saw[1]


@pytest.mark.parametrize(
    ("ranks", "fields"),
    [((0, 1), {"restarts": 0}), ((0, 1), {"store": STORE}), ((0,), {}), ((0, 1), {"store": None})],
    ids=["first attempt", "two ranks and an agent", "one has not come", "not asked"],
)
def test_it_is_no_old_address(found, case, snapshot, ranks, fields):
    told = attached(**{"restarts": 1, "store": STALE, **fields})
    assert not found("R12", case(snapshots=[snapshot(rank, *MEETING) for rank in ranks], attached=told))


def test_ranks_of_another_host_are_said_not_to_be_looked_at(found, case, stall):
    told = attached(addresses=("10.0.0.8",), hosts_wanted=2)
    here = case(still=stall(late=(), waiting=(0, 1)), attached=told, world_size=4, ranks={0: record(0), 1: record(1)})
    (finding,) = found("N15", here)
    assert finding.ranks == ()
    assert "ranks 0-1 wait for ranks 2-3, which were not looked at" in finding.saw[0]
    assert "10.0.0.8" in finding.next[0]


def test_where_a_rank_here_is_late_or_all_were_looked_at_nobody_points_elsewhere(found, case, stall):
    ranks = {0: record(0), 1: record(1)}
    assert not found("N15", case(still=stall(late=(1,)), attached=attached(), world_size=4, ranks=ranks))
    assert not found("N15", case(still=stall(late=(), waiting=(0, 1)), attached=attached()))
    assert not found("N15", case(still=stall(late=(), waiting=(0, 1)), world_size=4, ranks=ranks))
