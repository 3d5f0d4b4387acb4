"""ModelTrainer, in the spelling of SDK v3, over the same job."""

import json

import pytest

from paceline.errors import UsageError
from paceline.estimator import (
    MPI,
    CheckpointConfig,
    Compute,
    InputData,
    ModelTrainer,
    Networking,
    OutputDataConfig,
    SourceCode,
    StoppingCondition,
    Torchrun,
)

CODE = {"source_dir": "src", "entry_script": "train.py"}


@pytest.fixture
def trainer(project):
    def build(**fields):
        usual = {"source_code": SourceCode(**CODE), "stopping_condition": StoppingCondition(max_runtime_in_seconds=60)}
        if "compute" not in fields and "training_mode" not in fields:
            usual["engine"] = "fake"
        return ModelTrainer(**{**usual, **fields})

    return build


def job_of(made, inputs=None):
    return made.train(inputs, dry_run=True).job


def test_the_hour_of_v3_is_announced(trainer, capsys):
    job = job_of(trainer(stopping_condition=None))
    assert job.max_run_seconds == 3600
    said = capsys.readouterr().err
    assert "3600" in said and "86400" in said


def test_a_limit_that_was_said_needs_no_word(trainer, capsys):
    assert job_of(trainer()).max_run_seconds == 60
    assert "3600" not in capsys.readouterr().err


def test_torchrun_starts_as_many_ranks_as_it_says(trainer):
    assert job_of(trainer(distributed=Torchrun(process_count_per_node=4))).ranks_per_host == "4"
    assert job_of(trainer(distributed=Torchrun())).ranks_per_host == "gpu"
    assert job_of(trainer()).ranks_per_host == "1"


def test_mpi_is_hosts_times_ranks_unlike_in_v3(trainer):
    made = trainer(distributed=MPI(process_count_per_node=8, mpi_additional_options=["-x", "A=1"]))
    job = job_of(made)
    assert job.ranks_per_host == "8"
    assert job.environment == {"A": "1"}
    assert job_of(trainer(distributed=MPI())).ranks_per_host == "gpu"


def test_this_machine_has_two_names(trainer):
    for fields in (
        {"training_mode": "LOCAL_CONTAINER"},
        {"compute": Compute(instance_type="local_cpu")},
        {"compute": Compute(instance_type="local")},
    ):
        assert trainer(**fields).train(dry_run=True).engine == "local"


def test_without_compute_it_is_the_machine_of_v3(trainer):
    made = trainer(engine=None, role="arn:aws:iam::1:role/x", training_image="image")
    assert job_of(made).platform["ResourceConfig"]["InstanceType"] == "ml.m5.xlarge"


def test_inputs_of_train_are_laid_over_those_of_the_trainer(trainer):
    made = trainer(
        input_data_config=[
            InputData(channel_name="a", data_source="s3://b/1"),
            InputData(channel_name="b", data_source="s3://b/2"),
        ]
    )
    channels = job_of(made, [InputData(channel_name="b", data_source="s3://b/3")]).channels
    assert {channel.name: channel.source for channel in channels} == {"a": "s3://b/1", "b": "s3://b/3"}


def test_outputs_checkpoints_and_networks_are_carried(trainer):
    made = trainer(
        engine=None,
        compute=Compute(instance_type="ml.g5.xlarge", instance_count=2, enable_managed_spot_training=True),
        role="arn:aws:iam::1:role/x",
        training_image="image",
        output_data_config=OutputDataConfig(s3_output_path="s3://b/o", compression_type="NONE"),
        checkpoint_config=CheckpointConfig(s3_uri="s3://b/c"),
        networking=Networking(subnets=["s"], security_group_ids=["g"], enable_network_isolation=True),
        stopping_condition=StoppingCondition(
            max_runtime_in_seconds=60, max_wait_time_in_seconds=90, max_pending_time_in_seconds=7200
        ),
    )
    job = job_of(made)
    assert (job.output_url, job.checkpoint_url, job.hosts) == ("s3://b/o", "s3://b/c", 2)
    assert job.platform["StoppingCondition"] == {"MaxWaitTimeInSeconds": 90, "MaxPendingTimeInSeconds": 7200}
    assert job.platform["VpcConfig"] == {"Subnets": ["s"], "SecurityGroupIds": ["g"]}
    assert job.platform["EnableManagedSpotTraining"] and job.platform["EnableNetworkIsolation"]


def test_arguments_of_the_script_are_words_and_never_a_shell_string(trainer):
    assert job_of(trainer(source_code=SourceCode(**CODE, args=["--name", "a b"]))).program.arguments == (
        "--name",
        "a b",
    )
    assert job_of(trainer(source_code=SourceCode(**CODE, args="--name 'a b'"))).program.arguments == ("--name", "a b")


