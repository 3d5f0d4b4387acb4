"""Sums of steps: in every file each step counts once, also while the run lasts, after a restart of the clock, and behind a full disk."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.recording.layout import RunDirectory
from paceline.recording.ring import HEADER_BYTES, RECORD, RecordKind
from paceline.recording.step_columns import TimeAxis, step_columns
from paceline.recording.step_rollups import INTERVALS_SECONDS, ROLLUP, StepRollups, read_rollups, rollup_file

HEADER = (Path(__file__).parent / "data/before/asleep/hosts/localhost/attempt_0/rank_1.seg").read_bytes()[:HEADER_BYTES]
SECOND = 1_000_000_000
RANK = 1
# Durations of steps in tenths of a second: quick ones, and some that are longer than an interval.
DURATIONS = st.lists(st.sampled_from([1, 3, 7, 150, 3000]), max_size=120)


def records(durations, begin_ns=1000 * SECOND):
    """The records of steps one after the other, with a phase between them."""
    phase = RECORD.pack(RecordKind.PHASE, 2, 0, *range(7))
    found, end = [], begin_ns
    for number, tenths in enumerate(durations, 1):
        length = tenths * SECOND // 10
        end += length
        found.append(RECORD.pack(RecordKind.STEP, 0, 0, number, end, length, length // 4, length // 8, 0, 0))
    return phase.join([b"", *found]) if found else b"", end


def recorded(directory, durations, *, parts=3, is_last=True, until=None):
    """A run with one segment, and the sums of its first steps up to `until`."""
    path = directory.segment_file("a", 0, RANK)
    path.parent.mkdir(parents=True, exist_ok=True)
    body, end = records(durations)
    path.write_bytes(HEADER + body)
    rollups = StepRollups(path.parent)
    whole = body[: until * 2 * RECORD.size] if until is not None else body
    cut = -(-len(whole) // RECORD.size // parts) * RECORD.size or RECORD.size
    for at in range(0, len(whole), cut):
        rollups.add(RANK, whole[at : at + cut])
        rollups.write(0)
    rollups.write(end, is_last=is_last)
    return path.parent, end


def totals(attempt, seconds):
    found = [
        list(zip(part.counts, part.totals_ns, part.longest_ns, strict=True))
        for part in read_rollups(rollup_file(attempt, seconds))
    ]
    rows = [row for part in found for row in part]
    return sum(row[0] for row in rows), sum(row[1] for row in rows), max((row[2] for row in rows), default=0)


@settings(deadline=None)
@given(durations=DURATIONS, parts=st.integers(1, 9))
def test_every_file_has_every_step_once_and_the_longest(tmp_path_factory, durations, parts):
    attempt, _ = recorded(RunDirectory(tmp_path_factory.mktemp("run")), durations, parts=parts)
    lengths = [tenths * SECOND // 10 for tenths in durations]
    for seconds in INTERVALS_SECONDS if durations else ():
        assert totals(attempt, seconds) == (len(lengths), sum(lengths), max(lengths))


@settings(deadline=None)
@given(durations=DURATIONS, until=st.integers(0, 120), is_last=st.booleans())
def test_sums_and_what_follows_them_have_the_steps_of_the_segment(tmp_path_factory, durations, until, is_last):
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    _, end = recorded(directory, durations, until=until, is_last=is_last)
    axis = TimeAxis(1000 * SECOND, end + 1, 7)
    exact, _ = step_columns([directory], axis)
    summed, complaints = step_columns([directory], axis, most_bytes=0)
    assert complaints == []
    for one in (exact, summed):
        assert [sum(each.counts) for each in one] == ([len(durations)] if durations else [])
    assert [sum(each.totals_ns) for each in exact] == [sum(each.totals_ns) for each in summed]
    assert [max(each.longest_ns) for each in exact] == [max(each.longest_ns) for each in summed]


def test_sums_of_a_host_whose_segments_are_elsewhere_are_read(tmp_path):
    directory = RunDirectory(tmp_path)
    _, end = recorded(directory, [1] * 500)
    directory.segment_file("a", 0, RANK).unlink()
    ((columns,), _) = step_columns([directory], TimeAxis(1000 * SECOND, end, 5))
    assert (columns.host, columns.rank, columns.attempt, sum(columns.counts)) == ("a", RANK, 0, 500)
    assert columns.counts == [99, 100, 100, 100, 101]


def test_a_recording_without_sums_is_read_step_by_step(tmp_path):
    directory = RunDirectory(tmp_path)
    attempt, end = recorded(directory, [1] * 500)
    for seconds in INTERVALS_SECONDS:
        rollup_file(attempt, seconds).unlink()
    ((columns,), _) = step_columns([directory], TimeAxis(1000 * SECOND, end, 5), most_bytes=0)
    assert sum(columns.counts) == 500


def test_what_is_over_is_written_after_two_more_seconds(tmp_path):
    rollups = StepRollups(tmp_path)
    body, end = records([1] * 95, begin_ns=1000 * SECOND)
    rollups.add(RANK, body)
    rollups.write(end)
    assert not rollup_file(tmp_path, 10).exists()
    rollups.write(1012 * SECOND)
    assert totals(tmp_path, 10)[0] == 95 and not rollup_file(tmp_path, 160).exists()


def test_a_clock_that_is_set_back_costs_no_step(tmp_path):
    rollups = StepRollups(tmp_path)
    for begin in (1000, 900, 1100):
        rollups.add(RANK, records([1] * 50, begin_ns=begin * SECOND)[0])
    rollups.write(0, is_last=True)
    assert {totals(tmp_path, seconds)[0] for seconds in INTERVALS_SECONDS} == {150}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_what_a_full_disk_refuses_is_written_when_there_is_room_again(tmp_path):
    file = rollup_file(tmp_path, 10)
    file.symlink_to("/dev/full")
    rollups = StepRollups(tmp_path)
    rollups.add(RANK, records([1] * 500)[0])
    rollups.write(2000 * SECOND)
    assert rollups.unwritten_count() == 6
    file.unlink()
    rollups.write(2000 * SECOND)
    assert rollups.unwritten_count() == 0 and totals(tmp_path, 10)[0] == 500


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_disk_that_stays_full_costs_no_memory_without_end(tmp_path):
    rollup_file(tmp_path, 10).symlink_to("/dev/full")
    rollups = StepRollups(tmp_path)
    body, _ = records([100])
    for rank in range(40_000):
        rollups.add(rank, body)
    rollups.write(2000 * SECOND)
    assert rollups.unwritten_count() == 40_000
    waiting = rollups._levels[0].waiting
    assert len(waiting) == 1 << 20


def test_a_record_that_was_written_in_part_is_left_out_and_overwritten(tmp_path):
    rollups = StepRollups(tmp_path)
    rollups.add(RANK, records([100])[0])
    file = rollup_file(tmp_path, 10)
    file.write_bytes(b"torn")
    assert totals(tmp_path, 10) == (0, 0, 0)
    rollups.write(2000 * SECOND)
    assert totals(tmp_path, 10)[0] == 1 and file.stat().st_size == ROLLUP.size
