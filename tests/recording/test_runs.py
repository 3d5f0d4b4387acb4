"""Runs are found by what a person types."""

import json
import os
import re

import pytest

from paceline.errors import UsageError
from paceline.recording.runs import (
    at_path,
    create_run,
    find_run,
    index_folder,
    list_runs,
    new_run_id,
    register,
    runs_root,
)


@pytest.fixture
def root(tmp_path):
    return tmp_path / ".paceline" / "runs"


@pytest.fixture
def index(tmp_path):
    return tmp_path / "index"


def test_an_id_is_short_and_new_each_time():
    ids = {new_run_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"r-[0-9a-f]{6}", run_id) for run_id in ids)


def test_runs_lie_below_the_working_directory_unless_paceline_home_moves_them(tmp_path):
    assert runs_root(tmp_path, {}) == tmp_path / ".paceline" / "runs"
    assert str(runs_root(tmp_path, {"PACELINE_HOME": "/data/p"})) == "/data/p/runs"


def test_recordings_are_kept_out_of_version_control(root):
    create_run(root, "r-000001")
    assert (root.parent / ".gitignore").read_text() == "*\n"


def test_a_run_is_found_by_id_by_its_beginning_and_by_path(recording, root, index):
    made = recording("r-abc123")
    made.identity()
    for text in ("r-abc123", "r-ab", str(made.path)):
        assert os.path.samefile(find_run(text, root, index), made.path)


def test_without_a_name_the_newest_run_here_is_meant(recording, root, index):
    recording("r-000001").identity(started_ns=2)
    recording("r-000002").identity(started_ns=1)
    assert find_run(None, root, index).name == "r-000001"


def test_a_run_started_elsewhere_is_found_through_the_index(recording, tmp_path, index):
    made = recording("r-abc123")
    made.identity()
    assert register("r-abc123", made.path, index) is None
    elsewhere = tmp_path / "elsewhere" / "runs"
    assert os.path.samefile(find_run("r-abc", elsewhere, index), made.path)


def test_without_a_name_a_run_of_another_directory_is_never_meant(recording, tmp_path, index):
    made = recording("r-abc123")
    made.identity()
    register("r-abc123", made.path, index)
    with pytest.raises(UsageError) as refused:
        find_run(None, tmp_path / "elsewhere" / "runs", index, verb="paceline stop")
    assert refused.value.code == "U09"
    assert f"r-abc123 of {tmp_path}" in refused.value.saw
    # A command that acts is not given a target that nobody named.
    assert refused.value.next == "paceline ps"


def test_a_run_that_is_here_and_in_the_index_is_listed_once(recording, root, index):
    made = recording("r-abc123")
    made.identity()
    register("r-abc123", made.path, index)
    assert [run.id for run in list_runs(root, index)] == ["r-abc123"]


@pytest.mark.parametrize("gone", ["/" + "x" * 300, "loop"])
def test_a_directory_that_cannot_be_looked_at_hides_no_other_run(recording, tmp_path, root, index, gone):
    made = recording("r-abc123")
    made.identity()
    (tmp_path / "loop").symlink_to("loop")
    index.mkdir()
    (index / "r-000000.json").write_text(json.dumps({"id": "r-000000", "directory": str(tmp_path / gone)}))
    assert [run.id for run in list_runs(root, index)] == ["r-abc123"]
    with pytest.raises(UsageError):
        find_run(str(tmp_path / gone), root, index)


@pytest.mark.parametrize("text", ["r-ffffff", "no/such/place", "r f"])
def test_a_run_that_is_not_there_is_refused(root, index, text):
    with pytest.raises(UsageError) as refused:
        find_run(text, root, index)
    assert refused.value.code == "U09"


def test_without_a_home_there_is_no_index(root, monkeypatch):
    def none(name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_state_path", none)
    assert not index_folder().exists() and list_runs(root) == []
    assert register("r-000001", root).startswith("the run index could not be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory")
def test_a_directory_that_may_not_be_read_is_said_to_be_one(tmp_path):
    tmp_path.chmod(0o300)
    with pytest.raises(UsageError, match="cannot be read"):
        at_path(tmp_path)


def test_an_ambiguous_beginning_names_the_candidates(recording, root, index):
    recording("r-ab0001").identity()
    recording("r-ab0002").identity()
    with pytest.raises(UsageError) as refused:
        find_run("r-ab", root, index)
    assert refused.value.what == "2 runs begin with 'r-ab'"
    assert "r-ab0001" in refused.value.saw and "r-ab0002" in refused.value.saw


def test_an_index_that_cannot_be_written_is_a_reason_and_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert "could not be written" in (register("r-000001", tmp_path, tmp_path / "file") or "")


def test_entries_of_directories_long_gone_are_dropped(tmp_path, index):
    register("r-000001", tmp_path / "gone", index)
    os.utime(index / "r-000001.json", (1, 1))
    register("r-000002", tmp_path, index)
    assert [path.name for path in index.iterdir()] == ["r-000002.json"]


def test_run_json_says_which_process_on_which_machine_leads_the_run(recording):
    made = recording()
    made.identity()
    document = json.loads(made.directory.run_file.read_text())
    assert document["schema"] == "paceline.run/2" and document["run_id"] == made.path.name
    assert document["agent_pid"] == os.getpid()
    assert document["machine"] == os.uname().nodename
    assert document["agent_start_ticks"] > 0
