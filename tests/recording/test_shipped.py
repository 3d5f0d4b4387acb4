"""A submitted job runs a copy of its code."""

import json

import pytest

from paceline.facts import RankError, RankExit
from paceline.recording.shipped import own_file, with_own_file


@pytest.fixture
def place(tmp_path):
    """A job that was submitted from `tmp_path / project`, which has a train.py."""
    source = tmp_path / "code" / "project"
    source.mkdir(parents=True)
    (source / "train.py").write_text("")
    place = source / ".paceline" / "runs" / "r-000001"
    place.mkdir(parents=True)
    (place / "submission.json").write_text(json.dumps({"job": {"package": {"directory": str(source)}}}))
    return place


def test_the_own_file_of_a_copy_is_found_on_this_host_and_of_another(place, tmp_path):
    own = str(tmp_path / "code" / "project" / "train.py")
    assert own_file(f"{place}/code/train.py", place) == own
    assert own_file("/home/far/.paceline/jobs/r-000001/code/train.py", place) == own


def test_a_later_try_has_the_code_of_the_first(place):
    later = place.with_name("r-000001.2")
    later.mkdir()
    assert (own_file(f"{place}/code/train.py", later) or "").endswith("project/train.py")


def test_a_file_that_was_not_shipped_stays_as_it_is(place, tmp_path):
    assert own_file(f"{place}/code/gone.py", place) is None
    assert own_file("/usr/lib/python3/json.py", place) is None
    assert own_file("/x/code/train.py", tmp_path) is None


def test_of_an_exit_only_the_error_changes(place):
    exit = RankExit(host="algo-1", rank=0, attempt=0, code=1, time_ns=1)
    assert with_own_file(exit, place) is exit
    error = RankError(type="KeyError", message="", time_ns=1, file=f"{place}/code/train.py", line=3)
    (own,) = {
        with_own_file(RankExit(host="a", rank=0, attempt=0, code=1, time_ns=1, error=error), place).error.own_file
    }
    assert own.endswith("project/train.py")
