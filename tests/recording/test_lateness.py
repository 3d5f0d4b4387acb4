"""Who keeps the others waiting, over the time of a run: from its own file, or from the events of an older recording."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.recording.lateness import LatenessFile, LatenessFrame, late_rows, packed_frame
from paceline.recording.layout import RunDirectory
from paceline.recording.step_columns import TimeAxis

AXIS = TimeAxis(0, 100, 10)
FRAME = LatenessFrame(
    attempt=0, from_ns=0, to_ns=9, from_step=1, to_step=20, step_ns=5, late={0: 0.0, 1: 0.25}, last={0: 0.0, 1: 1.0}
)
PLACED = {
    "event": "attempt_started",
    "attempt": 0,
    "hosts": [
        {"host": "a", "node_rank": 0, "first_rank": 0, "ranks": 2},
        {"host": "b", "node_rank": 1, "first_rank": 2, "ranks": 2},
    ],
}


def rows_of(tmp_path, *frames, events=(PLACED,)):
    file = LatenessFile(RunDirectory(tmp_path).lateness_file)
    for frame in frames:
        file.append(frame)
    assert file.lost == 0
    rows, complaints = late_rows([RunDirectory(tmp_path)], events, AXIS)
    assert complaints == []
    return rows


def test_each_rank_has_its_share_where_it_was_judged(tmp_path):
    rows = rows_of(tmp_path, FRAME, replace(FRAME, from_ns=35, to_ns=55, late={1: 0.5}, last={}))
    assert [(row.host, row.rank) for row in rows] == [("a", 0), ("a", 1)]
    assert rows[0].share == [0.0, *[None] * 9]
    assert rows[1].share == [0.25, None, None, 0.5, 0.5, 0.5, *[None] * 4] and rows[1].worst() == 0.5


def test_the_newest_attempt_counts(tmp_path):
    rows = rows_of(tmp_path, FRAME, replace(FRAME, attempt=1, from_ns=50, to_ns=50, late={1: 0.75}), FRAME)
    assert [row.share for row in rows] == [[None] * 5 + [0.75] + [None] * 4]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.integers(0, 40), st.floats(0, 6.5), max_size=6))
def test_a_share_is_kept_to_a_ten_thousandth(tmp_path_factory, late):
    rows = rows_of(tmp_path_factory.mktemp("run"), replace(FRAME, late=late, last={}))
    assert {row.rank: row.share[0] for row in rows} == pytest.approx(late, abs=6e-5)


def test_a_frame_that_was_written_in_part_ends_the_file_and_damage_is_named(tmp_path):
    path = RunDirectory(tmp_path).lateness_file
    whole = packed_frame(FRAME)
    path.write_bytes(whole + whole[:-1])
    assert len(late_rows([RunDirectory(tmp_path)], (), AXIS)[0]) == 2
    path.write_bytes(whole + b"x" * 200)
    rows, complaints = late_rows([RunDirectory(tmp_path)], (), AXIS)
    assert len(rows) == 2 and "no frame at byte" in complaints[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_costs_frames_and_nothing_else(tmp_path):
    path = RunDirectory(tmp_path).lateness_file
    path.symlink_to("/dev/full")
    file = LatenessFile(path)
    file.append(FRAME)
    assert file.lost == 1


def test_an_older_recording_has_it_in_its_events():
    ranks = [{"rank": 0, "host": "a", "late_seconds": 0.0}, {"rank": 1, "host": "a", "late_seconds": 0.2}]
    timing = {"attempt": 0, "at_ns": 55, "window_seconds": 20e-9, "step_seconds": 0.4, "ranks": ranks}
    rows, _ = late_rows((), [{"event": "tempo", "tempo": timing}], AXIS)
    assert [(row.host, row.rank) for row in rows] == [("a", 0), ("a", 1)]
    assert rows[1].share == [None] * 3 + [0.5] * 3 + [None] * 4


HOSTILE = [None, 7, "x", [], {}, -1, 1e400, float("nan"), 2**70]


@pytest.mark.parametrize("bad", HOSTILE, ids=str)
@pytest.mark.parametrize(
    "name", ["attempt", "at_ns", "window_seconds", "step_seconds", "ranks", "rank", "late_seconds"]
)
def test_an_event_of_anything_raises_nothing(name, bad):
    one = {"rank": 1, "host": "a", "late_seconds": 0.2, name: bad}
    timing = {"attempt": 0, "at_ns": 55, "window_seconds": 2e-8, "step_seconds": 0.4, "ranks": [one, bad], name: bad}
    late_rows((), [{"event": "tempo", "tempo": timing}], AXIS)
