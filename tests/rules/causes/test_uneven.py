"""M05, M07 to M09 and M11: ranks that make different numbers of steps, gradients or parameters."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Call, Divergence, GroupCounters, Site
from paceline.diagnosis.desync.calls import CallComparison, RankCalls
from paceline.diagnosis.verdict import diagnose
from paceline.findings import Confidence
from paceline.rules import discover

LOST = ("RuntimeError", "Connection closed by peer [127.0.0.1]:1")


@pytest.fixture
def left(case, exit_of):
    """Rank 1 ended with 0 at its program's end and rank 0 lost it; `own` and `other` are fields of their records."""

    def make(own, other=None, left_by=1):
        exits = exit_of(1, 0), exit_of(0, after=20.1, error=LOST)
        made = case(still=False, lasts=False, exits=exits)
        ranks = {0: replace(made.ranks[0], **other or {}), 1: replace(made.ranks[1], left_by=left_by, **own)}
        return replace(made, ranks=ranks)

    return make


def loaded(length, taken, steps):
    return {"loader_batches": length, "batches_taken": taken, "step_count": steps}


def judged(case):
    causes = [cause for cause in discover("causes") if cause.code[0] in "CRM"]
    return [(finding.code, finding.ranks, finding.confidence) for finding in diagnose(case, causes).findings]


def test_a_rank_that_used_up_a_shorter_loader(left):
    assert judged(left(loaded(12, 12, 12), loaded(40, 13, 12))) == [("M05", (1,), Confidence.HIGH)]


def test_two_epochs_of_a_shorter_loader(left):
    assert judged(left(loaded(12, 24, 24), loaded(13, 25, 24))) == [("M05", (1,), Confidence.HIGH)]


def test_a_rank_that_broke_off_with_batches_left(left):
    assert judged(left(loaded(40, 13, 13), loaded(40, 14, 13))) == [("M11", (1,), Confidence.HIGH)]


def test_a_rank_that_took_a_batch_and_made_no_step(left):
    assert judged(left(loaded(40, 40, 39), loaded(40, 40, 39))) == [("M07", (1,), Confidence.LIKELY)]


def test_a_rank_with_more_steps_than_those_that_wait_for_it(left):
    assert judged(left(loaded(40, 40, 40), loaded(40, 40, 39))) == [("M07", (1,), Confidence.HIGH)]


def test_gradient_accumulation_is_no_skipping(left):
    assert judged(left(loaded(40, 40, 10), loaded(48, 44, 10))) == [("M05", (1,), Confidence.HIGH)]


def test_without_a_loader_the_two_best_are_named(left):
    assert judged(left({})) == [("M05", (1,), Confidence.UNCLEAR), ("M11", (1,), Confidence.UNCLEAR)]


def test_a_rank_that_raised_behind_a_shell_that_ended_with_0_did_not_run_to_its_end(left, exit_of):
    made = left(loaded(12, 12, 12), loaded(40, 13, 12))
    raised = replace(made, exits=(exit_of(1, 0, error=("ValueError", "bad")), *made.exits[1:]))
    assert judged(raised) == [("C01", (1,), Confidence.HIGH)]


def test_a_call_of_exit_is_neither(left):
    assert judged(left({}, left_by=2)) == [("C06", (1,), Confidence.HIGH)]


@pytest.mark.parametrize(
    ("outside", "taken", "named"),
    [(True, 40, [(1,)]), (False, 40, []), (None, 40, []), (True, 39, [])],
)
def test_a_rank_behind_its_loop_that_made_no_step_of_a_batch(outside, taken, named, case, call, found):
    site = Site(file="/w/train.py", line=54, function="main", outside_loop=outside)
    calls = {0: call(45, "allreduce"), 1: replace(call(45, "barrier", shape=None), site=site)}
    divergence = Divergence(group="0", ranks=(0, 1), index=45, found_ns=1, calls=calls, windows={0: (), 1: ()})
    made = case(divergences=(divergence,), heartbeats={})
    ranks = {0: replace(made.ranks[0], **loaded(40, 40, 39)), 1: replace(made.ranks[1], **loaded(40, taken, 39))}
    assert [finding.ranks for finding in found("M07", replace(made, ranks=ranks))] == named


def test_a_rank_in_the_last_barrier_while_the_others_train(case, call, found):
    calls = {0: call(25, "allreduce"), 1: call(25, "barrier", shape=None)}
    divergence = Divergence(group="0", ranks=(0, 1), index=25, found_ns=1, calls=calls, windows={0: (), 1: ()})
    made = case(divergences=(divergence,))
    ranks = {0: replace(made.ranks[0], **loaded(40, 13, 12)), 1: replace(made.ranks[1], **loaded(12, 12, 12))}
    (finding,) = found("M05", replace(made, ranks=ranks))
    assert finding.ranks == (1,) and "barrier" in finding.saw[0]
    assert found("M05", made) == []