def test_hyperparameters_may_stand_in_a_file(trainer, project):
    (project / "hp.json").write_text(json.dumps({"lr": 0.1}))
    job = job_of(trainer(hyperparameters="hp.json"))
    assert (job.hyperparameters, job.profile) == ({"lr": 0.1}, "v3")


def test_what_is_added_later_counts(trainer):
    made = (
        trainer()
        .with_retry_strategy({"maximum_retry_attempts": 3})
        .with_checkpoint_config(CheckpointConfig(s3_uri="s3://b/c"))
    )
    made.with_metric_definitions([{"name": "loss", "regex": "loss=(.*)"}])
    job = job_of(made)
    assert (job.retries, job.checkpoint_url) == (3, "s3://b/c")
    assert job.platform["AlgorithmSpecification"]["MetricDefinitions"] == [{"Name": "loss", "Regex": "loss=(.*)"}]


def test_what_means_nothing_here_is_said(trainer, capsys):
    job_of(
        trainer()
        .with_infra_check_config()
        .with_remote_debug_config()
        .with_tensorboard_output_config()
        .with_session_chaining_config()
    )
    said = capsys.readouterr().err
    for name in (
        "enable_infra_check",
        "enable_remote_debug",
        "enable_session_tag_chaining",
        "tensorboard_output_config",
    ):
        assert name in said


@pytest.mark.parametrize(
    ("build", "code", "next"),
    [
        (lambda: ModelTrainer(distribution={}), "U01", "write distributed=..."),
        (lambda: ModelTrainer(sourcecode=None), "U01", "write source_code=..."),
        (lambda: SourceCode(entry_point="train.py"), "U01", "write entry_script=..."),
        (lambda: Compute(instance_cuont=2), "U01", "write instance_count=..."),
        (lambda: Torchrun(4), "U01", "Torchrun(process_count_per_node=...)"),
        (lambda: StoppingCondition(max_run=60), "U01", None),
        (lambda: ModelTrainer(source_code={"entry_script": "train.py"}), "U01", "source_code=SourceCode(...)"),
        (lambda: ModelTrainer(source_code=SourceCode(**CODE), engine="fake", distributed={"torchrun": 1}), "U01", None),
        (lambda: ModelTrainer(source_code=SourceCode(**CODE), training_mode="LOCAL"), "U01", None),
        (lambda: ModelTrainer(source_code=SourceCode(**CODE, requirements="more.txt")), "U32", None),
        (lambda: ModelTrainer(algorithm_name="xgboost"), "U32", None),
        (
            lambda: ModelTrainer(source_code=SourceCode(**CODE), engine="fake", distributed=Torchrun(smp={})),
            "U32",
            None,
        ),
        (lambda: ModelTrainer.from_recipe("llama"), "U32", None),
        (lambda: ModelTrainer.from_jumpstart_config("x"), "U32", None),
        (
            lambda: ModelTrainer(source_code=SourceCode(**CODE), engine="fake", hyperparameters="hp.yaml"),
            "U07",
            "correct hp.yaml",
        ),
        (
            lambda: ModelTrainer(source_code=SourceCode(**CODE), engine="fake", hyperparameters="absent.json"),
            "U07",
            None,
        ),
        (lambda: ModelTrainer(engine="fake"), "U02", None),
    ],
)
def test_what_v3_does_not_have_is_refused(project, build, code, next):
    with pytest.raises(UsageError) as refused:
        build()
    error = refused.value
    assert error.code == code
    assert all((error.what, error.saw, error.next, error.more))
    assert next is None or error.next == next


def test_a_wrong_addition_leaves_the_trainer_as_it_was(trainer):
    made = trainer()
    with pytest.raises(UsageError):
        made.with_metric_definitions([{"name": "loss", "regex": "("}])
    assert job_of(made).platform.get("AlgorithmSpecification") is None


def test_training_goes_through_the_same_job(trainer, capsys):
    made = trainer(engine_options={"states": "Training,Completed"})
    made.train(wait=False)
    made.latest_training_job.wait()
    assert made.describe()["TrainingJobStatus"] == "Completed"
    assert ModelTrainer.attach(made.latest_training_job.name).run_id == made.latest_training_job.run_id


def test_a_command_is_told_where_its_hyperparameters_are(trainer, capsys):
    by_command = SourceCode(source_dir="src", command="python train.py")
    job_of(trainer(source_code=by_command, hyperparameters={"epochs": 3}))
    assert "no hyperparameters as arguments" in capsys.readouterr().err
    job_of(trainer(source_code=by_command))
    job_of(trainer(hyperparameters={"epochs": 3}))
    assert "no hyperparameters as arguments" not in capsys.readouterr().err
