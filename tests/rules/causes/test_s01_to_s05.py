"""Slow ranks: a straggler, a quota, too many threads, a neighbour, a loader."""

from dataclasses import replace

import pytest

from paceline.diagnosis.snapshots import HostSnapshot
from paceline.diagnosis.verdict import diagnose
from paceline.facts import Step
from paceline.findings import Confidence
from paceline.rules import discover

CODES = ("S01", "S02", "S03", "S04", "S05")


@pytest.fixture
def slow(case):
    """A case in which nothing stands still, with this step timing."""
    return lambda timing, **fields: case(still=False, timing=timing, world_size=len(timing.ranks), **fields)


@pytest.fixture
def codes(slow):
    """The codes that the judge keeps for a step timing, all causes asked."""
    causes = [cause for cause in discover("causes") if cause.code.startswith("S")]
    return lambda timing, **fields: [finding.code for finding in diagnose(slow(timing, **fields), causes).findings]


@pytest.mark.parametrize("code", CODES)
def test_an_even_job_is_healthy(code, found, slow, timing, rank_timing):
    assert found(code, slow(timing(rank_timing(0), rank_timing(1, 2.0)))) == []


@pytest.mark.parametrize("code", CODES)
def test_without_a_timing_nothing_is_said(code, missing, case, timing, rank_timing):
    assert "steady" in missing(code, case(still=False))
    assert "10 s" in missing(
        code, case(still=False, timing=timing(rank_timing(0), rank_timing(1, 30.0), window_seconds=4.0))
    )


def test_a_straggler_before_backward(found, slow, timing, rank_timing):
    (finding,) = found("s01", slow(timing(rank_timing(0), rank_timing(1, 30.0, slow_since_step=199))))
    assert (finding.ranks, finding.since_step, finding.confidence) == ((1,), 199, Confidence.HIGH)
    assert "costs 30 ms of each step of 50 ms (60%); without it a step would take about 20 ms" in finding.saw[0]
    assert "before backward" in finding.saw[1]


def test_a_straggler_inside_backward(found, slow, timing, rank_timing):
    late = rank_timing(1, 30.0, lags=(0.0, 0.001, 0.03))
    (finding,) = found("s01", slow(timing(rank_timing(0), late)))
    assert "late from bucket 3 on" in finding.saw[1]


def test_a_straggler_measured_on_two_ranks(found, slow, timing, rank_timing):
    # A busy loop of 40 ms in the forward pass of rank 1, on a machine that others used as well.
    zero = rank_timing(
        0, step_ms=60.8, lags=(0.0, 0.0, 0.0), communication_seconds=0.0513435, late_seconds=0.0, last_fraction=0.0
    )
    one = rank_timing(
        1,
        step_ms=60.8,
        lags=(0.0443746, 0.0463487, 0.0468477),
        communication_seconds=0.0082043,
        late_seconds=0.051363,
        last_fraction=1.0,
        slow_since_step=6,
    )
    (finding,) = found("s01", slow(timing(zero, one, step_ms=60.79, spread_seconds=0.051363)))
    assert (finding.ranks, finding.since_step) == ((1,), 6)
    assert "before backward" in finding.saw[1]


def test_without_lags_own_times_tell_less_surely(found, missing, slow, timing, rank_timing):
    unseen = {"lags": None, "late_seconds": None, "last_fraction": None}
    ranks = (rank_timing(0, **unseen, own_seconds=0.02), rank_timing(1, 30.0, **unseen, own_seconds=0.05))
    (finding,) = found("s01", slow(timing(*ranks)))
    assert (finding.ranks, finding.confidence) == ((1,), Confidence.LIKELY)
    blind = (rank_timing(0, **unseen), rank_timing(1, **unseen))
    assert "is late" in missing("s01", slow(timing(*blind)))


def test_ranks_that_do_not_wait_for_each_other_in_every_step_are_not_compared(missing, slow, timing, rank_timing):
    # One in no_sync runs ahead of the others, by more than a step.
    assert "in every step" in missing("s01", slow(timing(rank_timing(0), rank_timing(1, 90.0), step_ms=68.5)))


def test_two_stragglers_of_four(found, slow, timing, rank_timing):
    ranks = (rank_timing(0), rank_timing(1, 30.0), rank_timing(2, 1.0), rank_timing(3, 28.0))
    (finding,) = found("s01", slow(timing(*ranks)))
    assert finding.ranks == (1, 3)


