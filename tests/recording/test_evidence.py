"""A recording becomes facts, whatever is missing from it."""

import dataclasses
import os
import shutil

import pytest

from paceline.diagnosis.slow.steady_step import steady_step
from paceline.facts import SecondaryStatus, Status
from paceline.recording.evidence import evidence, listed_ranks, read_run
from paceline.recording.layout import RunDirectory


@pytest.fixture
def complete(recording):
    """Two ranks on one host, ten steps each, everything there."""
    made = recording()
    made.identity()
    made.event("attempt_started", attempt=0, world_size=2, hosts=[{"host": "algo-1", "first_rank": 0, "ranks": 2}])
    made.event("status", status="InProgress", secondary_status="Training")
    for rank in (0, 1):
        made.event("rank_started", host="algo-1", rank=rank, attempt=0, pid=1000 + rank)
        made.segment("algo-1", rank)
        made.event("rank_exited", host="algo-1", rank=rank, attempt=0, code=0)
    made.telemetry("algo-1", {"t_ns": 1}, {"t_ns": 2})
    made.finish()
    return made


def test_a_complete_recording_leaves_nothing_unjudged(complete):
    found = evidence(complete.path)
    assert found.not_judged == ()
    assert (found.run.status, found.run.exit_code) == (Status.COMPLETED, 0)
    assert found.hosts == ("algo-1",)
    assert [(record.rank, record.step_count, record.pid) for record in found.ranks] == [(0, 10, 1000), (1, 10, 1001)]
    assert found.ranks[0].step_seconds == pytest.approx(1.0)
    assert found.ranks[0].data_seconds == pytest.approx(0.05)
    assert found.ranks[0].communication_seconds == pytest.approx(0.1)
    assert [step.index for step in found.ranks[0].steps] == list(range(10))
    assert found.ranks[1].exit is not None and found.ranks[1].exit.code == 0
    assert [line["t_ns"] for line in found.telemetry["algo-1"]] == [1, 2]


def test_the_newest_step_timing_comes_from_its_own_file_and_stands_in_its_attempt(complete):
    complete.event("attempt_started", attempt=1, world_size=2, hosts=[])
    (complete.path / "step_timing_0.json").write_text('{"at_ns": 5, "step_seconds": 0.5, "ranks": []}')
    (complete.path / "step_timing_1.json").write_text("torn")
    events = evidence(complete.path).events
    names = [event["event"] for event in events]
    assert names[-2:] == ["tempo", "attempt_started"]
    assert events[-2]["tempo"] == {"at_ns": 5, "step_seconds": 0.5, "ranks": []}


def test_a_run_whose_agent_lives_is_in_progress(recording):
    made = recording()
    made.identity()
    made.event("status", status="InProgress", secondary_status="Training")
    found = evidence(made.path)
    assert (found.run.status, found.run.secondary_status) == (Status.IN_PROGRESS, SecondaryStatus.TRAINING)
    assert found.run.finished_ns is None


def test_a_run_whose_agent_is_gone_has_failed_and_says_so(recording):
    made = recording()
    made.identity(agent_pid=os.getpid(), agent_start_ticks=1)
    made.event("status", status="InProgress", secondary_status="Training")
    found = evidence(made.path)
    assert found.run.status is Status.FAILED
    assert found.run.reason.startswith("agent gone: pid")
    assert found.run.exit_code is None


def test_a_run_of_another_machine_is_not_called_gone_but_not_judged(recording):
    made = recording()
    made.identity(agent_pid=4_194_305, machine="elsewhere", boot_id="another", pid_namespace="pid:[1]")
    made.event("status", status="InProgress", secondary_status="Training")
    found = evidence(made.path)
    assert found.run.status is Status.IN_PROGRESS
    assert "whether the agent still runs: it was started on elsewhere" in found.not_judged


def test_every_file_may_be_missing(complete):
    for name in ("run.json", "events.jsonl", "hosts/algo-1/telemetry.jsonl", "hosts/algo-1/attempt_0/rank_1.seg"):
        copy = complete.path.with_name("copy")
        shutil.copytree(complete.path, copy)
        (copy / name).unlink()
        assert evidence(copy).not_judged, f"{name} is missing and nobody says so"
        shutil.rmtree(copy)


@pytest.mark.parametrize("keep_bytes", [0, 1, 100, 4095, 4096, 4100, 4999])
def test_a_torn_segment_never_raises(complete, keep_bytes):
    path = complete.directory.segment_file("algo-1", 0, 1)
    path.write_bytes(path.read_bytes()[:keep_bytes])
    found = evidence(complete.path)
    assert [record.rank for record in found.ranks] == [0, 1]
    if keep_bytes != 4096:
        assert any("rank_1.seg" in text for text in found.not_judged)


def test_every_cut_of_the_events_is_read_without_an_error(complete):
    whole = complete.directory.events_file.read_bytes()
    for length in range(0, len(whole), 7):
        complete.directory.events_file.write_bytes(whole[:length])
        evidence(complete.path)


def test_events_with_foreign_values_are_passed_over(complete):
    complete.event("rank_exited", host=3, rank="x", code=None)
    complete.event("status", status="Dancing", secondary_status=5)
    complete.event("attempt_started", hosts="algo-9")
    assert evidence(complete.path).run.status is Status.COMPLETED


def test_a_rank_without_a_segment_is_there_with_nothing_measured(complete):
    complete.directory.segment_file("algo-1", 0, 1).unlink()
    found = evidence(complete.path)
    assert found.ranks[1].step_count is None
    assert found.ranks[1].exit is not None
    assert "steps of rank 1 on algo-1, attempt 0: none in this recording" in found.not_judged


