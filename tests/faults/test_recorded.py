"""Each fault of the gallery as it was recorded: the cause and the ranks that are found in it today, and nothing surely that is not true."""

import pytest
from recorded import RECORDED, judged, kept, rows, wrong

ROWS = rows()


@pytest.mark.parametrize("fault", ROWS, ids=lambda row: row.name)
def test_a_recorded_job_says_who_and_why(fault, tmp_path):
    trial, run, now_ns = kept(fault.name, tmp_path)
    assert not wrong(fault, trial, judged(run, now_ns))


def test_each_row_is_recorded_and_nothing_else():
    assert {path.name.removesuffix(".tar.xz") for path in RECORDED.iterdir()} == {row.name for row in ROWS}