def test_a_quota_of_one_rank(found, codes, slow, snapshot, timing, rank_timing):
    stopped = timing(rank_timing(0), rank_timing(1, 20.0, lags=(0.01, 0.01, 0.01)))
    snapshots = [snapshot(1, throttled_fraction=1.0, cpu_quota_cpus=0.25)]
    (finding,) = found("s02", slow(stopped, snapshots=snapshots))
    assert finding.ranks == (1,)
    assert "(0.25 CPUs) stopped rank 1 in 100% of its periods" in finding.saw[0]
    assert "costs 20 ms" in finding.saw[1]
    assert codes(stopped, snapshots=snapshots) == ["S02"]


def test_a_quota_of_the_whole_container(found, slow, timing, rank_timing):
    stopped = timing(rank_timing(0), hosts={"algo-1": {"throttled_fraction": 0.8, "cpu_quota_cpus": 0.5}})
    (finding,) = found("s02", slow(stopped))
    assert (finding.ranks, finding.hosts) == ((0,), ("algo-1",))


def test_a_quota_that_costs_nothing_or_is_unknown(found, missing, slow, snapshot, timing, rank_timing):
    fast = timing(rank_timing(0, 30.0), rank_timing(1))
    assert found("s02", slow(fast, snapshots=[snapshot(1, throttled_fraction=0.5)])) == []
    unknown = timing(rank_timing(0), rank_timing(1), hosts={"algo-1": {"throttled_fraction": None}})
    assert "cpu.stat" in missing("s02", slow(unknown))


BUSY = {"algo-1": {"cpu_count": 2, "busy_fraction": 1.0, "pressure_cpu": 0.9}}
CROWDED = {"algo-1": {**BUSY["algo-1"], "ranks_cpu": 0.4}}


def host_snapshot(foreign=(), **fields):
    return HostSnapshot(host="algo-1", at_ns=0, cpu_count=2, pressure_cpu=0.9, foreign=foreign, **fields)


def test_too_many_threads(found, codes, slow, snapshot, timing, rank_timing):
    crowded = timing(rank_timing(0), rank_timing(1), hosts={"algo-1": {**BUSY["algo-1"], "ranks_cpu": 1.9}})
    snapshots = [snapshot(rank, host="algo-1", omp_threads=8, affinity_cpus=2) for rank in (0, 1)]
    (finding,) = found("s03", slow(crowded, snapshots=snapshots, host_snapshots=[host_snapshot()]))
    assert (finding.ranks, finding.confidence) == ((0, 1), Confidence.HIGH)
    assert "2 ranks on algo-1 want 16 threads to run on 2 cores" in finding.saw[0]
    assert finding.next[0].startswith("OMP_NUM_THREADS=1")
    assert codes(crowded, snapshots=snapshots, host_snapshots=[host_snapshot()]) == ["S03"]


def test_too_many_threads_are_not_judged_unseen_and_not_where_a_neighbour_is(
    found, missing, slow, snapshot, timing, rank_timing
):
    crowded = timing(rank_timing(0), rank_timing(1), hosts=BUSY)
    assert "threads" in missing("s03", slow(crowded))
    snapshots = [snapshot(0, host="algo-1", omp_threads=8, affinity_cpus=2)]
    assert (
        found("s03", slow(crowded, snapshots=snapshots, host_snapshots=[host_snapshot(((77, "stress", 1.5),))])) == []
    )
    quiet = timing(rank_timing(0), rank_timing(1))
    assert found("s03", slow(quiet, snapshots=snapshots)) == []


def test_a_neighbour(found, codes, missing, slow, timing, rank_timing):
    crowded = timing(rank_timing(0, cpu_wait_seconds=0.02), rank_timing(1, cpu_wait_seconds=0.02), hosts=BUSY)
    snapshots = [host_snapshot(((77, "stress", 1.5), (78, "cc1", 0.2)))]
    (finding,) = found("s04", slow(crowded, host_snapshots=snapshots))
    assert finding.hosts == ("algo-1",)
    assert "pid 77 (stress) outside the job uses 1.5 cores" in finding.saw[0]
    assert finding.next == ("see what it is, on algo-1, and end or move it: ps -fp 77,78",)
    assert codes(crowded, host_snapshots=snapshots) == ["S04"]
    assert "outside the job" in missing("s04", slow(crowded))


