"""How a job steps, from progress, telemetry and flight recorders."""

import pytest

from paceline.diagnosis.case import HostTiming, RankTiming, StepTiming
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.slow.step_timing import StepTimer, slow_since, wants_snapshot

SECOND = 1_000_000_000
MS = 1_000_000
START = 1_000 * SECOND


class Job:
    """Two ranks on two hosts that step; `late(rank, step)` and `data(rank)` in ms."""

    def __init__(self, late, *, steps=1200, data=lambda rank: 0.0, base_ms=20, attempt=0):
        self.tracker = StepTimer()
        self.ends, self.entries = [], {0: [], 1: []}
        self.data, self.attempt = data, attempt
        at = START
        for step in range(steps):
            stamps = [at + base_ms * MS - 2 * MS + round(late(rank, step) * MS) for rank in (0, 1)]
            for rank, created in enumerate(stamps):
                self.entries[rank].append(TraceEntry("0", 9 + step, "allreduce", "Float", (64,), created))
            at = max(stamps) + 2 * MS
            self.ends.append(at)

    def run(self, *, traces=True, communication=lambda rank, seconds: None):
        now, done = START, 0
        while now <= self.ends[-1] + SECOND:
            while done < len(self.ends) and self.ends[done] <= now:
                done += 1
            seconds = (self.ends[done - 1] - START) / SECOND if done else 0.0
            for rank in (0, 1):
                self.tracker.progress(
                    f"algo-{rank + 1}",
                    now,
                    {
                        str(rank): {
                            "rank": rank,
                            "attempt": self.attempt,
                            "step_count": done,
                            "step_seconds": seconds,
                            "data_seconds": done * self.data(rank) / 1000,
                            "communication_seconds": communication(rank, seconds),
                            "checkpoint_seconds": 0.0,
                        }
                    },
                )
                if traces and (now - START) // SECOND % 10 == 9:
                    recent = [entry for entry in self.entries[rank] if now - 11 * SECOND < entry.created_ns <= now]
                    self.tracker.trace(rank, recent)
            now += SECOND
        return self.tracker.timing(now)


def test_a_job_that_steps_evenly_is_nobodys_fault():
    timing = Job(lambda rank, step: 0).run()
    assert timing.step_seconds == pytest.approx(0.02, rel=0.01)
    assert timing.window_seconds == pytest.approx(20, abs=1)
    assert timing.collectives_per_step == 1
    assert [rank.slow_since_step for rank in timing.ranks] == [None, None]
    assert wants_snapshot(timing) == ()


def test_a_straggler_from_the_start():
    timing = Job(lambda rank, step: 30 * rank).run()
    zero, one = timing.ranks
    assert one.lags == pytest.approx((0.03,))
    assert (one.late_seconds, zero.late_seconds) == pytest.approx((0.03, 0.0))
    assert one.slow_since_step == 0
    assert zero.own_seconds == pytest.approx(0.02, rel=0.05)
    assert one.own_seconds == pytest.approx(0.05, rel=0.05)
    assert wants_snapshot(timing) == (1,)


def test_a_straggler_that_begins_later_is_dated():
    timing = Job(lambda rank, step: 30 * (rank == 0 and step >= 300)).run()
    assert timing.ranks[0].slow_since_step == pytest.approx(300, abs=30)
    assert timing.step_seconds == pytest.approx(0.05, rel=0.02)


def test_a_straggler_that_has_recovered_is_none():
    timing = Job(lambda rank, step: 30 * (rank == 1 and 100 <= step < 200), steps=2000).run()
    assert timing.ranks[1].slow_since_step is None


def test_without_flight_recorders_its_own_time_tells():
    job = Job(lambda rank, step: 30 * rank)
    timing = job.run(traces=False, communication=lambda rank, seconds: 0.0 if rank else seconds * 0.6)
    assert timing.ranks[1].lags is None
    assert timing.ranks[1].own_seconds == pytest.approx(0.05, rel=0.05)
    assert timing.ranks[0].own_seconds == pytest.approx(0.02, rel=0.05)
    assert timing.ranks[1].slow_since_step == 0
    assert timing.ranks[0].slow_since_step is None


