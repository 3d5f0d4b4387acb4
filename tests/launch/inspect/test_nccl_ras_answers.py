"""Two answers of NCCL's RAS service in a snapshot: what stayed as it was, and whether they are of this job."""

import os

from paceline.diagnosis.snapshots import RasProcess
from paceline.launch.inspect.nccl_ras_answers import address_of, compared
from paceline.probes.nccl_ras import RasAnswer, RasCommunicator, RasMissing, RasRank


def answer(*counts, size=None, missing=(), key="a", **more):
    ranks = tuple(
        RasRank(pid=100 + rank, host="h", counts={"AllReduce": count, "Broadcast": 2})
        for rank, count in enumerate(counts)
    )
    gone = tuple(RasMissing(pid=pid, host="h") for pid in missing)
    most = {"AllReduce": max(counts), "Broadcast": 2}
    one = RasCommunicator(key=key, size=size or len(counts) + len(gone), ranks=ranks, missing=gone, most=most)
    return RasAnswer(communicators=(one,), **more)


HERE = {100, 101}


def test_counts_that_differ_twice_alike_are_those_of_a_hang():
    (group,) = compared(answer(41, 40, 41), answer(41, 40, 41), HERE).groups
    assert group.is_still and group.is_whole and group.launched == (42, 43)
    assert group.behind == (RasProcess(host="h", pid=101),) and len(group.ahead) == 2


def test_counts_that_grow_are_not():
    (group,) = compared(answer(41, 40, 41), answer(41, 41, 42), HERE).groups
    assert not group.is_still


def test_equal_counts_name_nobody():
    (group,) = compared(answer(41, 41), answer(41, 41), HERE).groups
    assert group.is_still and group.is_whole and not group.ahead and not group.behind


def test_a_communicator_that_was_not_there_before_is_not_still():
    (group,) = compared(answer(41, 40, key="b"), answer(41, 40), HERE).groups
    assert not group.is_still


def test_who_gave_no_data_is_told_and_the_communicator_is_not_whole():
    (group,) = compared(answer(41, missing=[101]), answer(41, missing=[101]), HERE).groups
    assert group.silent == (RasProcess(host="h", pid=101),) and not group.is_whole and not group.behind


def test_a_text_that_names_the_odd_ranks_alone_counts_the_others_as_ahead():
    odd = RasCommunicator(
        key="a", size=8, ranks=(RasRank(pid=100, host="h", counts={"AllReduce": 40}),), most={"AllReduce": 41}
    )
    (group,) = compared(RasAnswer(communicators=(odd,)), RasAnswer(communicators=(odd,)), HERE).groups
    assert group.behind == (RasProcess(host="h", pid=100),) and not group.ahead and group.launched == (40, 41)


def test_an_answer_about_other_processes_is_another_jobs():
    found = compared(answer(41, 40), answer(41, 40), {7})
    assert found.groups is None and "no rank of this job" in found.reason


def test_an_answer_that_did_not_come_is_a_reason_and_no_question_is_none():
    assert compared(answer(41), RasAnswer(reason="it did not answer within 0.6 s"), HERE).reason
    assert not compared(None, None, HERE).reason


def test_more_than_is_sent_to_the_first_host_is_not_judged():
    many = answer(*range(1 << 14), 1 << 15)
    assert "too many" in compared(many, many, HERE).reason


def test_a_process_without_nccl_is_not_asked():
    assert address_of([os.getpid(), 1 << 30]) is None