@pytest.fixture
def behind_its_loop(case, call, heartbeat):
    """Rank 1 has come to a call behind its loop, while rank 0 has issued nothing from Python since its last step."""

    def make(own=None, other=None, outside=True, **fields):
        last = call(1, "allreduce", line=99, shape=(), size_bytes=8, step=12)
        last = replace(last, site=replace(last.site, outside_loop=outside))
        made = case(heartbeats=[heartbeat(0), heartbeat(1, last_call=last, calls={"0": 1})], **fields)
        ranks = {0: replace(made.ranks[0], **other or {}), 1: replace(made.ranks[1], **own or {})}
        return replace(made, ranks=ranks)

    return make


GLOO = ("gloo::EnforceNotMet", "op.preamble.length <= op.nbytes. 6792 vs 8")


def test_an_evaluation_that_meets_a_step_of_the_others_is_no_call_too_many(behind_its_loop, exit_of):
    met = {"still": False, "lasts": False, "exits": (exit_of(1, -6, error=GLOO),)}
    assert judged(behind_its_loop(**met)) == [("M05", (1,), Confidence.LIKELY)]
    fewer = loaded(12, 15, 12), loaded(40, 13, 12)
    assert judged(behind_its_loop(*fewer, **met)) == [("M05", (1,), Confidence.HIGH)]
    assert judged(behind_its_loop(loaded(40, 12, 12), loaded(40, 13, 12), **met)) == [("M11", (1,), Confidence.HIGH)]
    assert judged(behind_its_loop(outside=False, **met)) == [("M06", (1,), Confidence.HIGH)]


def ran_out(steps, batches, *, taken, made):
    return {"ran_out_steps": steps, "ran_out_batches": batches, "batches_taken": taken, "step_count": made}


def test_an_evaluation_inside_the_loop_of_the_epochs_is_uneven_where_the_loader_had_no_more(behind_its_loop, exit_of):
    met = {"outside": False, "still": False, "lasts": False, "exits": (exit_of(1, -6, error=GLOO),)}
    uneven = [("M05", (1,), Confidence.HIGH)]
    # In the second epoch; the others came to the end of the first one at their step 6, too.
    other = ran_out(6, 6, taken=13, made=12)
    assert judged(behind_its_loop(ran_out(12, 12, taken=12, made=12), other, **met)) == uneven
    # It has begun to evaluate; its loader was read ahead, and says that it is longer than it was.
    own = {"loader_batches": 40, **ran_out(11, 12, taken=14, made=12)}
    assert judged(behind_its_loop(own, {"loader_batches": 40, **other}, **met)) == uneven
    # The others' loader has given its last batch, too, and that one is in a step.
    own, other = ({"loader_batches": length, **ran_out(12, 12, taken=12, made=12)} for length in (12, 13))
    last = other | {"ran_out_steps": None, "ran_out_batches": None, "batches_taken": 13}
    assert judged(behind_its_loop(own, last, **met)) == uneven


def test_a_rank_that_evaluates_alone_is_not_uneven(behind_its_loop, exit_of):
    met = {"outside": False, "still": False, "lasts": False, "exits": (exit_of(1, -6, error=GLOO),)}
    alone = [("M06", (1,), Confidence.HIGH)]
    own = ran_out(12, 12, taken=12, made=12)
    # The others came to the same end, and are in a step of the next epoch; or they are still inside the last step of this one.
    assert judged(behind_its_loop(own, ran_out(12, 12, taken=13, made=12), **met)) == alone
    assert judged(behind_its_loop(own, ran_out(6, 6, taken=12, made=12), **met)) == alone
    # It trains with the batches of another epoch.
    assert judged(behind_its_loop(ran_out(6, 6, taken=13, made=12), ran_out(6, 6, taken=13, made=12), **met)) == alone


def test_the_last_step_of_a_longer_loader_is_a_step(behind_its_loop, exit_of):
    met = {"still": False, "lasts": False, "exits": (exit_of(1, -6, error=GLOO),)}
    uneven = behind_its_loop(loaded(12, 12, 12), loaded(13, 13, 12), **met)
    assert judged(uneven) == [("M05", (1,), Confidence.HIGH)]


def test_an_average_of_the_others_inside_their_loop_does_not_hide_that_one_has_left_it(case, call, heartbeat):
    calls = {
        0: call(44, "barrier", line=187, shape=None, step=16),
        1: call(44, "all_gather", line=196, shape=(1,), dtype="int64", step=5),
    }
    divergence = Divergence(
        group="0", ranks=(0, 1), index=44, found_ns=1, calls=calls, windows={r: (calls[r],) for r in calls}
    )
    steps = {0: 16, 1: 5}
    heartbeats = [heartbeat(rank, step_count=steps[rank], last_call=calls[rank]) for rank in (0, 1)]
    made = case(still=False, divergences=(divergence,), heartbeats=heartbeats)
    ranks = {
        0: replace(made.ranks[0], **ran_out(15, 16, taken=16, made=16)),
        1: replace(made.ranks[1], **ran_out(4, 5, taken=7, made=5)),
    }
    assert judged(replace(made, ranks=ranks)) == [("M05", (1,), Confidence.HIGH)]


