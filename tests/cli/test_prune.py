"""`paceline ps --prune`: which recordings go, which stay, and what is left of them."""

import json
import os
import shutil
import time

import pytest

from paceline.cli import main
from paceline.recording import prune
from paceline.recording.runs import index_folder, register

DAY = 86400


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


@pytest.fixture
def runs(tmp_path):
    return tmp_path / ".paceline" / "runs"


@pytest.fixture
def ended(recording):
    """A run that ended so many days ago."""

    def of(run_id, days, finished=True):
        made = recording(run_id)
        made.identity(started_ns=time.time_ns() - int((days + 1) * DAY * 1e9))
        if finished:
            made.finish()
        age(made.path, days)
        register(run_id, made.path)
        return made

    return of


def age(path, days):
    for folder, _, names in os.walk(path):
        for name in (*(os.path.join(folder, name) for name in names), folder):
            os.utime(name, (time.time() - days * DAY,) * 2)


def left(runs):
    return sorted(path.name for path in runs.iterdir())


def test_what_may_go_must_be_said(capsys):
    assert main(["ps", "--prune"]) == 2
    assert "paceline ps --prune --older-than 30d --dry-run" in capsys.readouterr().err


def test_what_chooses_old_recordings_is_refused_without_prune_and_the_reverse(ended, runs, capsys):
    ended("r-000001", 40)
    for argv, said in (
        (["ps", "--keep", "0"], "paceline ps --keep 0 --prune"),
        (["ps", "--prune", "--keep", "0", "--all"], "paceline ps --prune --keep 0"),
        (["ps", "--prune", "--keep", "0", "--status", "Failed"], "paceline ps --prune --keep 0"),
    ):
        assert main(argv) == 2 and f"next      {said}\n" in capsys.readouterr().err
    assert left(runs) == ["r-000001"]


def test_old_runs_go_with_their_entries_in_the_index_and_young_ones_stay(ended, runs, capsys):
    ended("r-000001", 40)
    ended("r-000002", 2)
    assert main(["ps", "--prune", "--older-than", "30d", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "paceline.prune/2" and answer["deleted"] is True
    (run,) = answer["runs"]
    assert run["run_id"] == "r-000001" and run["size_bytes"] > 0 and 39 * DAY < run["age_seconds"] < 41 * DAY
    assert left(runs) == ["r-000002"]
    assert [path.name for path in index_folder().iterdir()] == ["r-000002.json"]


def test_the_newest_stay_and_a_dry_run_deletes_nothing(ended, runs, capsys):
    for number in range(4):
        ended(f"r-00000{number}", 10 - number)
    assert main(["ps", "--prune", "--keep", "2", "--dry-run"]) == 0
    assert "would be deleted: 2 runs" in capsys.readouterr().out and len(left(runs)) == 4
    assert main(["ps", "--prune", "--keep", "2"]) == 0
    assert left(runs) == ["r-000002", "r-000003"]
    assert main(["ps", "--prune", "--keep", "2"]) == 0
    assert capsys.readouterr().out.endswith("nothing to delete\n")


def test_a_run_that_may_still_be_running_stays(ended, runs):
    here = ended("r-000001", 40, finished=False)
    here.identity(agent_pid=os.getpid())
    age(here.path, 40)
    gone = ended("r-000002", 40, finished=False)
    gone.identity(agent_pid=1 << 22)
    age(gone.path, 40)
    other_machine = ended("r-000003", 40, finished=False)
    other_machine.identity(machine="another-host", boot_id="x")
    age(other_machine.path, 40)
    assert main(["ps", "--prune", "--older-than", "30d"]) == 0
    assert left(runs) == ["r-000001", "r-000003"]


def test_all_tries_of_a_job_go_together_or_stay(ended, runs, capsys):
    first = ended("r-000001", 50)
    (first.path / "submission.json").write_text(json.dumps({"schema": "paceline.submission/2", "job": {"retries": 0}}))
    age(first.path, 50)
    ended("r-000001.2", 2)
    assert main(["ps", "--prune", "--older-than", "30d"]) == 0
    assert left(runs) == ["r-000001", "r-000001.2"]
    assert main(["ps", "--prune", "--older-than", "1d"]) == 0
    assert left(runs) == []


def test_a_job_whose_engine_cannot_be_asked_stays_and_is_named(ended, runs, capsys):
    made = ended("r-000001", 50, finished=False)
    document = {"schema": "paceline.submission/2", "job": {"retries": 1}, "engine": "nowhere"}
    (made.path / "submission.json").write_text(json.dumps(document))
    assert main(["ps", "--prune", "--keep", "0"]) == 0
    assert "not judged: r-000001" in capsys.readouterr().err and left(runs) == ["r-000001"]


def test_a_linked_run_a_file_and_a_folder_that_is_no_run_stay(ended, runs, tmp_path):
    ended("r-000001", 40)
    (tmp_path / "mine").mkdir()
    shutil.move(runs / "r-000001", tmp_path / "mine" / "r-000001")
    (runs / "r-000001").symlink_to(tmp_path / "mine" / "r-000001")
    (runs / "notes").mkdir()
    (runs / "notes" / "a.txt").write_text("keep me")
    assert main(["ps", "--prune", "--keep", "0"]) == 0
    assert left(runs) == ["notes", "r-000001"] and (tmp_path / "mine" / "r-000001" / "run.json").exists()


def test_what_vanishes_while_it_is_looked_at_is_no_error(ended, runs, monkeypatch, capsys):
    path = ended("r-000001", 40).path
    walk = os.walk

    def walk_and_delete(top):
        for found in walk(top):
            shutil.rmtree(path, ignore_errors=True)
            yield found

    monkeypatch.setattr(os, "walk", walk_and_delete)
    assert main(["ps", "--prune", "--older-than", "30d"]) == 0
    assert "r-000001" not in capsys.readouterr().out


def test_an_interrupted_deletion_is_no_run_and_is_finished_by_the_next(ended, runs, monkeypatch, capsys):
    ended("r-000001", 40)

    def interrupted(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prune.shutil, "rmtree", interrupted)
        assert main(["ps", "--prune", "--keep", "0"]) == 130
    assert left(runs) == [".pruned-r-000001"]
    assert main(["ps"]) == 0 and "r-000001" not in capsys.readouterr().out
    assert main(["ps", "--prune", "--keep", "0"]) == 0
    assert left(runs) == []


def test_what_cannot_be_deleted_is_named(ended, runs, monkeypatch, capsys):
    ended("r-000001", 40)

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path / "run.json"))

    monkeypatch.setattr(prune.shutil, "rmtree", refused)
    assert main(["ps", "--prune", "--keep", "0"]) == 2
    assert "error[U22]" in capsys.readouterr().err
