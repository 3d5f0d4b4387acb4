"""The pace monitor before made-up telemetry: what it records of a job that steps, and what it says of its limit."""

import asyncio
import json
import time
from dataclasses import dataclass, field, replace

import pytest

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.facts import Contract, Job, Program, ProgramKind
from paceline.launch.coordinator.pace_inputs import FILE, VARIABLE, PaceInputs
from paceline.launch.coordinator.pace_monitor import PaceMonitor

SECOND = 1_000_000_000
STEP_SECONDS = 0.1


@dataclass
class QuietHangMonitor:
    """Stands for the hang_monitor of a job that moves; it was judged when `judged` grows."""

    attempt: int = 0
    stall_tracker: object = None
    ending: bool = False
    heartbeats: dict = field(default_factory=lambda: {0: Heartbeat(host="a", rank=0, at_ns=0, moved_ns=0)})
    judged: list = field(default_factory=list)
    batches: int | None = None
    finished: list = field(default_factory=list)

    def offset_ns(self, host):
        return 0

    async def traces(self, *, finished):
        self.finished.append(finished)
        return {}

    async def compare(self, traces):
        pass

    async def take_snapshots(self, ranks):
        return [], []

    def record_snapshots(self, snapshots, hosts):
        pass

    def case(self, *, lasts):
        return "case"

    async def judge(self, case):
        self.judged.append(case)

    def loader_batches(self):
        return self.batches


def a_job(**terms):
    program = Program(kind=ProgramKind.SCRIPT, target="t.py", arguments=terms.pop("arguments", ()))
    return Job(name="j", program=program, **terms)


def watched(job, *, seconds=40, started_ago=40, hang_monitor=None):
    """The events of one turn after `seconds` of even steps."""
    events = []
    hang_monitor = hang_monitor or QuietHangMonitor()
    watch = PaceMonitor(job, hang_monitor, lambda name, **fields: events.append((name, fields)))
    watch.attempt_started()
    watch.started_ns = time.time_ns() - started_ago * SECOND
    now = time.time_ns()
    for second in range(seconds):
        steps = int((second + 1) / STEP_SECONDS)
        progress = {
            str(rank): {
                "rank": rank, "attempt": 0, "step_count": steps, "step_seconds": steps * STEP_SECONDS,
                "data_seconds": steps * 0.01, "communication_seconds": steps * 0.02, "checkpoint_seconds": 0.0,
            }
            for rank in range(2)
        }  # fmt: skip
        watch.telemetry("a", [{"t_ns": now - (seconds - 1 - second) * SECOND, "progress": progress}])
    asyncio.run(watch.turn())
    return events, hang_monitor


def test_a_job_that_steps_has_its_timing_recorded_and_judged():
    events, hang_monitor = watched(a_job())
    assert [name for name, _ in events] == ["tempo"]
    assert events[0][1]["tempo"].step_seconds == pytest.approx(STEP_SECONDS, rel=0.05)
    assert hang_monitor.judged == ["case"]


def test_the_whole_step_timing_is_kept_each_time_and_told_when_it_says_something_new():
    kept, told = [], []

    async def play():
        watch = PaceMonitor(
            a_job(), QuietHangMonitor(), lambda name, **fields: told.append(name), keep_timing=kept.append
        )
        watch.attempt_started()
        now = time.time_ns()
        for second in range(40):
            steps = (second + 1) * 10
            progress = {
                str(rank): {"rank": rank, "attempt": 0, "step_count": steps, "step_seconds": steps * STEP_SECONDS}
                for rank in range(40)
            }
            watch.telemetry("a", [{"t_ns": now - (39 - second) * SECOND, "progress": progress}])
        await watch.turn()
        watch._timing_due = 0.0
        await watch.turn()

    asyncio.run(play())
    assert [len(timing.ranks) for timing in kept] == [40, 40] and told == ["tempo"]


def test_what_needs_the_gil_in_the_ranks_is_asked_for_at_once_and_then_seldom(monkeypatch):
    now = 100.0
    monkeypatch.setattr("paceline.launch.coordinator.pace_monitor.time.monotonic", lambda: now)
    hang_monitor = QuietHangMonitor()
    watch = PaceMonitor(a_job(), hang_monitor, lambda name, **fields: None)
    watch.attempt_started()
    for now in (100.0, 105.0, 110.0, 115.0, 120.0, 130.0):  # noqa: B007
        asyncio.run(watch.turn())
    assert hang_monitor.finished == [True, False, False, True, False, True]