def test_unknown_times_stay_unknown():
    timing = Job(lambda rank, step: 0).run(traces=False)
    assert (timing.ranks[0].own_seconds, timing.ranks[0].lags, timing.spread_seconds) == (None, None, None)


def test_too_few_steps_are_no_timing():
    assert StepTimer().timing(START) is None
    assert Job(lambda rank, step: 0, steps=10).run() is None


def test_a_new_attempt_begins_anew():
    job = Job(lambda rank, step: 0, steps=400)
    job.run()
    job.tracker.progress(
        "algo-1", START + 100 * SECOND, {"0": {"rank": 0, "attempt": 1, "step_count": 0, "step_seconds": 0.0}}
    )
    assert job.tracker.timing(START + 101 * SECOND) is None


def test_the_host_over_the_window():
    job = Job(lambda rank, step: 0)
    for second in range(30):
        line = {
            "t_ns": START + second * SECOND,
            "cpu": {"count": 4, "busy_fraction": 0.5, "steal_fraction": 0.0},
            "pressure": {"cpu": {"some_seconds": second * 0.25}},
            "network": {"lo": {"sent_bytes": 10**12}, "eth0": {"sent_bytes": second * 10**6, "received_bytes": 0}},
            "ranks": {"0": {"cpu_seconds": second * 0.9}},
        }
        if second % 5 == 0:
            line["cgroup"] = {"throttled_count": second * 5, "period_count": second * 10, "cpu_quota_cpus": 0.5}
        job.tracker.telemetry("algo-1", line)
    timing = job.run()
    (host,) = timing.hosts
    assert (host.cpu_count, host.busy_fraction, host.cpu_quota_cpus) == (4, 0.5, 0.5)
    assert (host.throttled_fraction, host.pressure_cpu, host.ranks_cpu) == pytest.approx((0.5, 0.25, 0.9))
    assert host.sent_bytes_per_second == pytest.approx(1e6)
    assert timing.ranks[0].cpu_fraction == pytest.approx(0.9)
    assert timing.ranks[1].cpu_fraction is None


def test_of_thousands_of_ranks_the_samples_are_thinned():
    tracker = StepTimer()
    for second in range(80):
        totals = {"attempt": 0, "step_count": second * 10, "step_seconds": float(second)}
        tracker.progress("algo-1", START + second * SECOND, {str(r): {"rank": r, **totals} for r in range(2000)})
    assert max(len(series.samples) for series in tracker._series.values()) <= 61
    assert tracker.timing(START + 80 * SECOND).step_seconds == pytest.approx(0.1)


def test_a_single_slow_step_begins_nothing():
    costs = [(step, 0.0) for step in range(100)]
    costs[97] = (97, 5.0)
    assert slow_since(costs, 0.01) is None
    assert slow_since([(step, 0.05 * (step >= 40)) for step in range(100)], 0.01) == 39
    assert slow_since([(step, 0.05) for step in range(500, 600)], 0.01) == 500


def test_a_lateness_that_has_just_ended_has_no_beginning():
    assert slow_since([(step, 0.05 * (step < 90)) for step in range(100)], 0.01) is None


def test_a_slow_exchange_asks_for_one_rank_of_each_host():
    ranks = tuple(
        RankTiming(
            rank=n, host=f"algo-{n // 2 + 1}", steps=100, step_seconds=0.1, communication_seconds=0.06, late_seconds=0.0
        )
        for n in range(4)
    )
    known = {"window_seconds": 20.0, "from_step": 0, "to_step": 100, "step_seconds": 0.1}
    assert wants_snapshot(StepTiming(ranks=ranks, hosts=(HostTiming(host="algo-1"),), **known)) == (0, 2)
