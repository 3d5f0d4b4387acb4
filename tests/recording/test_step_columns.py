"""The steps of a segment in equal parts of the time."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.recording.layout import RunDirectory
from paceline.recording.ring import HEADER_BYTES, RECORD, RecordKind
from paceline.recording.step_columns import TimeAxis, step_columns

HEADER = (Path(__file__).parent / "data/before/asleep/hosts/localhost/attempt_0/rank_1.seg").read_bytes()[:HEADER_BYTES]
STEPS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**36)), max_size=50)


def written(directory, steps):
    """A run with one segment, whose steps end at these times; a phase stands between them, and a torn record behind."""
    path = directory.segment_file("a", 0, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    phase = RECORD.pack(RecordKind.PHASE, 2, 0, *range(7))
    records = [
        RECORD.pack(RecordKind.STEP, 0, 0, at, end, length, 0, 0, 0, 0) for at, (end, length) in enumerate(steps)
    ]
    path.write_bytes(HEADER + phase.join([b"", *records]) + b"torn")


@settings(deadline=None)
@given(steps=STEPS)
def test_no_step_is_lost_and_the_longest_is_kept(tmp_path_factory, steps):
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    written(directory, steps)
    found, complaints = step_columns([directory], TimeAxis(2**20, 2**39, 7))
    assert complaints == []
    if not steps:
        assert found == ()
        return
    ((columns,), lengths) = found, [length for _, length in steps]
    assert (columns.host, columns.rank, columns.attempt) == ("a", 1, 0)
    assert (sum(columns.counts), sum(columns.totals_ns)) == (len(steps), sum(lengths))
    assert max(columns.longest_ns) == max(lengths)


def test_a_step_is_in_the_part_in_which_it_ended(tmp_path):
    written(RunDirectory(tmp_path), [(99, 5), (100, 6), (149, 7), (150, 8), (1000, 9)])
    ((columns,), _) = step_columns([RunDirectory(tmp_path)], TimeAxis(100, 200, 2))
    assert columns.counts == [3, 2] and columns.totals_ns == [18, 17] and columns.longest_ns == [7, 9]


def test_a_segment_that_is_none_is_named(tmp_path):
    path = RunDirectory(tmp_path).segment_file("a", 0, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(HEADER_BYTES))
    found, complaints = step_columns([RunDirectory(tmp_path)], TimeAxis(0, 1, 1))
    assert found == () and len(complaints) == 1 and "rank_0.seg" in complaints[0]