def test_the_exception_of_a_rank_is_read_back(complete):
    error = {
        "type": "ValueError",
        "message": "bad",
        "time_ns": 5,
        "file": "train.py",
        "line": 3,
        "function": "f",
        "source": "x",
        "python": None,
    }
    complete.event("rank_exited", host="algo-1", rank=1, attempt=0, code=1, error=error, note="", signalled_by_us=False)
    exit = evidence(complete.path).ranks[1].exit
    assert exit is not None and exit.error is not None
    assert dataclasses.asdict(exit.error) == error | {"own_file": None}


def test_a_sensor_that_could_not_be_read_is_listed_once_with_its_reason(complete):
    for _ in range(2):
        complete.event("sensor_missing", host="algo-1", sensor="gpus", reason="NVML is not installed")
    assert evidence(complete.path).not_judged == ("algo-1 gpus: NVML is not installed",)


def test_the_same_sensor_missing_on_many_hosts_is_one_line(complete):
    for number in range(1, 6):
        complete.event("sensor_missing", host=f"algo-{number}", sensor="gpus", reason="no driver")
    assert "5 hosts gpus: no driver" in evidence(complete.path).not_judged


def test_a_torn_run_json_is_named_and_the_rest_is_read(complete):
    complete.directory.run_file.write_text('{"schema": "paceline.run/1", "id": "r-0')
    found = evidence(complete.path)
    assert "run.json cannot be read: name, command and start" in found.not_judged
    assert (found.run.id, found.run.status, len(found.ranks)) == ("r-000001", Status.COMPLETED, 2)


def test_the_directories_of_one_run_are_read_together(recording, complete, tmp_path):
    complete.streamed("algo-1", "algo-2", "telemetry", {"t_ns": 1})
    alone = evidence(complete.path)
    assert alone.hosts == ("algo-1", "algo-2")
    assert any("algo-2: complete logs" in text for text in alone.not_judged)
    other = recording("r-other")
    other.segment("algo-2", 2)
    other.telemetry("algo-2", {"t_ns": 1}, {"t_ns": 2})
    both = evidence(complete.path, other.path)
    assert [(record.host, record.rank) for record in both.ranks] == [("algo-1", 0), ("algo-1", 1), ("algo-2", 2)]
    assert len(both.telemetry["algo-2"]) == 2
    assert both.run.id == complete.path.name


def test_totals_that_a_host_streamed_stand_in_for_its_segments(complete):
    plain = {"host": "x", "rank": 2, "attempt": 0, "step_count": 7, "step_seconds": 0.7, "a_later_field": 1}
    damaged = {"rank": 3, "attempt": 0, "step_count": "many"}
    complete.streamed(
        "algo-1",
        "algo-2",
        "telemetry",
        {"t_ns": 1, "progress": {"2": plain, "3": damaged}},
        {"t_ns": 2, "progress": {}},
    )
    found = evidence(complete.path).ranks
    assert [(record.host, record.rank, record.step_count) for record in found[2:]] == [("algo-2", 2, 7)]
    assert found[2].step_seconds == 0.7


def test_a_recent_look_reads_totals_whole_and_only_the_ends_of_long_files(complete):
    complete.telemetry("algo-1", *({"t_ns": n, "text": "x" * 1000} for n in range(200)))
    found = evidence(complete.path, recent=True)
    assert found.ranks[0].step_count == 10
    assert 0 < len(found.telemetry["algo-1"]) < 100
    assert found.telemetry["algo-1"][-1]["t_ns"] == 199


def test_one_missing_process_group_instrument_is_unknown_and_not_zero(complete):
    from paceline.recording.ring import Cell, Instrument

    path = complete.directory.segment_file("algo-1", 0, 0)
    page = bytearray(path.read_bytes())
    page[Cell.MISSING * 8] = Instrument.DATA
    page[Cell.COMMUNICATION_BASIS * 8] = 0
    path.write_bytes(page)
    found = evidence(complete.path)
    assert found.ranks[0].data_seconds is None
    assert found.ranks[0].communication_seconds is None
    assert found.ranks[0].step_seconds is not None
    assert "rank 0 on algo-1: this torch does not show the wait for data" in found.not_judged


def test_a_failure_of_an_instrument_that_the_recording_has_no_name_for_is_said(complete):
    from paceline.recording.ring import TEXTS

    path = complete.directory.segment_file("algo-1", 0, 0)
    page, said = bytearray(path.read_bytes()), b"HEAT: ValueError: no such sensor"
    offset, _ = TEXTS["failure"]
    page[offset : offset + len(said)] = said
    path.write_bytes(page)
    assert "rank 0 on algo-1: HEAT: ValueError: no such sensor" in evidence(complete.path).not_judged


def test_a_directory_with_only_hosts_is_a_recording_too(recording):
    made = recording()
    made.segment("algo-2", 3)
    found = evidence(made.path)
    assert [record.rank for record in found.ranks] == [3]
    assert found.run.started_ns == 0


def test_the_list_of_runs_needs_no_telemetry(complete):
    directories = (RunDirectory(complete.path),)
    complete.directory.telemetry_file("algo-1").unlink()
    _, events, _ = read_run(directories)
    assert [record.step_count for record in listed_ranks(directories, events)] == [10, 10]


def test_the_list_of_runs_has_the_step_that_the_end_of_a_run_tells(complete):
    directories = (RunDirectory(complete.path),)
    _, events, _ = read_run(directories)
    listed, told = listed_ranks(directories, events), evidence(complete.path, recent=True).ranks
    assert [len(record.step_lengths) for record in listed] == [len(record.steps) for record in told]
    assert steady_step(listed) == steady_step(told) is not None
    assert steady_step(told).count is not None
