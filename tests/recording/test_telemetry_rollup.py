"""A host's telemetry, minute by minute."""

import json
from pathlib import Path

import pytest

from paceline.recording.evidence import evidence
from paceline.recording.telemetry_rollup import TelemetryRollup, read_minutes

SECOND = 1_000_000_000


def sample(second, busy, **more):
    return {
        "t_ns": second * SECOND,
        "cpu": {"count": 8, "busy_fraction": busy},
        "network": {"eth0": {"sent_bytes": 1000 * second}},
        "gpus": [{"busy_fraction": busy / 2}],
        "ranks": {"0": {"state": "R", "resident_bytes": 5}},
        **more,
    }


def test_a_minute_has_the_mean_the_least_and_the_largest_of_its_samples(tmp_path):
    file = tmp_path / "telemetry.roll.jsonl"
    rollup = TelemetryRollup(file)
    for second, busy in enumerate((0.25, 0.5, 0.75), 60):
        rollup.add(sample(second, busy, **({"cgroup": {"oom_kill_count": 1}} if second == 60 else {})))
    assert not file.exists()
    rollup.add(sample(120, 1.0))
    (line,) = [json.loads(text) for text in file.read_text().splitlines()]
    assert (line["t_ns"], line["seconds"], line["count"]) == (62 * SECOND, 60, 3)
    assert line["mean"] == {
        "cpu": {"count": 8, "busy_fraction": 0.5},
        "network": {"eth0": {"sent_bytes": 61_000}},
        "gpus": [{"busy_fraction": 0.25}],
        "ranks": {"0": {"state": "R", "resident_bytes": 5}},
        "cgroup": {"oom_kill_count": 1},
    }
    assert line["least"] == {"cpu": {"busy_fraction": 0.25}, "gpus": {"0": {"busy_fraction": 0.125}}}
    assert line["most"] == {"cpu": {"busy_fraction": 0.75}, "gpus": {"0": {"busy_fraction": 0.375}}}
    rollup.close()
    minutes, complaints = read_minutes(file)
    assert [minute["cpu"]["busy_fraction"] for minute in minutes] == [0.5, 1.0] and complaints == []


def test_a_sample_without_a_time_is_passed_over(tmp_path):
    rollup = TelemetryRollup(tmp_path / "t.jsonl")
    rollup.add({"cpu": {"busy_fraction": 1.0}})
    rollup.close()
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_raises_nothing():
    rollup = TelemetryRollup(Path("/dev/full"))
    rollup.add(sample(1, 0.5))
    rollup.close()


def test_what_is_older_than_the_samples_that_are_read_comes_from_the_minutes(recording):
    made = recording()
    made.identity()
    made.telemetry("algo-1", *(sample(second, 0.5, filler="x" * 400) for second in range(1000)))
    rollup = TelemetryRollup(made.path / "hosts/algo-1/telemetry.roll.jsonl")
    for second in range(1000):
        rollup.add(sample(second, 0.5))
    rollup.close()
    lines = evidence(made.path, recent=True, telemetry_bytes=100_000).telemetry["algo-1"]
    stamps = [line["t_ns"] // SECOND for line in lines]
    assert stamps[:3] == [59, 119, 179] and stamps == sorted(stamps) and stamps[-100:] == list(range(900, 1000))
    assert len(evidence(made.path, recent=True).telemetry["algo-1"]) < 130
