"""The attempts of a job that a keeper holds: their names, their places, and what the recording of one that lost a host says."""

from submissions import a_submission

from paceline.facts import Status
from paceline.parts.engines.attempts import attempts_of, note_retry
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

JOB = a_submission(retries=2)


def test_every_attempt_has_an_id_and_a_directory_of_its_own(tmp_path):
    attempts = list(attempts_of(JOB, tmp_path / "r-000001"))
    assert [one.job.run_id for one in attempts] == ["r-000001", "r-000001.2", "r-000001.3"]
    assert [one.directory.name for one in attempts] == ["r-000001", "r-000001.2", "r-000001.3"]
    assert [one.following for one in attempts] == ["r-000001.2", "r-000001.3", "r-000001.4"]
    assert [one.is_last for one in attempts] == [False, False, True]
    assert all(one.job.program == JOB.program for one in attempts)


def test_a_job_without_retries_has_one_attempt(tmp_path):
    (only,) = attempts_of(a_submission(), tmp_path / "r-000001")
    assert only.is_last


def test_the_recording_of_a_lost_attempt_names_the_run_that_follows(recording, capfd):
    lost = recording("r-000001")
    lost.identity()
    first = next(attempts_of(JOB, lost.path))
    note_retry(first, "node2 is lost: no answer")
    assert "paceline  node2 is lost: no answer; retry 1 of 2 as r-000001.2" in capfd.readouterr().err
    run, events, _ = read_run((RunDirectory(lost.path),))
    assert (run.status, run.exit_code, run.reason) == (Status.FAILED, 200, "node2 is lost: no answer")
    assert [one["text"] for one in events if one["event"] == "notice"] == [
        "node2 is lost: no answer; started again as r-000001.2 (retry 1 of 2)"
    ]


def test_an_attempt_that_recorded_nothing_is_only_told_of(tmp_path, capfd):
    note_retry(next(attempts_of(JOB, tmp_path / "r-000001")), "gone")
    assert "retry 1 of 2" in capfd.readouterr().err and not (tmp_path / "r-000001").exists()
