"""Numbers of open files that a new process has given otherwise."""

import os

import pytest

from paceline.parts.resume.worker.descriptors import OpenFiles, name_of
from paceline.parts.resume.worker.kinds import Context
from paceline.parts.resume.worker.object_graph import Restore


@pytest.fixture
def log(tmp_path):
    """A file's descriptor."""
    number = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    yield number
    os.close(number)


def test_open_files_have_their_paths_and_pipes_have_none(log, tmp_path):
    descriptors = OpenFiles()
    assert descriptors.names()[log] == str(tmp_path / "log") and log in descriptors.names()
    read, write = os.pipe()
    memory = os.memfd_create("one")
    # Numbers that were not there the last time.
    assert descriptors.names()[log] == str(tmp_path / "log")
    assert not {read, write, memory} & descriptors.names().keys()
    for number in (read, write, memory):
        os.close(number)
    assert name_of(read) == ""


def put_back(kept, now, open_files):
    restore = Restore([], Context(None))
    restore.open_files = open_files
    return restore.variables(kept, now)


def test_the_number_of_a_file_stays_the_one_of_this_process(log, tmp_path):
    kept = {"log": log + 1, "epoch": 3, "flag": True}
    assert put_back(kept, {"log": log, "epoch": 0, "flag": False}, {log + 1: str(tmp_path / "log")}) == kept | {
        "log": log
    }


@pytest.mark.parametrize("then", ["another", None])
def test_a_counter_that_happens_to_be_the_number_of_a_file_is_put_back(log, tmp_path, then):
    open_files = {log + 1: str(tmp_path / then)} if then else {}
    assert put_back({"patience": log + 1}, {"patience": log}, open_files) == {"patience": log + 1}
    assert put_back({"patience": log + 1}, {}, {log + 1: str(tmp_path / "log")}) == {"patience": log + 1}