def test_how_late_the_ranks_are_is_kept_at_every_turn_for_the_new_steps_alone():
    frames = []
    now = time.time_ns()

    class WithTraces(QuietHangMonitor):
        async def traces(self, *, finished):
            return {
                rank: [
                    TraceEntry(
                        "0", at, "allreduce", "Float", (4,), now - (400 - at) * SECOND // 10 + rank * SECOND // 50
                    )
                    for at in range(self.since, 400)
                ]
                for rank in range(2)
            }

    async def play():
        hang_monitor = WithTraces()
        watch = PaceMonitor(a_job(), hang_monitor, lambda name, **fields: None, keep_lateness=frames.append)
        watch.attempt_started()
        for second in range(41):
            progress = {
                str(rank): {"rank": rank, "attempt": 0, "step_count": second * 10, "step_seconds": float(second)}
                for rank in range(2)
            }
            watch.telemetry("a", [{"t_ns": now - (40 - second) * SECOND, "progress": progress}])
        hang_monitor.since = 100
        await watch.turn()
        await watch.turn()

    asyncio.run(play())
    (frame,) = frames
    assert frame.late == pytest.approx({0: 0.0, 1: 0.2}, abs=0.01) and frame.last == {0: 0.0, 1: 1.0}
    assert frame.to_step > frame.from_step > 90


def test_a_job_that_stands_is_the_hang_monitors_alone():
    events, hang_monitor = watched(a_job(), hang_monitor=QuietHangMonitor(stall_tracker=object()))
    assert not events and not hang_monitor.judged


def test_a_limit_that_will_cut_the_job_is_said():
    events, _ = watched(a_job(max_run_seconds=100.0, total_steps=5000))
    forecast = dict(events)["forecast"]["forecast"]
    assert forecast.total_steps == 5000 and 900 < forecast.reaches_step < 1100
    assert forecast.needed_seconds > 400


def test_the_steps_of_a_job_come_from_its_epochs_and_its_loader():
    job = a_job(max_run_seconds=1000.0, contract=Contract(hyperparameters={"epochs": 3}))
    events, _ = watched(job, hang_monitor=QuietHangMonitor(batches=250))
    assert dict(events)["forecast"]["forecast"].total_steps == 750


@pytest.mark.parametrize("limit", [{"max_run_seconds": 100.0}, {"total_steps": 5000}], ids=["limit", "steps"])
def test_the_same_forecast_is_said_once(limit):
    async def play():
        events = []
        watch = PaceMonitor(a_job(**limit), QuietHangMonitor(), lambda name, **fields: events.append(name))
        watch.attempt_started()
        now = time.time_ns()
        for second in range(40):
            steps = (second + 1) * 10
            progress = {"0": {"rank": 0, "attempt": 0, "step_count": steps, "step_seconds": steps * STEP_SECONDS}}
            watch.telemetry("a", [{"t_ns": now - (39 - second) * SECOND, "progress": progress}])
        await watch.turn()
        await watch.turn()
        return events

    assert asyncio.run(play()).count("forecast") == 1


def test_without_a_limit_the_end_is_foretold_if_the_number_of_steps_is_known():
    events, _ = watched(replace(a_job(), total_steps=5000))
    forecast = dict(events)["forecast"]["forecast"]
    assert forecast.limit_seconds is None and forecast.reaches_step is None
    assert forecast.needed_seconds > 400
    assert "forecast" not in dict(watched(a_job())[0])


def test_what_a_timing_is_made_of_is_kept_only_where_that_is_asked_for(tmp_path, monkeypatch):
    entries = [TraceEntry("0", index, "allreduce", "Float", (4,), 1_000 + index) for index in (1, 2, 3)]
    PaceInputs(tmp_path).turn(1)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(VARIABLE, "1")
    kept = PaceInputs(tmp_path)
    kept.telemetry("a", 5, {"t_ns": 5})
    kept.trace(0, entries[:2])
    # Answers of a recorder overlap.
    kept.trace(0, entries)
    kept.turn(9)
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["telemetry", "trace", "trace", "turn"]
    assert [entry[1] for line in lines[1:3] for entry in line["entries"]] == [1, 2, 3]