@pytest.mark.parametrize(("waited", "confidence"), [(0.02, Confidence.HIGH), (0.001, Confidence.LIKELY)])
def test_a_neighbour_on_the_host_of_the_late_ranks(found, codes, slow, timing, rank_timing, waited, confidence):
    late = [rank_timing(rank, lag, cpu_wait_seconds=waited) for rank, lag in enumerate((30.0, 28.0))]
    busy = timing(*late, rank_timing(2), rank_timing(3), hosts=BUSY)
    snapshots = [host_snapshot(((77, "stress", 1.5),))]
    (finding,) = found("s04", slow(busy, host_snapshots=snapshots))
    assert (finding.ranks, finding.confidence) == ((0, 1), confidence)
    assert codes(busy, host_snapshots=snapshots) == ["S04"]


def test_a_neighbour_does_not_explain_one_straggler_of_the_host(codes, timing, rank_timing):
    busy = timing(rank_timing(0), rank_timing(1, 30.0), hosts=BUSY)
    assert codes(busy, host_snapshots=[host_snapshot(((77, "pytest", 1.2),))]) == ["S01"]


def test_many_small_programs_are_a_neighbour_and_no_threads_of_the_job(found, slow, snapshot, timing, rank_timing):
    # Two ranks that compute, each with a second thread that happens to be ready to run.
    crowded = timing(rank_timing(0, cpu_wait_seconds=0.02), rank_timing(1, cpu_wait_seconds=0.02), hosts=CROWDED)
    snapshots = [
        snapshot(rank, host="algo-1", omp_threads=1, thread_states={"R": 2}, affinity_cpus=2) for rank in (0, 1)
    ]
    assert found("s03", slow(crowded, snapshots=snapshots, host_snapshots=[host_snapshot()])) == []
    (finding,) = found("s04", slow(crowded, snapshots=snapshots, host_snapshots=[host_snapshot()]))
    assert finding.saw[0] == "programs outside the job used 1.6 cores of algo-1 over 20 s"


def test_a_program_that_ran_for_the_moment_of_the_snapshot_is_no_neighbour(found, slow, timing, rank_timing):
    alone = timing(rank_timing(0), rank_timing(1), hosts={"algo-1": {**BUSY["algo-1"], "ranks_cpu": 1.9}})
    assert found("s04", slow(alone, host_snapshots=[host_snapshot(((77, "apt", 1.5),))])) == []


def test_hosts_of_one_machine_have_one_neighbour(found, slow, timing, rank_timing):
    ranks = (rank_timing(0, cpu_wait_seconds=0.02), rank_timing(1, host="algo-2", cpu_wait_seconds=0.02))
    busy = timing(*ranks, hosts={name: {**CROWDED["algo-1"], "ranks_cpu": 0.2} for name in ("algo-1", "algo-2")})
    both = [replace(host_snapshot(((77, "stress", 1.5),), machine="m"), host=name) for name in ("algo-1", "algo-2")]
    (finding,) = found("s04", slow(busy, host_snapshots=both))
    assert (finding.ranks, finding.hosts) == ((0, 1), ("algo-1", "algo-2"))
    assert len(found("s04", slow(busy, host_snapshots=[replace(one, machine=one.host) for one in both]))) == 2


@pytest.mark.parametrize(
    ("waited", "confidence", "most_ms"),
    [
        ((0.0, 0.0), None, 0),
        ((0.002, 0.002), None, 0),
        ((0.004, 0.004), "likely", 8),
        ((0.02, 0.02), "high", 40),
        ((None, None), "high", 50),
    ],
)
def test_a_neighbour_costs_at_most_what_the_ranks_waited_for_a_cpu(
    found, slow, timing, rank_timing, waited, confidence, most_ms
):
    ranks = [
        rank_timing(rank, cpu_wait_seconds=seconds, communication_seconds=0.001) for rank, seconds in enumerate(waited)
    ]
    crowded = timing(*ranks, hosts=CROWDED)
    said = found("s04", slow(crowded, host_snapshots=[host_snapshot(((77, "stress", 1.5),))]))
    assert [str(finding.confidence) for finding in said] == ([confidence] if confidence else [])
    for finding in said:
        (cost,) = [float(text.split("it costs ")[1].split(" ms")[0]) for text in finding.saw if "it costs" in text]
        assert cost <= most_ms


