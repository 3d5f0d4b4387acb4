"""fit() over an engine that plays states: what is printed, what is raised, what can be asked afterwards."""

import subprocess
import sys

import pytest

from paceline.errors import PacelineError, UsageError
from paceline.estimator import CapacityError, PyTorch, TrainingInput, TrainingTimeout, UnexpectedStatusException
from paceline.facts import SecondaryStatus, Status
from paceline.part import Observation
from paceline.parts.sagemaker.estimator.failure import failure_of


def playing(states, **more):
    return {"engine_options": {"states": states, **more}}


def test_status_output_and_seconds_are_printed_as_v2_does(make, capsys):
    make(**playing("Pending,Training,Completed")).fit(job_name="job-1")
    out = capsys.readouterr().out
    assert [line.split(" - ")[0].split()[-1] for line in out.splitlines() if " - " in line] == [
        "Pending",
        "Training",
        "Completed",
    ]
    assert out.splitlines()[-1].startswith("Training seconds: ")


def test_without_logs_only_the_status_is_printed(make, capsys):
    make(**playing("Training,Completed")).fit(logs="None")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3


def test_fit_returns_at_once_without_wait(make, capsys):
    made = make(**playing("Training"))
    made.fit(wait=False)
    assert made.latest_training_job.status().status is Status.IN_PROGRESS
    assert capsys.readouterr().out == ""


def test_a_failure_raises_and_says_what_to_type(make):
    made = make(**playing("Training,Failed", exit_code="7"))
    with pytest.raises(UnexpectedStatusException) as failed:
        made.fit(job_name="job-1")
    error = failed.value
    assert (error.code, error.job_name, error.actual_status, error.exit_code) == ("U50", "job-1", "Failed", 7)
    assert error.next == f"paceline why {made.latest_training_job.run_id}"
    assert any("paceline why" in note for note in error.__notes__)


def test_a_job_that_somebody_stopped_returns_with_a_notice_as_in_v2(make, capsys):
    make(**playing("Training,Stopped")).fit()
    assert "was stopped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("secondary", "reason", "kind", "code"),
    [
        (SecondaryStatus.MAX_RUNTIME_EXCEEDED, "time limit of 5 s", TrainingTimeout, "U50"),
        (SecondaryStatus.FAILED, "CapacityError: Unable to provision", CapacityError, "U50"),
        (SecondaryStatus.FAILED, "rank 1 on algo-2 ended with code 3", UnexpectedStatusException, "U50"),
    ],
)
def test_each_way_to_end_has_its_exception(tmp_path, secondary, reason, kind, code):
    seen = Observation(status=Status.FAILED, secondary_status=secondary, reason=reason, exit_code=1)
    error = failure_of(seen, "job-1", "r-000001", tmp_path)
    assert type(error) is kind
    assert error.code == code and reason in error.what and error.saw


