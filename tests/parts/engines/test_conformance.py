"""The contract suite on the shipped fake: it passes, and a fault that is injected is found."""

import json

import pytest
from submissions import a_submission, changed

from paceline.errors import HostLost, UsageError
from paceline.facts import Program, ProgramKind, Status
from paceline.job_file import job_document
from paceline.parts.engines import jobs
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_cancel, check_ends, check_plan, check_refused
from paceline.parts.engines.submission import host_file
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

JOB = a_submission(
    program=Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--lr", "0.1")),
    hosts=2,
    environment={"API_KEY": "a-very-secret-value"},
)


@pytest.fixture(autouse=True)
def own_index(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def fake(**options):
    return load("fake", {}, {name: str(value) for name, value in options.items()})


def with_options(**options):
    return changed(JOB, engine_options={name: str(value) for name, value in options.items()})


def test_the_fake_keeps_the_contract(tmp_path):
    check_plan(fake(), JOB)
    check_ends(fake(), JOB, tmp_path, seconds=10)
    check_cancel(fake(states="Training"), changed(JOB, run_id="r-000002"), tmp_path, seconds=10)
    check_refused(fake(refuse="U05"), changed(JOB, run_id="r-000003"), tmp_path, "U05")


@pytest.mark.parametrize(("state", "code"), [("Failed", 1), ("HostLost", 200), ("Stopped", 143)])
def test_an_end_has_its_exit_code(tmp_path, state, code):
    seen = check_ends(fake(states=f"Pending,{state}"), JOB, tmp_path, seconds=10, code=code)
    assert seen.status is (Status.STOPPED if state == "Stopped" else Status.FAILED)


def test_the_suite_finds_an_end_that_is_not_the_jobs(tmp_path):
    with pytest.raises(AssertionError, match="ended with 1"):
        check_ends(fake(states="Failed"), JOB, tmp_path, seconds=10)


def test_the_suite_finds_a_job_that_never_ends(tmp_path):
    with pytest.raises(AssertionError, match="after 0 s"):
        check_ends(fake(states="Pending"), JOB, tmp_path, seconds=0)


def test_a_job_is_found_again_by_its_directory(tmp_path):
    job = with_options(states="Training,Completed")
    run_dir = jobs.make_run_dir(tmp_path, job.run_id)
    jobs.submit_job(job, fake(), run_dir)
    assert jobs.submitted(run_dir).job.program == job.program
    assert jobs.observe(run_dir, {}).status is Status.IN_PROGRESS
    assert jobs.observe(run_dir, {}).exit_code == 0


def test_values_of_the_environment_are_not_kept(tmp_path):
    run_dir = jobs.make_run_dir(tmp_path, JOB.run_id)
    jobs.submit_job(JOB, fake(), run_dir)
    assert "a-very-secret-value" not in (run_dir / "submission.json").read_text()
    assert jobs.submitted(run_dir).job.environment == {"API_KEY": "***"}


def test_an_engine_that_does_not_answer_says_so(tmp_path):
    job = with_options(lose="U22")
    run_dir = jobs.make_run_dir(tmp_path, job.run_id)
    jobs.submit_job(job, fake(), run_dir)
    with pytest.raises(HostLost, match="does not answer"):
        jobs.observe(run_dir, {})


def test_an_unknown_engine_names_the_nearest():
    with pytest.raises(UsageError) as refused:
        load("lokal", {}, {})
    assert refused.value.code == "E01"
    assert refused.value.next == "paceline submit --engine local ..."


def test_an_agent_is_given_the_job_as_data():
    job = changed(JOB, max_restarts=1, max_run_seconds=90.0, hyperparameters={"n": "5", "rate": float("inf")})
    first, second = (job_document(host_file(job, rank, "node1", 29500)) for rank in (0, 1))
    assert second["job"] | {"contract": None} == {
        "name": "train",
        "program": {"kind": "script", "target": "train.py", "arguments": ["--lr", "0.1"]},
        "min_hosts": 2,
        "max_hosts": 2,
        "node_rank": 1,
        "is_first": False,
        "master_addr": "node1",
        "agents_port": 29500,
        "max_restarts": 1,
        "max_run_seconds": 90.0,
        "submission_id": "r-000001",
        "contract": None,
    }
    assert second["job"]["contract"] == {"hyperparameters": {"n": "5", "rate": float("inf")}}
    assert (first["schema"], first["run_id"]) == ("paceline.job/1", "r-000001")


def test_a_submission_of_before_is_found_and_ended(tmp_path):
    run_dir = jobs.make_run_dir(tmp_path, JOB.run_id)
    jobs.submit_job(JOB, fake(states="Training"), run_dir)
    file = run_dir / "submission.json"
    package = {
        "directory": "/home/me/work",
        "archive": "/a",
        "digest": "d",
        "file_count": 1,
        "size_bytes": 1,
        "archive_bytes": 1,
    }
    before = {
        "schema": "paceline.submission/1",
        "engine": "fake",
        "handle": {"job": "r-000001"},
        "submitted_ns": 1,
        "job": {
            "run_id": "r-000001",
            "name": "old",
            "program": {"kind": "script", "target": "train.py", "arguments": []},
            "package": package,
            "options": ["--max-restarts", "1"],
            "run_dir_mode": None,
            "hosts": 2,
            "ranks_per_host": "gpu",
            "environment": {"API_KEY": "***"},
            "hyperparameters": {"lr": 0.1},
            "profile": "v3",
            "channels": [{"name": "train", "source": "/data"}],
            "output_url": None,
            "checkpoint_url": "s3://b/c",
            "max_run_seconds": 60.0,
            "retries": 1,
            "engine_options": {"states": "Training"},
            "platform": {},
        },
    }
    file.write_text(json.dumps(before))
    found = jobs.submitted(run_dir).job
    assert (found.name, found.run_id, found.hosts, found.ranks_per_host) == ("old", "r-000001", 2, "gpu")
    assert (found.package.directory, found.channels[0].source, found.checkpoint_url) == (
        "/home/me/work",
        "/data",
        "s3://b/c",
    )
    assert (found.profile, found.hyperparameters, found.retries) == ("v3", {"lr": 0.1}, 1)
    assert jobs.observe(run_dir, {}).status is Status.IN_PROGRESS
    jobs.cancel(run_dir, {})
    assert jobs.observe(run_dir, {}).status is Status.STOPPED
    assert read_run((RunDirectory(run_dir),))[0].name == "old"