def test_a_stream_of_unknown_length_that_ended_is_told_from_a_decision(left):
    more, as_many = ran_out(6, 6, taken=13, made=12), ran_out(6, 6, taken=12, made=12)
    assert judged(left(ran_out(12, 12, taken=12, made=12), more)) == [("M05", (1,), Confidence.HIGH)]
    assert judged(left(ran_out(12, 12, taken=12, made=12), as_many)) == [("M05", (1,), Confidence.LIKELY)]
    left_early = judged(left(ran_out(6, 6, taken=13, made=12), more))
    assert left_early == [("M05", (1,), Confidence.UNCLEAR), ("M11", (1,), Confidence.UNCLEAR)]


def test_ranks_at_the_last_barrier_while_one_saves_its_model_are_not_uneven(behind_its_loop, stall, found):
    late = stall(late=(0,), waiting=(1,))
    assert found("M05", behind_its_loop(still=late)) == []
    both_wait = stall(late=(), waiting=(0, 1))
    assert [finding.ranks for finding in found("M05", behind_its_loop(still=both_wait))] == [(1,)]


def test_a_rank_ahead_in_steps_and_behind_in_collectives_while_the_job_stands(case, heartbeat, found):
    groups = {
        0: (GroupCounters(name="0", enqueued=26, completed=25),),
        1: (GroupCounters(name="0", enqueued=24, completed=24),),
    }
    heartbeats = [heartbeat(0, groups=groups[0]), heartbeat(1, groups=groups[1], step_count=13)]
    (finding,) = found("M07", case(heartbeats=heartbeats))
    assert finding.ranks == (1,) and any("2 collectives behind" in line for line in finding.saw)
    assert found("M07", case()) == []
    # In the middle of an epoch nothing says how many batches it would take.
    made = case(heartbeats=heartbeats)
    ranks = {**made.ranks, 1: replace(made.ranks[1], **loaded(40, 14, 13))}
    assert found("M07", replace(made, ranks=ranks))[0].ruled_out == ()


def test_parameters_without_gradient_are_listed(case, exit_of, found):
    text = "Expected to have finished reduction in the prior iteration.\nParameter indices which did not receive grad for rank 1: 0 1 2"
    (finding,) = found("M08", case(still=False, exits=(exit_of(1, error=("RuntimeError", text)),)))
    assert "parameters 0 1 2" in finding.saw[0] and "the other ranks" in finding.saw[1]


def test_where_every_other_rank_differs_from_rank_0_it_is_the_odd_one(case, exit_of, found):
    def differs(rank):
        return exit_of(
            rank,
            error=(
                "RuntimeError",
                f"[{rank}]: params[0] in this process appears not to match sizes of the same param in process 0.",
            ),
        )

    assert found("M09", case(world_size=3, still=False, exits=(differs(1), differs(2))))[0].ranks == (0,)
    assert found("M09", case(world_size=3, still=False, exits=(differs(2),)))[0].ranks == (2,)


def test_buffers_that_differ_are_told_by_a_broadcast_from_inside_ddp(case):
    comparison = CallComparison(basis="flight recorder")
    for rank, numel in ((0, 6856), (1, 6888), (2, 6856)):
        calls = [Call(index=1, operation="broadcast", issued_ns=0, dtype="Long", shape=(18,))]
        calls.append(Call(index=2, operation="broadcast", issued_ns=0, dtype="Float", shape=(numel,)))
        comparison.add(RankCalls(rank, "0", (), tuple(calls)))
    made = case(world_size=3, still=False, divergences=comparison.divergences(1, final=True))
    assert judged(made) == [("M09", (1,), Confidence.LIKELY)]


def test_sizes_that_gloo_meets_while_ddp_is_made_are_those_of_a_model(case, heartbeat, exit_of):
    def wrapped(*met, phases=("wrapping", "wrapping", "wrapping")):
        fallen = tuple(exit_of(rank, -6, error=GLOO) for rank in met)
        heartbeats = [heartbeat(rank, phase=phase, step_count=0) for rank, phase in enumerate(phases)]
        return case(world_size=3, still=False, lasts=False, exits=fallen, heartbeats=heartbeats)

    assert judged(wrapped(1, 2)) == [("M09", (0,), Confidence.LIKELY)]
    assert judged(wrapped(1, 2, phases=("starting", "wrapping", "wrapping"))) == [("M09", (0,), Confidence.LIKELY)]
    assert judged(wrapped(2)) == [("M09", (0, 2), Confidence.LIKELY)]
    # Rank 0 is elsewhere: what the others met may be a call of its own.
    assert "M09" not in [code for code, *_ in judged(wrapped(1, 2, phases=("communication", "wrapping", "wrapping")))]
