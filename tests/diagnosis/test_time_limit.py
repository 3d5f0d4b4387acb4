"""The time limit against the pace, and where the time went."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Case, Estimate, Level, RankTiming, Stall, StepTiming
from paceline.diagnosis.time_limit import (
    epochs_of,
    forecast,
    forecast_text,
    largest_cost,
    limit_that_would_do,
    total_steps,
    where_the_time_went,
    will_be_cut,
)
from paceline.facts import RankRecord, Run, Step
from paceline.recording.fact_json import to_plain

SECOND = 1_000_000_000
RUN = Run(id="r-1", name="", directory="/r", command=(), started_ns=1, first_host="algo-1", finished_ns=100 * SECOND)


def timing(*ranks, step=0.1, to_step=50, **fields):
    return StepTiming(window_seconds=20.0, from_step=3, to_step=to_step, step_seconds=step, ranks=ranks, **fields)


def rank(number, **fields):
    return RankTiming(rank=number, host="algo-1", steps=40, step_seconds=0.1, **fields)


def found(total=(1000, "--set total_steps"), limit=60.0, elapsed=15.0, **fields):
    return forecast(
        fields.pop("timing", timing(rank(0))),
        now_ns=round(elapsed * SECOND),
        started_ns=0,
        limit_seconds=limit,
        total=total,
        **fields,
    )


def test_the_option_wins_over_epochs_and_loader():
    assert total_steps(500, 3, 100) == (500, "--set total_steps")
    assert total_steps(None, 3, 100) == (300, "3 epochs of 100 batches")
    assert total_steps(None, 3, None)[0] is None
    assert "--set total_steps" in total_steps(None, None, 100)[1]


@pytest.mark.parametrize(
    ("hyperparameters", "arguments", "epochs"),
    [
        ({"epochs": 3}, (), 3),
        ({"num-epochs": "4"}, (), 4),
        ({}, ("--lr", "0.1", "--epochs", "5"), 5),
        ({}, ("--max_epochs=6",), 6),
        ({"epochs": "many"}, ("--epochs",), None),
        ({}, ("--epochs", "-1"), None),
    ],
)
def test_epochs_come_from_hyperparameters_or_arguments(hyperparameters, arguments, epochs):
    assert epochs_of(hyperparameters, arguments) == epochs


def test_a_job_that_will_be_cut():
    cut = found()
    assert will_be_cut(cut)
    assert cut.needed_seconds == pytest.approx(15 + 950 * 0.1)
    assert cut.reaches_step == 50 + 450
    assert limit_that_would_do(cut) == 130.0
    text = forecast_text(cut)
    assert "at step 500 of 1000" in text
    assert "--max-run 2m10s is long enough" in text


def test_a_job_that_will_be_done_in_time():
    fine = found(limit=300.0)
    assert will_be_cut(fine) is False
    assert fine.reaches_step == 1000
    assert "done after about 1m50s" in forecast_text(fine)


def test_without_the_number_of_steps_it_asks_for_it():
    unknown = found(total=total_steps(None, None, None))
    assert (will_be_cut(unknown), limit_that_would_do(unknown), unknown.reaches_step) == (None, None, 500)
    assert "--set total_steps=N" in forecast_text(unknown)


def test_without_a_limit_the_end_is_foretold_where_the_number_of_steps_is_known():
    free = found(limit=None)
    assert (free.limit_seconds, free.reaches_step, will_be_cut(free)) == (None, None, False)
    assert free.needed_seconds == found().needed_seconds
    assert "done in about 1m35s, 1m50s after its start: step 50 of 1000 (--set total_steps)" in forecast_text(free)
    assert found(limit=None, total=total_steps(None, None, None)) is None


def test_nothing_is_said_too_early():
    assert found(timing=timing(rank(0), to_step=19)) is None
    assert found(timing=None) is None


BEHIND = Estimate(seconds=0.05, low=0.04, high=0.06, blocks=20)


def test_the_largest_cost():
    assert largest_cost(timing(rank(0, data_seconds=0.04, communication_seconds=0.02))) == ("data", pytest.approx(0.4))
    late = timing(
        rank(0, late_seconds=0.0, communication_seconds=0.05),
        rank(1, late_seconds=0.05, communication_seconds=0.0, behind=BEHIND),
        spread_seconds=0.05,
    )
    assert largest_cost(late) == ("waiting for rank 1", pytest.approx(0.5))
    by_chance = timing(rank(0, communication_seconds=0.05), rank(1, behind=replace(BEHIND, low=-0.01)))
    assert largest_cost(by_chance)[0] == "exposed communication"
    loads = timing(
        rank(0, late_seconds=0.0, data_seconds=0.0), rank(1, late_seconds=0.05, data_seconds=0.048, behind=BEHIND)
    )
    assert largest_cost(loads)[0] == "data on rank 1"
    assert largest_cost(timing(rank(0, data_seconds=0.001))) == ("", None)


def case(steps=(), events=(), **fields):
    known = {
        "step_count": 100,
        "step_seconds": 80.0,
        "data_seconds": 10.0,
        "communication_seconds": 20.0,
        "checkpoint_seconds": 5.0,
    }
    record = RankRecord(
        host="algo-1",
        rank=0,
        attempt=0,
        last_step_ns=90 * SECOND,
        checkpoint_outside_seconds=0.0,
        steps=steps,
        **{**known, **fields},
    )
    return Case(run=RUN, now_ns=200 * SECOND, lasts=False, ranks={0: record}, events=events)


def test_where_the_time_went_adds_up_to_the_wall():
    spent = where_the_time_went(case())
    assert dict(spent)["evaluation"] is None
    assert sum(seconds for _, seconds in spent if seconds) == pytest.approx(100.0)
    assert spent[0] == ("compute", 45.0)
    assert dict(spent)["start-up"] == pytest.approx(10.0)


def test_an_evaluation_is_told_from_computing():
    def one(index, ms):
        return Step(index=index, end_ns=0, duration_ns=ms * 1_000_000, data_ns=0, communication_ns=0, checkpoint_ns=0)

    steps = tuple(one(n, 10_100 if n == 50 else 100) for n in range(100))
    spent = dict(where_the_time_went(case(steps=steps)))
    assert spent["evaluation"] == pytest.approx(10.0)
    assert spent["compute"] == pytest.approx(35.0)


@pytest.mark.parametrize("written", [to_plain, lambda stall: stall], ids=["recorded", "live"])
def test_a_stall_is_taken_out_of_what_it_happened_in(written):
    stall = Stall(level=Level.STALL, since_ns=40 * SECOND, detected_ns=44 * SECOND, threshold_seconds=3.0)
    still = (
        {"event": "standstill", "t_ns": 44 * SECOND, "standstill": written(stall)},
        {"event": "standstill_over", "t_ns": 60 * SECOND},
    )
    spent = dict(where_the_time_went(case(events=still)))
    assert spent["stalls"] == pytest.approx(20.0)
    assert sum(seconds for seconds in spent.values() if seconds) == pytest.approx(100.0)