@pytest.mark.parametrize("waited, said", [(0.0, ["S01"]), (0.028, ["S04"])])
def test_a_late_rank_that_had_no_cpu_is_the_neighbours(waited, said, codes, timing, rank_timing):
    late = timing(rank_timing(0), rank_timing(1, 30.0, cpu_wait_seconds=waited), hosts=CROWDED)
    assert codes(late, host_snapshots=[host_snapshot(((77, "pytest", 1.2),))]) == said


def test_a_rank_that_alone_had_no_cpu_is_not_surely_the_neighbours(found, slow, timing, rank_timing):
    late = timing(rank_timing(0), rank_timing(1, 30.0, cpu_wait_seconds=0.028), hosts=CROWDED)
    (finding,) = found("s04", slow(late, host_snapshots=[host_snapshot(((77, "pytest", 1.2),))]))
    assert finding.confidence is Confidence.LIKELY


def test_a_neighbour_is_not_charged_with_a_stragglers_own_milliseconds(found, slow, timing, rank_timing):
    late = timing(rank_timing(0), rank_timing(1, 30.0, cpu_wait_seconds=0.018), hosts=CROWDED)
    (finding,) = found("s04", slow(late, host_snapshots=[host_snapshot(((77, "pytest", 1.2),))]))
    said = " ".join(finding.saw)
    assert "it costs 18 ms of each step" in said and "30 ms" not in said
    assert "rank 1 is late by 12 ms of a step besides, which this does not explain" in said
    assert finding.confidence is Confidence.LIKELY


def test_time_stolen_by_other_guests(found, slow, timing, rank_timing):
    stolen = timing(rank_timing(0), rank_timing(1), hosts={"algo-1": {"steal_fraction": 0.3}})
    (finding,) = found("s04", slow(stolen))
    assert "hypervisor took 30%" in finding.saw[0]


def test_the_loader_of_one_rank(found, codes, slow, snapshot, child, timing, rank_timing):
    loading = timing(rank_timing(0), rank_timing(1, 45.0, data_seconds=0.0447, slow_since_step=11))
    (finding,) = found("s05", slow(loading))
    assert (finding.ranks, finding.since_step) == ((1,), 11)
    assert "waits 44.7 ms of each step of 50 ms inside the DataLoader" in finding.saw[0]
    assert codes(loading) == ["S05"]
    snapshots = [snapshot(1, children=(child(cpu_fraction=0.9), child("D", cpu_fraction=0.1)))]
    (finding,) = found("s05", slow(loading, snapshots=snapshots))
    assert "2 loader workers that use 1.0 cores; 1 of them wait for a disk" in finding.saw[-1]


def test_the_loaders_of_all_ranks(found, slow, timing, rank_timing):
    loading = timing(rank_timing(0, data_seconds=0.03), rank_timing(1, data_seconds=0.031))
    (finding,) = found("s05", slow(loading))
    assert finding.ranks == (0, 1)
    assert "every rank" in finding.saw[0]


def test_a_wait_at_each_epoch_says_what_the_steps_between_wait(found, case):
    def step(number):
        wait_ms = 8000 if number % 100 == 0 else 40
        times = {"end_ns": 0, "communication_ns": 0, "checkpoint_ns": 0}
        return Step(index=number, duration_ns=(wait_ms + 40) * 10**6, data_ns=wait_ms * 10**6, **times)

    made = case(still=False)
    ranks = {rank: replace(record, steps=tuple(map(step, range(500)))) for rank, record in made.ranks.items()}
    (finding,) = found("s05", replace(made, ranks=ranks))
    assert "waits 8.0 s inside the DataLoader every 100 steps" in finding.saw[0]
    assert finding.saw[1] == "the median step waits 40 ms"


def test_a_loader_that_nobody_can_see(missing, slow, timing, rank_timing):
    assert "DataLoader" in missing(
        "s05", slow(timing(rank_timing(0, data_seconds=None), rank_timing(1, data_seconds=None)))
    )


def test_a_job_of_one_rank_has_no_straggler_and_no_neighbour(found, slow, timing, rank_timing):
    alone = timing(rank_timing(0, data_seconds=0.03), hosts=BUSY)
    for code in ("s01", "s04", "s07", "s08", "s11", "s13", "s14", "s16", "s17", "s18"):
        assert found(code, slow(alone)) == []
    assert found("s05", slow(alone))[0].ranks == (0,)
