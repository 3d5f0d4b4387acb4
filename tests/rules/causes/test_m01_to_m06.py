"""Ranks whose collectives differ: each kind is one cause's, and no other's."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Call, Divergence, GroupCounters, Heartbeat
from paceline.diagnosis.desync.calls import CallComparison, RankCalls
from paceline.diagnosis.verdict import diagnose
from paceline.findings import Confidence
from paceline.rules import discover

CODES = ("M01", "M02", "M03", "M04", "M06")
GLOO = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 6792 vs 4. Received data size"


@pytest.fixture
def diverged(call):
    """The divergence of ranks that issue these calls, one step each: dicts of what differs from an all_reduce of 16 floats at line 60."""

    def make(*ranks, backend="gloo", habit=3):
        comparison = CallComparison()
        for rank, special in enumerate(ranks):
            calls = [call(index=at + 1, step=at) for at in range(habit)]
            calls += [call(index=habit + at + 1, step=habit, **fields) for at, fields in enumerate(special)]
            comparison.add(RankCalls(rank, "0", tuple(range(len(ranks))), tuple(calls), backend=backend))
        return comparison.divergences(1, final=True)

    return make


def codes_of(found, case):
    return [code for code in CODES if found(code, case)]


CASES = {
    "M01": [{"operation": "broadcast", "reduce_op": None, "root": 0}],
    "M02": [{"shape": (32,), "size_bytes": 128}],
    "M03": [{"reduce_op": "MAX"}],
    "M04": [{"line": 61, "shape": (4,)}, {}],
    "M06": [{"line": 99, "shape": (1,)}, {}],
}


@pytest.mark.parametrize("code", CASES)
@pytest.mark.parametrize("odd", [0, 1])
def test_each_disagreement_is_one_causes_and_names_the_rank_that_left_the_habit(found, case, diverged, code, odd):
    usual = [{}, {"line": 61, "shape": (4,)}] if code == "M04" else [{}]
    ranks = [usual, usual]
    ranks[odd] = CASES[code]
    of_job = case(still=False, divergences=diverged(*ranks))
    assert codes_of(found, of_job) == [code]
    (finding,) = found(code, of_job)
    assert (finding.ranks, finding.level, finding.since_step) == ((odd,), "divergence", 3)
    assert any("/home/me/train.py:60" in line for line in (*finding.saw, *finding.next))


def test_where_a_rank_stands_whose_call_no_line_of_python_made(found, case, call, snapshot):
    """DDP broadcasts its buffers in C++; a snapshot has the line below which it does."""
    calls = {
        0: replace(call(operation="broadcast", index=5), site=None),
        1: call(operation="barrier", index=5, line=40),
    }
    windows = {rank: (one,) for rank, one in calls.items()}
    divergence = Divergence(
        group="0", ranks=(0, 1), index=5, found_ns=1, calls=calls, windows=windows, basis="recorder"
    )
    stands = snapshot(0, "/v/site-packages/torch/nn/parallel/distributed.py:1 forward", "/home/me/train.py:16 loss_of")
    of_job = case(still=False, divergences=(divergence,), snapshots=(stands,))
    saw = [line for code in ("M01", "M06") for finding in found(code, of_job) for line in finding.saw]
    assert "rank 0 stands at /home/me/train.py:16 in loss_of" in saw


def test_a_case_without_divergences_is_silent(found, case):
    assert codes_of(found, case()) == []


def test_without_a_habit_both_of_two_ranks_are_named_and_less_is_sure(found, case, diverged):
    (finding,) = found("M03", case(still=False, divergences=diverged([{}], [{"dtype": "int32"}], habit=0)))
    assert (finding.ranks, finding.confidence) == ((0, 1), Confidence.LIKELY)


@pytest.mark.parametrize(("backend", "sure"), [("gloo", Confidence.HIGH), ("nccl", Confidence.UNCLEAR)])
def test_a_gather_may_have_sizes_of_its_own_where_the_backend_allows_it(found, case, diverged, backend, sure):
    one, other = {"operation": "gather", "line": 70}, {"operation": "gather", "shape": (9,), "line": 70}
    (finding,) = found("M02", case(still=False, divergences=diverged([one], [other], [one], backend=backend)))
    assert (finding.ranks, finding.confidence) == ((1,), sure)


def test_equally_many_elements_in_another_arrangement_are_unclear(found, case, diverged):
    (finding,) = found("M02", case(still=False, divergences=diverged([{}], [{"shape": (4, 4)}])))
    assert finding.confidence is Confidence.UNCLEAR


def heartbeats(call, sizes=(4,)):
    last = call(index=1, line=99, shape=(1,), size_bytes=sizes[0])
    for rank in (0, 1):
        more = {"last_call": last, "calls": {"0": 1}} if rank else {}
        yield Heartbeat(host="algo-1", rank=rank, at_ns=5, moved_ns=5, step_count=13, **more)


def test_a_call_that_met_an_exchange_of_gradients_is_told_by_gloos_sizes(found, case, call, exit_of):
    fallen = exit_of(0, -6, error=("gloo::EnforceNotMet", GLOO))
    of_job = case(still=False, lasts=False, heartbeats=heartbeats(call), exits=(fallen,))
    (finding,) = found("M06", of_job)
    assert (finding.ranks, finding.confidence, finding.since_step) == ((1,), Confidence.HIGH, 13)
    assert "6792 bytes" in finding.saw[1]
    # The rank that gloo ended is nobody's cause.
    said = diagnose(of_job, discover("causes"))
    assert [kept.code for kept in said.findings] == ["M06"]


def test_gloos_sizes_without_a_call_that_explains_them_are_unclear(found, case, exit_of):
    fallen = exit_of(0, -6, error=("gloo::EnforceNotMet", GLOO))
    of_job = case(still=False, lasts=False, heartbeats=(), exits=(fallen,))
    assert found("M06", of_job) == []
    (finding,) = found("M02", of_job)
    assert (finding.confidence, finding.ranks) == (Confidence.UNCLEAR, ())


def test_the_flight_recorder_has_no_lines_of_code_so_the_newest_call_gives_its_own(found, case, call):
    comparison = CallComparison(basis="flight recorder")
    bucket = {"operation": "all_reduce", "shape": (6792,), "dtype": "Float", "issued_ns": 0}
    for rank in (0, 1):
        calls = [Call(index=index, **bucket) for index in (1, 2, 3)]
        calls.append(Call(index=4, operation="barrier", issued_ns=0) if rank else Call(index=4, **bucket))
        comparison.add(RankCalls(rank, "0", (), tuple(calls)))
    barrier = call(index=1, operation="barrier", dtype=None, shape=None, reduce_op=None, line=99)
    stands = [
        Heartbeat(host="algo-1", rank=rank, at_ns=5, moved_ns=5, step_count=13, last_call=barrier if rank else None)
        for rank in (0, 1)
    ]
    (finding,) = found("M06", case(heartbeats=stands, divergences=comparison.divergences(1, final=True)))
    assert (finding.ranks, finding.since_step) == ((1,), 13)
    assert "train.py:99" in finding.saw[0]


def test_a_call_at_whose_place_ddp_exchanges_gradients_elsewhere_is_one_too_many(
    found, case, call, diverged, heartbeat
):
    recorded = {
        0: call(19, "all_reduce", shape=(6792,), site=None, reduce_op=None),
        1: call(19, "all_reduce", shape=(1,), site=None, reduce_op=None),
    }
    divergence = Divergence(
        group="0",
        ranks=(0, 1),
        index=19,
        found_ns=0,
        calls=recorded,
        windows={rank: (one,) for rank, one in recorded.items()},
        basis="flight recorder",
        recorder="nccl2",
    )
    alone = heartbeat(1, calls={"0": 1}, last_call=call(1, "all_reduce", shape=(1,)))
    (finding,) = found("M06", case(heartbeats=(heartbeat(0), alone), divergences=(divergence,)))
    assert finding.ranks == (1,) and "collective 19 of group 0, rank 0 has all_reduce" in finding.saw[1]
    made_too = heartbeat(0, calls={"0": 1}, last_call=call(1, "all_reduce", shape=(1,)))
    assert found("M06", case(heartbeats=(made_too, alone), divergences=(divergence,))) == []


def in_lane(rank, entered, over, **more):
    lane = GroupCounters(
        name="gradients/0", enqueued=entered, completed=over, everybody=True, operation="all_reduce", numel=6792
    )
    return Heartbeat(host="algo-1", rank=rank, at_ns=5, moved_ns=5, step_count=13, exchanges=(lane,), **more)


def test_a_call_that_waits_for_ranks_that_wait_in_a_lane_for_its_maker_is_one_too_many(found, case, call):
    alone = {"last_call": call(index=7, line=99, shape=(1,)), "calls": {"0": 7}, "phase": "communication"}
    others = {"last_call": call(index=6), "calls": {"0": 6}, "phase": "training"}
    stands = in_lane(0, 14, 13, **others), in_lane(1, 13, 13, **alone), in_lane(2, 14, 13, **others)
    (finding,) = found("M06", case(heartbeats=stands))
    assert (finding.ranks, finding.confidence, finding.since_step) == ((1,), Confidence.LIKELY, 13)
    assert "train.py:99" in finding.saw[0]
    assert finding.saw[1] == "ranks 0,2 cannot come: they wait for rank 1 in all_reduce 14 of group gradients/0"
    # One that has come to the lane as well waits there with the others, and is none.
    assert found("M06", case(heartbeats=(stands[0], in_lane(1, 14, 13, **alone), stands[2]))) == []
    assert found("M06", case(heartbeats=(in_lane(0, 13, 13, **others), stands[1], stands[2]))) == []
