"""What SageMaker would be asked, what its answers mean, what is shipped: no network, no AWS."""

import json
import math
import tarfile

import pytest
from submissions import a_submission

from paceline.errors import UsageError
from paceline.facts import Channel, Contract, Program, ProgramKind, SecondaryStatus, Status
from paceline.job_file import job_document
from paceline.parts.engines.package import package
from paceline.parts.sagemaker.engine.engine import engine
from paceline.parts.sagemaker.engine.package import pack
from paceline.parts.sagemaker.engine.request import JOB_FILE, container_file, job_name, located, merged
from paceline.parts.sagemaker.engine.status import host_of, in_order, in_the_recording, lacks_capacity, observation

ROLE = "arn:aws:iam::123456789012:role/train"
OPTIONS = {
    "image": "repository/train:1",
    "role": ROLE,
    "instance_type": "ml.g5.12xlarge",
    "bucket": "jobs",
    "region": "eu-central-1",
}
SCRIPT = Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--mine", "a b"))


def a_job(**fields):
    return a_submission(**{"run_id": "r-7f3a91", "name": "digits", "program": SCRIPT, **fields})


def planned(job=None, **options):
    return engine({}, {**OPTIONS, **options}).plan(job or a_job()).document


FULL = a_job(
    hosts=4,
    ranks_per_host="gpu",
    environment={"NCCL_DEBUG": "INFO"},
    hyperparameters={"lr": 0.1, "name": "it's", "flag": True, "sizes": [1, "a"]},
    channels=(
        Channel(name="train-data", source="s3://data/train", distribution="ShardedByS3Key", input_mode="FastFile"),
        Channel(name="lustre", source="", extra={"DataSource": {"FileSystemDataSource": {
            "FileSystemId": "fs-012345678901", "FileSystemAccessMode": "ro", "FileSystemType": "FSxLustre", "DirectoryPath": "/a"}}}),
    ),
    output_url="s3://results/here",
    checkpoint_url="s3://results/checkpoints",
    max_run_seconds=3600.5,
    retries=3,
    platform={
        "AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}], "EnableSageMakerMetricsTimeSeries": True},
        "ResourceConfig": {"VolumeSizeInGB": 100, "KeepAlivePeriodInSeconds": 600},
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "EnableInterContainerTrafficEncryption": True,
        "Tags": [{"Key": "team", "Value": "vision"}],
    },
)  # fmt: skip
GOLDEN = {
    "TrainingJobName": "digits-r-7f3a91",
    "AlgorithmSpecification": {
        "TrainingImage": "repository/train:1",
        "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
        "EnableSageMakerMetricsTimeSeries": True,
    },
    "RoleArn": ROLE,
    "HyperParameters": {
        "lr": "0.1",
        "name": '"it\'s"',
        "flag": "true",
        "sizes": '[1, "a"]',
        "sagemaker_program": '"paceline_entry.py"',
        "sagemaker_submit_directory": '"s3://jobs/paceline/digits-r-7f3a91/source/sourcedir.tar.gz"',
        "sagemaker_job_name": '"digits-r-7f3a91"',
        "sagemaker_region": '"eu-central-1"',
        "sagemaker_container_log_level": "20",
    },
    "InputDataConfig": [
        {
            "ChannelName": "train-data",
            "CompressionType": "None",
            "RecordWrapperType": "None",
            "InputMode": "FastFile",
            "DataSource": {
                "S3DataSource": {
                    "S3DataType": "S3Prefix",
                    "S3Uri": "s3://data/train",
                    "S3DataDistributionType": "ShardedByS3Key",
                }
            },
        },
        {
            "ChannelName": "lustre",
            "CompressionType": "None",
            "RecordWrapperType": "None",
            "DataSource": FULL.channels[1].extra["DataSource"],
        },
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://results/here"},
    "ResourceConfig": {
        "InstanceType": "ml.g5.12xlarge",
        "InstanceCount": 4,
        "VolumeSizeInGB": 100,
        "KeepAlivePeriodInSeconds": 600,
    },
    "StoppingCondition": {"MaxRuntimeInSeconds": 3601},
    "CheckpointConfig": {"S3Uri": "s3://results/checkpoints", "LocalPath": "/opt/ml/checkpoints"},
    "RetryStrategy": {"MaximumRetryAttempts": 3},
    "Environment": {"NCCL_DEBUG": "***"},
    **{key: value for key, value in FULL.platform.items() if key not in ("AlgorithmSpecification", "ResourceConfig")},
}
GROUPS = {
    "ResourceConfig": {
        "InstanceGroups": [
            {"InstanceGroupName": "a", "InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "b", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
        ]
    }
}


def test_the_request_of_a_full_job():
    assert planned(FULL, start="toolkit") == GOLDEN


@pytest.mark.parametrize(
    "made",
    [
        planned(FULL),
        planned(),
        planned(start="toolkit"),
        planned(spot="true", max_wait="90000", keep_alive="60"),
        planned(a_job(platform=GROUPS)),
    ],
)
def test_botocore_finds_nothing_wrong_with_a_request(made):
    session = pytest.importorskip("botocore.session")
    from botocore.validate import ParamValidator

    shape = session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    assert ParamValidator().validate(made, shape).generate_report() == ""


def test_a_job_without_any_limit_has_the_one_that_the_sdk_v2_gave():
    assert planned()["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}


def test_instance_groups_stand_alone():
    resources = planned(a_job(platform=GROUPS, hosts=3))["ResourceConfig"]
    assert resources == {**GROUPS["ResourceConfig"], "VolumeSizeInGB": 30}


def test_a_spot_job_waits_as_long_as_it_may_run_unless_told_otherwise():
    limits = planned(a_job(platform={"EnableManagedSpotTraining": True}))["StoppingCondition"]
    assert limits == {"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 86400}


def test_what_only_aws_knows_stands_open_until_the_job_is_sent():
    unplaced = engine({}, {"image": "i", "role": "train", "instance_type": "ml.m5.large"})
    made = unplaced.plan(a_job(hyperparameters={"a": "<region>"})).document
    assert made["OutputDataConfig"] == {"S3OutputPath": "s3://sagemaker-<region>-<account>/paceline"}
    sent = located(made, region="us-west-2", account="123456789012")
    assert sent["RoleArn"] == ROLE
    assert sent["OutputDataConfig"] == {"S3OutputPath": "s3://sagemaker-us-west-2-123456789012/paceline"}
    assert json.loads(sent["HyperParameters"]["sagemaker_region"]) == "us-west-2"
    assert sent["HyperParameters"]["a"] == '"<region>"', "what the user wrote stays as it is"


def test_the_launchers_of_the_toolkit_stay_off_and_the_script_still_sees_what_was_asked():
    wire = {"sagemaker_distributed_dataparallel_enabled": "true", "sagemaker_instance_type": '"ml.p4d.24xlarge"'}
    job = a_job(platform={"HyperParameters": wire})
    assert "sagemaker_distributed_dataparallel_enabled" not in planned(job)["HyperParameters"]
    assert planned(job)["HyperParameters"]["sagemaker_instance_type"] == '"ml.p4d.24xlarge"'
    assert container_file(job).job.contract.hyperparameters == {"sagemaker_distributed_dataparallel_enabled": True}


def test_the_job_of_a_container_names_no_data_and_no_hosts():
    file = container_file(FULL)
    assert (file.job.program, file.ranks_per_host, file.job.max_run_seconds) == (SCRIPT, "gpu", 3600.5)
    assert (file.job.contract, file.job.output_url, file.job.checkpoint_url) == (Contract(), None, None)
    assert (file.job.max_hosts, file.job.agents_port) == (1, None)


def test_started_directly_the_entry_point_comes_as_a_channel():
    made = planned()
    assert made["AlgorithmSpecification"]["ContainerEntrypoint"] == [
        "python3",
        "/opt/ml/input/data/paceline/paceline_entry.py",
    ]
    (channel,) = made["InputDataConfig"]
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == "s3://jobs/paceline/digits-r-7f3a91/source/"
    with pytest.raises(UsageError, match="cannot fetch the code"):
        planned(a_job(platform={"EnableNetworkIsolation": True}), start="toolkit")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits", "digits-r-7f3a91"),
        ("my job_v1.2", "my-job-v1-2-r-7f3a91"),
        ("--", "r-7f3a91"),
        ("ü" * 3 + "x", "x-r-7f3a91"),
        ("a" * 80, "a" * 54 + "-r-7f3a91"),
    ],
)
def test_a_name_is_one_that_sagemaker_takes(name, expected):
    assert job_name(a_job(name=name)) == expected
    assert len(expected) <= 63


@pytest.mark.parametrize(
    ("fields", "options", "says"),
    [
        ({}, {"image": ""}, "no image"),
        ({}, {"role": ""}, "no role"),
        ({}, {"instance_type": ""}, "no instance type"),
        ({}, {"start": "shell"}, "start=shell"),
        ({}, {"volume_size": "big"}, "volume_size=big"),
        ({"channels": (Channel(name="train", source="/data"),)}, {}, "not in S3"),
        (
            {"channels": (Channel(name="a", source="s3://b/1"), Channel(name="a", source="s3://b/2"))},
            {},
            "two channels",
        ),
        ({"retries": 31}, {}, "31 retries"),
        ({"max_run_seconds": 29 * 86400}, {}, "no time limit"),
        ({}, {"spot": "true", "max_wait": "60"}, "may wait 60 s"),
        ({"environment": {f"A{n}": "b" for n in range(101)}}, {}, "101 entries in Environment"),
        ({"hyperparameters": {f"a{n}": 1 for n in range(96)}}, {}, "101 entries in HyperParameters"),
        ({"platform": {"TrainingJobName": "-x"}}, {}, "none for SageMaker"),
    ],
)
def test_what_sagemaker_would_refuse_is_refused_before_anything_is_sent(fields, options, says):
    chosen = {key: value for key, value in {**OPTIONS, **options}.items() if value}
    with pytest.raises(UsageError) as refused:
        engine({}, chosen).plan(a_job(**fields))
    assert refused.value.code == "E34" and says in refused.value.what and refused.value.next


def test_a_value_that_is_too_long_is_measured_and_never_shown():
    with pytest.raises(UsageError) as refused:
        planned(a_job(environment={"TOKEN": "hush" * 200}))
    assert "TOKEN" in refused.value.what and "hush" not in refused.value.what + refused.value.saw


def test_an_unknown_option_gets_its_nearest_spelling():
    with pytest.raises(UsageError, match="instance_typ") as refused:
        engine({}, {"instance_typ": "ml.m5.large"})
    assert "instance_type" in refused.value.saw


def test_laying_over_keeps_what_is_not_named():
    assert merged({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": 3}) == {"a": {"b": 1, "c": [2]}, "d": 3}


def test_the_archive_holds_code_entry_point_words_agent_and_a_secret_that_others_may_not_read(tmp_path):
    job, wheel = code_of(tmp_path), tmp_path / "paceline-9-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    made = engine({}, {**OPTIONS, "wheel": str(wheel)}).plan(job)
    for archive in ("a.tar.gz", "b.tar.gz"):
        pack(job, tmp_path / archive, description=made.files[JOB_FILE], token="hush", wheel=str(wheel))
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o077 == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}
    assert set(files) == {"train.py", "paceline_entry.py", "paceline_job.json", "paceline_token", wheel.name}
    assert json.loads(files["paceline_job.json"]) == {
        "schema": "paceline.container/2",
        "run_id": "r-7f3a91",
        "job": job_document(container_file(job)),
        "wheel": wheel.name,
    }
    assert files["paceline_token"] == b"hush\n" and "hush" not in json.dumps(made.document) + str(made.files)


def test_a_file_of_the_job_with_a_name_of_ours_is_refused(tmp_path):
    job, wheel = code_of(tmp_path, "paceline_entry.py"), tmp_path / "w.whl"
    wheel.write_bytes(b"")
    with pytest.raises(UsageError, match=r"paceline_entry\.py"):
        pack(job, tmp_path / "a.tar.gz", description="", token="", wheel=str(wheel))


def code_of(tmp_path, *more):
    code = tmp_path / "code"
    code.mkdir()
    for name in ("train.py", *more):
        (code / name).write_text("print()\n")
    return a_job(package=package(code, tmp_path / "code.tar.gz"))


@pytest.mark.parametrize(
    ("status", "secondary", "reason", "recorded", "code"),
    [
        ("InProgress", "LaunchingMLInstances", "", None, None),
        ("InProgress", "DownloadingTrainingImage", "", None, None),
        ("InProgress", "SomethingNew", "", None, None),
        ("Completed", "Completed", "", 0, 0),
        ("Failed", "Failed", "AlgorithmError: rank 1 on algo-2 ended with code 3, exit code: 1", None, 1),
        ("Failed", "Failed", "AlgorithmError: rank 1 on algo-2 ended with code 3, exit code: 1", 3, 3),
        ("Failed", "Failed", "AlgorithmError: , exit code: 137", None, 137),
        ("Failed", "Failed", "ClientError: Data download failed: no such key", None, 2),
        ("Failed", "Failed", "CapacityError: Unable to provision requested ML compute capacity.", None, 201),
        ("Failed", "Failed", "InternalServerError: try again", None, 1),
        ("Stopped", "MaxRuntimeExceeded", "", None, 204),
        ("Stopped", "MaxWaitTimeExceeded", "", None, 204),
        ("Stopped", "Stopped", "", None, 143),
        ("Stopped", "Stopped", "", 130, 130),
        ("Deleting", "Stopped", "", None, None),
    ],
)
def test_every_end_has_a_code_and_no_job_that_lasts_has_one(status, secondary, reason, recorded, code):
    described = {
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "FailureReason": reason,
        "ResourceConfig": {"InstanceCount": 2},
    }
    seen = observation(described, recorded_code=recorded)
    assert seen.exit_code == code and seen.ended == (code is not None)
    assert seen.own_word == secondary and tuple(seen.nodes) == ("algo-1", "algo-2")


def test_sagemakers_words_are_taken_over():
    seen = observation({"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxWaitTimeExceeded"})
    assert (seen.status, seen.secondary_status) == (Status.STOPPED, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)
    again = {
        "SecondaryStatusTransitions": [
            {"Status": word} for word in ("Starting", "Training", "Interrupted", "Starting", "Training")
        ]
    }
    assert observation(again).tries == 2
    assert lacks_capacity("CapacityError: no") and not lacks_capacity("AlgorithmError: exit code: 1")


@pytest.mark.parametrize(
    ("name", "run_dir"),
    [
        ("paceline/r-1/run.json", "run.json"),
        ("./data/paceline/r-1/hosts/algo-1/host.json", "hosts/algo-1/host.json"),
        ("paceline/r-1/hosts/algo-1/ml/model/a.pt", None),
        ("paceline/r-2/run.json", None),
        ("paceline/r-1/../../etc/passwd", None),
        ("predictions.csv", None),
        ("paceline/r-1", None),
    ],
)
def test_only_this_runs_recording_is_taken_out_of_the_output(name, run_dir):
    assert in_the_recording(name, "r-1") == run_dir


def test_lines_of_several_hosts_come_in_the_order_of_their_stamps():
    assert in_order([(2, "algo-1", "b"), (1, "algo-2", "a"), (2, "algo-1", "c")]) == [
        "algo-2 | a",
        "algo-1 | b",
        "algo-1 | c",
    ]
    assert host_of("digits-r-7f3a91/algo-12-1719393939") == "algo-12"


def test_a_limit_of_part_of_a_second_is_never_cut():
    assert planned(a_job(max_run_seconds=0.2))["StoppingCondition"]["MaxRuntimeInSeconds"] == math.ceil(0.2)