def test_the_exception_names_who_fell_first(recording):
    made = recording()
    made.identity()
    made.event("rank_exited", host="algo-1", rank=0, attempt=0, code=1, t_ns=2_000, signalled_by_us=True)
    made.event("rank_exited", host="algo-2", rank=1, attempt=0, code=3, t_ns=1_000)
    made.finish(code=3, status="Failed", reason="rank 1 on algo-2 ended with code 3")
    seen = Observation(status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, reason="rank 1", exit_code=3)
    error = failure_of(seen, "job-1", "r-000001", made.path)
    assert (error.rank, error.host, error.rank_exit_code, error.exit_code) == (1, "algo-2", 3, 3)


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_come_back(make, capsys):
    made = make(**playing("Training"))

    def interrupted(seconds):
        raise KeyboardInterrupt

    around = made.around()
    made.around = lambda: type(around)(environ=around.environ, directory=around.directory, pause=interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.fit(job_name="job-1")
    said = capsys.readouterr().err
    assert "attach('job-1')" in said and f"paceline stop {made.latest_training_job.run_id}" in said
    assert made.latest_training_job.status().status is Status.IN_PROGRESS


def test_an_engine_that_does_not_answer_is_asked_again_and_then_said_so(make, capsys):
    made = make(**playing("Training", lose="U19"))
    waited = []
    around = made.around()
    made.around = lambda: type(around)(environ=around.environ, directory=around.directory, pause=waited.append)
    with pytest.raises(PacelineError, match="does not answer"):
        made.fit(job_name="job-1")
    assert waited == sorted(waited) and sum(waited) > 20
    assert "the job goes on; to come back: attach('job-1')" in capsys.readouterr().err


def test_a_refusal_of_the_engine_leaves_nothing_behind(make, project):
    with pytest.raises(UsageError, match="refuses"):
        make(**playing("Training", refuse="U05")).fit()
    assert not list((project / ".paceline" / "runs").glob("*"))


def test_attach_finds_a_job_by_its_name_and_by_its_run(make):
    made = make(
        **playing("Training,Completed"),
        hyperparameters={"lr": 0.1},
        metric_definitions=[{"Name": "loss", "Regex": "loss=(.*)"}],
    )
    made.fit(wait=False, job_name="job-1")
    for text in ("job-1", made.latest_training_job.run_id):
        again = PyTorch.attach(text)
        assert again.latest_training_job.job_name == "job-1"
        assert again.hyperparameters() == {"lr": 0.1}
        assert again.instance_count == 2
        assert again.metric_definitions == made.metric_definitions
        assert again.plan().job.ranks_per_host == "1"


def test_of_two_jobs_with_one_name_attach_takes_the_newest(make):
    made = make()
    made.fit(wait=False, job_name="job-1")
    made.fit(wait=False, job_name="job-1")
    assert PyTorch.attach("job-1").latest_training_job.run_id == made.latest_training_job.run_id


def test_attach_to_nothing_is_an_error(project):
    with pytest.raises(UsageError) as refused:
        PyTorch.attach("job-9")
    assert refused.value.code == "U09"


def test_stop_ends_the_job(make):
    made = make(**playing("Training"))
    made.fit(wait=False)
    made.stop()
    assert made.latest_training_job.status().status is Status.STOPPED


def test_describe_has_the_shape_of_the_services_answer(make):
    made = make(
        **playing("Training,Completed"),
        hyperparameters={"lr": 0.1},
        output_path="s3://b/out",
        environment={"KEY": "hush"},
    )
    made.fit({"train": "s3://b/p"}, wait=False, job_name="job-1")
    made.latest_training_job.status()
    facts = made.describe()
    assert facts["TrainingJobName"] == "job-1"
    assert facts["TrainingJobStatus"] == facts["SecondaryStatus"] == "Completed"
    assert facts["HyperParameters"] == {"lr": "0.1"}
    assert facts["ResourceConfig"]["InstanceCount"] == 2
    assert facts["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}
    assert facts["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://b/p"
    assert facts["ModelArtifacts"]["S3ModelArtifacts"] == made.model_data
    assert made.model_data == f"s3://b/out/{made.latest_training_job.run_id}/output/model.tar.gz"
    assert facts["SecondaryStatusTransitions"][0]["Status"] == "Starting"
    assert "hush" not in str(facts)


def test_questions_before_a_job_are_refused(make):
    made = make()
    for ask in (made.describe, made.stop, made.logs, made.metrics, made.wait, lambda: made.model_data):
        with pytest.raises(UsageError) as refused:
            ask()
        assert refused.value.code == "U09"


def test_set_hyperparameters_adds_and_a_wrong_one_changes_nothing(make):
    made = make(hyperparameters={"lr": 0.1})
    made.set_hyperparameters(epochs=3)
    with pytest.raises(UsageError):
        made.set_hyperparameters(sagemaker_program="x")
    assert made.hyperparameters() == {"lr": 0.1, "epochs": 3}


def test_a_check_that_fails_stops_the_job(make, project):
    (project / "src" / "train.py").write_text("def broken(:\n")
    with pytest.raises(UsageError) as refused:
        make().fit()
    assert refused.value.code.startswith("K")
    assert not (project / ".paceline").exists()


def test_shards_that_do_not_divide_are_warned_of(make, project, capsys):
    (project / "data").mkdir()
    for number in range(3):
        (project / "data" / f"part-{number}").write_text("1")
    make().fit({"train": TrainingInput("file://data", distribution="ShardedByS3Key")}, wait=False)
    assert "warning[K03]" in capsys.readouterr().err


def test_retries_that_an_engine_does_not_make_are_named(make, capsys):
    make(max_retry_attempts=3).fit(wait=False)
    assert "max_retry_attempts=3" in capsys.readouterr().err


def test_another_release_than_was_asked_for_is_said(make, capsys):
    make(instance_type="local", framework_version="1.6.0", py_version="py3").plan()
    assert "what is installed here is torch" in capsys.readouterr().err


@pytest.mark.process
def test_importing_the_room_loads_neither_torch_nor_boto3(user_environment):
    program = "import sys, paceline.estimator; sys.exit(bool({'torch', 'boto3', 'ray', 'numpy', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], env=user_environment, check=False).returncode == 0


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ({"entry_point": "train.py", "source_dir": "src"}, "src/train.py"),
        ({"entry_point": "src/train.py", "source_dir": None}, "src/train.py"),
    ],
)
def test_what_was_not_checked_is_asked_of_the_users_own_script(make, capsys, place, shown):
    make(**playing("Completed"), **place).fit()
    assert f"(paceline check {shown} says why)" in " ".join(capsys.readouterr().err.split())
