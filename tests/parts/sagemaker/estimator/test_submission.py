"""The one job that an estimator makes, as every engine is given it."""

from dataclasses import asdict, replace

import pytest

from paceline.cli.job.job import job_file_of
from paceline.cli.job.options import parse_run
from paceline.errors import UsageError
from paceline.estimator import FileSystemInput, InstanceGroup, TrainingInput
from paceline.facts import Channel
from paceline.job_file import job_document

ON = {"enabled": True}
WIDE = {
    "role": "arn:aws:iam::1:role/x", "image_uri": "image:tag", "instance_type": "ml.p4d.24xlarge", "volume_size": 100,
    "keep_alive_period_in_seconds": 600, "subnets": ["s-1"], "security_group_ids": ["sg-1"], "tags": {"team": "vision"},
    "enable_network_isolation": True, "encrypt_inter_container_traffic": True, "output_kms_key": "key", "input_mode": "FastFile",
    "disable_output_compression": True, "enable_remote_debug": True, "code_location": "s3://code/prefix", "max_retry_attempts": 3,
    "output_path": "s3://out/x", "checkpoint_s3_uri": "s3://ckpt/y", "checkpoint_local_path": "/opt/ml/checkpoints",
}  # fmt: skip


def job_of(made, inputs=None, name="job-1"):
    return made.plan(inputs, job_name=name).job


def test_the_job_file_of_a_job_says_what_was_asked_for(make, project):
    made = make(
        instance_type="local",
        distribution={"torch_distributed": ON},
        hyperparameters={"lr": 0.1},
        environment={"A": "1"},
        output_path="out",
        max_run=3600,
    )
    (project / "data").mkdir()
    job = job_of(made, {"train": "data"})
    assert job_document(job.file) == {
        "schema": "paceline.job/1",
        "job": {
            "name": "job-1",
            "program": {"kind": "script", "target": "train.py"},
            "max_run_seconds": 3600.0,
            "output_url": f"{project}/out",
            "contract": {
                "hyperparameters": {
                    "lr": 0.1,
                    "sagemaker_torch_distributed_enabled": True,
                    "sagemaker_instance_type": "local",
                },
                "channels": [asdict(job.channels[0])],
                "code_dir": ".",
                "shown_at_opt_ml": True,
            },
        },
        "run_id": job.run_id,
    }
    assert (job.channels[0].name, job.channels[0].source) == ("train", f"{project}/data")
    assert job.environment == {"A": "1"}
    assert job.hosts == 2


def test_the_same_arguments_make_the_same_job(make):
    made = make(hyperparameters={"lr": 0.1})
    first, second = job_of(made), job_of(made)
    assert first.run_id != second.run_id
    assert replace(first.file, run_id="") == replace(second.file, run_id="")


def test_a_job_without_a_name_is_called_after_its_class_and_the_time(make):
    name = make("TensorFlow").plan().job.name
    assert name.startswith("tensorflow-training-20") and len(name) <= 63
    assert make(base_job_name="b" * 63).plan().job.name.startswith("b" * 39 + "-20")


@pytest.mark.parametrize(
    ("inputs", "channels"),
    [
        (None, ()),
        ("s3://b/p", (Channel(name="training", source="s3://b/p"),)),
        (
            TrainingInput("s3://b/p", distribution="ShardedByS3Key"),
            (Channel(name="training", source="s3://b/p", distribution="ShardedByS3Key"),),
        ),
        (
            {"a": "s3://b/1", "b-c": "gs://b/2"},
            (Channel(name="a", source="s3://b/1"), Channel(name="b-c", source="gs://b/2")),
        ),
        ("file:///data", (Channel(name="training", source="/data"),)),
        (
            TrainingInput("s3://b/m", s3_data_type="ManifestFile", input_mode="Pipe"),
            (Channel(name="training", source="s3://b/m", data_type="ManifestFile", input_mode="Pipe"),),
        ),
    ],
)
def test_inputs_become_channels(make, inputs, channels):
    assert job_of(make(), inputs).channels == channels


def test_a_relative_directory_is_seen_from_where_python_was_started(make, project):
    assert job_of(make(), "src").channels[0].source == str(project / "src")


def test_the_model_is_a_channel_of_its_own(make):
    job = job_of(make(model_uri="s3://b/model.tar.gz"), "s3://b/data")
    assert [(channel.name, channel.source) for channel in job.channels] == [
        ("training", "s3://b/data"),
        ("model", "s3://b/model.tar.gz"),
    ]


def test_other_modes_than_file_are_announced_off_sagemaker(make, capsys):
    make(input_mode="FastFile").plan({"train": "s3://b/p"})
    assert "FastFile becomes File" in capsys.readouterr().err


def test_what_sagemaker_alone_mounts_is_refused_elsewhere(make):
    mount = FileSystemInput("fs-1", "EFS", "/data")
    with pytest.raises(UsageError) as refused:
        make().plan({"train": mount})
    assert "mount it" in refused.value.next
    with pytest.raises(UsageError):
        FileSystemInput("fs-1", "NFS", "/data")


