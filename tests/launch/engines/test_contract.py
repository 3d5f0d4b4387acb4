"""The contract suite on the shipped fake: it passes, and a fault that is injected is found."""

from dataclasses import replace

import pytest

from paceline.errors import HostLost, UsageError
from paceline.facts import Program, ProgramKind, Status
from paceline.launch.engines import jobs
from paceline.launch.engines.base import load
from paceline.launch.engines.contract import check_cancel, check_ends, check_plan, check_refused
from paceline.launch.engines.submission import Submission, run_argv

JOB = Submission(
    run_id="r-000001",
    name="train",
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
    return replace(JOB, engine_options={name: str(value) for name, value in options.items()})


def test_the_fake_keeps_the_contract(tmp_path):
    check_plan(fake(), JOB)
    check_ends(fake(), JOB, tmp_path, seconds=10)
    check_cancel(fake(states="Training"), replace(JOB, run_id="r-000002"), tmp_path, seconds=10)
    check_refused(fake(refuse="E03"), replace(JOB, run_id="r-000003"), tmp_path, "E03")


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
    job = with_options(lose="E13")
    run_dir = jobs.make_run_dir(tmp_path, job.run_id)
    jobs.submit_job(job, fake(), run_dir)
    with pytest.raises(HostLost, match="does not answer"):
        jobs.observe(run_dir, {})


def test_an_unknown_engine_names_the_nearest():
    with pytest.raises(UsageError) as refused:
        load("lokal", {}, {})
    assert refused.value.code == "E01"
    assert refused.value.next == "paceline submit --engine local ..."


def test_the_words_of_an_agent_are_what_a_person_would_type():
    argv = run_argv(replace(JOB, options=("--max-restarts", "1"), max_run_seconds=90, hyperparameters={"n": "5"}))
    assert " ".join(argv) == (
        "--run-id r-000001 --name train --nproc-per-node 1 --max-restarts 1 --max-run 90s"
        ' --hp-profile v2 --hp n="5" -- train.py --lr 0.1'
    )
