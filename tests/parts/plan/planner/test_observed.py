"""What a recording says of a step."""

from dataclasses import replace

import pytest

from paceline.diagnosis.slow.steady_step import WARMUP_STEPS
from paceline.facts import Evidence, RankRecord, Run, Step
from paceline.parts.plan.planner.observed import measurement_of, observed, step_count

MS = 1_000_000
START = 1_795_000_000_000_000_000


def steps(count, ms=100, data_ms=5, communication_ms=10, slow=()):
    found, end = [], START
    for index in range(1, count + 1):
        duration = (900 if index <= WARMUP_STEPS else 500 if index in slow else ms) * MS
        end += duration
        found.append(
            Step(
                index=index,
                end_ns=end,
                duration_ns=duration,
                data_ns=data_ms * MS,
                communication_ns=communication_ms * MS,
                checkpoint_ns=0,
            )
        )
    return tuple(found)


def rank(number, made, *, host="algo-1", world_size=2, communication=1.0, attempt=0):
    return RankRecord(
        host=host,
        rank=number,
        attempt=attempt,
        world_size=world_size,
        step_count=len(made),
        step_seconds=sum(one.duration_ns for one in made) / 1e9,
        last_step_ns=made[-1].end_ns if made else None,
        data_seconds=1.0,
        communication_seconds=communication,
        checkpoint_seconds=0.0,
        steps=made,
    )


def recording(*ranks, events=(), telemetry=None):
    run = Run(id="r-1", name="train", directory="/r", command=(), started_ns=START - 2_000 * MS, first_host="algo-1")
    hosts = tuple(dict.fromkeys(one.host for one in ranks))
    return Evidence(run=run, hosts=hosts, ranks=tuple(ranks), events=tuple(events), telemetry=telemetry or {})


def test_a_step_is_the_median_after_the_warm_up_and_its_parts_add_up():
    seen = observed(recording(rank(0, steps(25, slow=(20,))), rank(1, steps(25, communication_ms=20))))
    assert seen.measurement.step_seconds == pytest.approx(0.1)
    assert (seen.measurement.hosts, seen.measurement.devices, seen.steps) == (1, 2, 20)
    assert seen.mean_step_seconds > 0.105
    parts = seen.compute_seconds + seen.measurement.loading_seconds + seen.measurement.exposed_communication_seconds
    assert parts + seen.checkpoint_seconds == pytest.approx(0.1)
    assert seen.measurement.exposed_communication_seconds == pytest.approx(0.015)


def test_the_start_is_what_came_before_the_first_step():
    assert observed(recording(rank(0, steps(25)), rank(1, steps(25)))).startup_seconds == pytest.approx(2.0)


def test_too_few_steps_are_no_measurement():
    assert measurement_of(recording(rank(0, steps(WARMUP_STEPS + 2)))) is None
    assert measurement_of(recording()) is None


def test_what_a_rank_did_not_see_stays_unknown():
    seen = observed(recording(rank(0, steps(25), communication=None), rank(1, steps(25))))
    assert seen.measurement.exposed_communication_seconds is None
    assert seen.compute_seconds is None and seen.ranks[0].own_seconds is None


def test_one_rank_alone_exchanges_nothing():
    seen = observed(recording(rank(0, steps(25), world_size=1, communication=None)))
    assert seen.measurement.exposed_communication_seconds == 0.0


def test_the_newest_attempt_that_stepped_counts_and_its_hosts_are_those_of_its_beginning():
    placed = {"event": "attempt_started", "attempt": 1, "hosts": [{"host": "algo-1"}, {"host": "algo-2"}]}
    first, second = rank(0, steps(25, ms=300)), rank(0, steps(25), attempt=1)
    broken = replace(rank(0, ()), attempt=2)
    seen = observed(recording(first, second, broken, events=[placed]))
    assert seen.measurement.step_seconds == pytest.approx(0.1)
    assert (seen.measurement.hosts, seen.measurement.devices) == (2, 2)
    assert seen.startup_seconds is None


def test_the_load_of_a_host_is_that_of_the_steps():
    made = steps(25)
    at = [START + second * 1000 * MS for second in (0, 5, 6)]
    lines = [
        {"t_ns": t, "cpu": {"count": 2, "busy_fraction": share}, "pressure": {"cpu": {"some_seconds": waited}}}
        for t, share, waited in zip(at, (0.1, 0.9, 1.0), (0.0, 1.0, 1.5), strict=True)
    ]
    (load,) = observed(recording(rank(0, made, world_size=1), telemetry={"algo-1": tuple(lines)})).hosts
    assert (load.cpu_count, load.busy_fraction, load.waited_fraction) == (2, pytest.approx(0.95), pytest.approx(0.5))


def test_a_timing_says_who_comes_late():
    timing = {
        "attempt": 0,
        "step_bytes": 400.0,
        "ranks": [{"rank": 0, "late_seconds": 0.0}, {"rank": 1, "late_seconds": 0.03}],
    }
    seen = observed(recording(rank(0, steps(25)), rank(1, steps(25)), events=[{"event": "tempo", "tempo": timing}]))
    assert seen.late_seconds == {0: 0.0, 1: 0.03} and seen.step_bytes == 400.0


def test_who_comes_late_by_chance_does_not_come_late():
    ranks = [{"rank": 0, "late_seconds": 0.002}, {"rank": 1, "late_seconds": 0.003}]
    even = {"attempt": 0, "ranks": ranks, "held_up": {}}
    late = {**even, "held_up": {"ranks": [1], "gain": {"seconds": 0.03, "low": 0.02, "high": 0.04, "blocks": 20}}}
    made = (rank(0, steps(25)), rank(1, steps(25)))
    assert observed(recording(*made, events=[{"event": "tempo", "tempo": even}])).late_seconds == {}
    assert observed(recording(*made, events=[{"event": "tempo", "tempo": late}])).late_seconds == {1: 0.03}


def test_the_job_is_as_far_as_its_last_rank():
    assert step_count([rank(0, steps(25)), rank(1, steps(7))]) == 7
    assert step_count([]) == 0