def test_every_field_of_sagemaker_is_carried_to_it(make):
    job = job_of(
        make(**WIDE),
        {"train": TrainingInput("s3://b/p", content_type="text/csv", compression="Gzip", attribute_names=["a"])},
    )
    assert job.platform == {
        "TrainingJobName": "job-1",
        "AlgorithmSpecification": {"TrainingInputMode": "FastFile"},
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "VolumeSizeInGB": 100, "KeepAlivePeriodInSeconds": 600},
        "OutputDataConfig": {"KmsKeyId": "key", "CompressionType": "NONE"},
        "VpcConfig": {"Subnets": ["s-1"], "SecurityGroupIds": ["sg-1"]},
        "EnableNetworkIsolation": True,
        "EnableInterContainerTrafficEncryption": True,
        "CheckpointConfig": {"LocalPath": "/opt/ml/checkpoints"},
        "Tags": [{"Key": "team", "Value": "vision"}],
        "RemoteDebugConfig": {"EnableRemoteDebug": True},
    }
    assert job.engine_options == {
        "role": "arn:aws:iam::1:role/x",
        "bucket": "code",
        "prefix": "prefix",
        "image": "image:tag",
    }
    assert (job.output_url, job.checkpoint_url, job.retries) == ("s3://out/x", "s3://ckpt/y", 3)
    (channel,) = job.channels
    assert channel.input_mode == "FastFile"
    assert channel.extra == {
        "CompressionType": "Gzip", "ContentType": "text/csv", "DataSource": {"S3DataSource": {"AttributeNames": ["a"]}},
    }  # fmt: skip


def test_the_request_for_sagemaker_is_one_that_it_takes(make):
    made = make(**{**WIDE, "keep_alive_period_in_seconds": None, "use_spot_instances": True, "max_wait": 90000})
    document = made.plan("s3://b/p", job_name="job-1").document
    text = str(document)
    for word in (
        "ml.p4d.24xlarge",
        "job-1",
        "MaxWaitTimeInSeconds",
        "s3://out/x",
        "arn:aws:iam::1:role/x",
        "image:tag",
        "FastFile",
    ):
        assert word in text


def test_versions_and_region_choose_the_image(make, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    made = make(
        instance_type="ml.g5.12xlarge", role="arn:aws:iam::1:role/x", framework_version="2.6.0", py_version="py312"
    )
    image = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312"
    assert job_of(made).engine_options["image"] == image


def test_groups_of_instances_go_to_sagemaker_as_they_are(make):
    groups = [InstanceGroup("a", "ml.p4d.24xlarge", 2), InstanceGroup("b", "ml.c5.xlarge", 1)]
    job = job_of(make(instance_groups=groups, role="arn:aws:iam::1:role/x", image_uri="image"))
    assert job.hosts == 3
    assert job.platform["ResourceConfig"]["InstanceGroups"] == [
        {"InstanceGroupName": "a", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "b", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
    ]


def test_tensorflow_is_one_process_per_host_with_tf_config(make, project):
    job = job_of(make("TensorFlow", instance_type="local", distribution={"parameter_server": ON}))
    assert job.ranks_per_host == "1"
    assert (job.file.job.tf_config, job.file.job.contract.code_dir) == ("parameter_server", ".")
    assert job.hyperparameters["model_dir"].startswith(str(project / ".paceline" / "runs"))
    assert job_of(make("TensorFlow")).file.job.tf_config == "multi_worker_mirrored"


def test_smdistributed_of_tensorflow_has_no_tf_config(make, project):
    job = job_of(make("TensorFlow", instance_type="local", distribution={"smdistributed": {"dataparallel": ON}}))
    assert job.file.job.tf_config is None
    assert job.hyperparameters["sagemaker_distributed_dataparallel_enabled"] is True


def test_tf_config_speaks_of_one_process_per_host(project):
    args = parse_run(["--tf-config", "parameter_server", "--nproc-per-node", "2", "alone.py"], {})
    with pytest.raises(UsageError, match="--nproc-per-node 2"):
        job_file_of(args)


def test_the_hosts_of_ssh_say_how_many_there_are(make):
    made = make(instance_count=None, engine="ssh", engine_options={"hosts": "a,b,c"}, processes_per_instance=1)
    assert made.plan().job.hosts == 3


@pytest.mark.parametrize(
    ("arguments", "model_dir"),
    [
        ({"model_dir": False}, None),
        ({"model_dir": "s3://b/m"}, "s3://b/m"),
        ({"output_path": "s3://b/o/"}, "s3://b/o/job-1/model"),
        ({}, None),
    ],
)
def test_the_model_dir_of_tensorflow(make, arguments, model_dir):
    assert job_of(make("TensorFlow", **arguments)).hyperparameters.get("model_dir") == model_dir


def test_the_environment_of_a_job_is_not_kept_with_its_values(make, project):
    made = make(environment={"WANDB_API_KEY": "hush"})
    made.fit(wait=False)
    kept = b"".join(path.read_bytes() for path in (project / ".paceline").rglob("*.json"))
    assert b"WANDB_API_KEY" in kept and b"hush" not in kept
