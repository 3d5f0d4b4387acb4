"""A boto3 client, and the SageMaker SDK's own, against `paceline sagemaker-local`, whose jobs really run."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from s3_store import CREDENTIALS, S3Server, s3_is_here
from sagemaker_server import GROUP, archive, hyperparameters, key_in, names_in, processes, serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SDK = "PACELINE_SDK_V3_PYTHON"

FAILS = """
import os, sys
print("about to fail", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("the second rank's own reason")
import time
time.sleep(600)
"""
STAYS = """
import os, signal, sys, time
def leave(number, frame):
    open(os.path.join(os.environ["SM_MODEL_DIR"], "told-" + os.environ["RANK"]), "w").write("SIGTERM")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("staying", flush=True)
time.sleep(600)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("staying", flush=True)
time.sleep(600)
"""
REDUCES = """
import argparse, os, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("sum", total.item(), "epochs", epochs, "on", os.environ["SM_CURRENT_HOST"], flush=True)
if dist.get_rank() == 0:
    open(os.path.join(os.environ["SM_MODEL_DIR"], "sum"), "w").write(str(total.item()))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    if missing := s3_is_here():
        pytest.skip(missing)
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.client.create_bucket(Bucket="jobs")
        yield server


@pytest.fixture(scope="module")
def environment(tmp_path_factory, make_user_environment):
    return {**make_user_environment(tmp_path_factory.mktemp("state")), **CREDENTIALS}


@pytest.fixture(scope="module")
def server(tmp_path_factory, store, environment):
    directory = tmp_path_factory.mktemp("sagemaker-local")
    endpoint = f"http://127.0.0.1:{store.port}"
    with serving(directory, environment, "--s3-endpoint", endpoint, "--stop-grace", "3", "--max-jobs", "2") as server:
        yield server


def test_digits_train_on_two_hosts_from_files(server, tmp_path, examples):
    (tmp_path / "data").mkdir()
    for number in range(4):
        (tmp_path / "data" / f"part-{number}").write_text(str(number))
    script = (examples / "digits_ddp.py").read_text()
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": (tmp_path / "data").as_uri(), "S3DataDistributionType": "ShardedByS3Key"}}}  # fmt: skip
    metrics = [{"Name": "accuracy", "Regex": "accuracy ([0-9.]+)%"}]
    server.create(
        "digits-files", tmp_path, script, hosts=2, InputDataConfig=[channel],
        AlgorithmSpecification={"TrainingImage": "an-image", "TrainingInputMode": "FastFile", "MetricDefinitions": metrics},
    )  # fmt: skip
    shown = server.ended("digits-files")
    assert shown["TrainingJobStatus"] == "Completed", (shown, server.lines("digits-files"))
    statuses = [one["Status"] for one in shown["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Pending", "Downloading", "Training", "Uploading", "Completed"]
    assert shown["FinalMetricDataList"][0]["Value"] >= 95
    assert shown["TrainingTimeInSeconds"] == shown["BillableTimeInSeconds"] >= 1
    assert (tmp_path / "out/digits-files/output/model.tar.gz").exists()
    lines = server.lines("digits-files")
    assert any("an-image is not pulled" in line for line in lines)
    assert any("channel train: FastFile is served as File" in line for line in lines)
    trees = sorted((server.directory / "jobs/digits-files/hosts").glob("*/ml/input/data/train"))
    assert [sorted(path.name for path in tree.iterdir()) for tree in trees] == [
        ["part-0", "part-2"],
        ["part-1", "part-3"],
    ]


def test_a_job_of_two_hosts_from_s3_leaves_its_artefacts_there(server, store, tmp_path):
    store.client.upload_file(str(archive(tmp_path, REDUCES)), "jobs", "code/sourcedir.tar.gz")
    store.put("jobs", data__a=b"1", data__b__c=b"2")
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://jobs/data/"}
    server.create(
        "reduce-s3", tmp_path, hosts=2,
        HyperParameters={**hyperparameters("s3://jobs/code/sourcedir.tar.gz"), "epochs": "2"},
        InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
        OutputDataConfig={"S3OutputPath": "s3://jobs/out/"},
    )  # fmt: skip
    shown = server.ended("reduce-s3")
    assert shown["TrainingJobStatus"] == "Completed", (shown, server.lines("reduce-s3"))
    assert shown["ModelArtifacts"]["S3ModelArtifacts"] == "s3://jobs/out/reduce-s3/output/model.tar.gz"
    assert names_in(store.get("jobs", "out/reduce-s3/output/model.tar.gz")) == ["sum"]
    said = [line for line in server.lines("reduce-s3") if "sum 3.0 epochs 2 on" in line]
    assert len(said) == 2
    tree = server.directory / "jobs/reduce-s3/hosts/algo-2/ml"
    assert (tree / "input/data/train/b/c").read_text() == "2"
    resources = json.loads((tree / "input/config/resourceconfig.json").read_text())
    assert (resources["current_host"], resources["hosts"]) == ("algo-2", ["algo-1", "algo-2"])


def test_a_stopped_job_tells_every_rank_and_keeps_its_model(server, tmp_path):
    server.create("stopped", tmp_path, STAYS, hosts=2)
    server.until_said("stopped", "staying")
    server.until("stopped", lambda shown: sum("staying" in line for line in server.lines("stopped")) == 2)
    server.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert server.describe("stopped")["TrainingJobStatus"] in ("Stopping", "Stopped")
    shown = server.ended("stopped")
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert "FailureReason" not in shown
    assert names_in(tmp_path / "out/stopped/output/model.tar.gz") == ["told-0", "told-1"]


def test_a_job_that_does_not_listen_is_killed_after_its_grace(server, tmp_path):
    server.create("deaf", tmp_path, DEAF)
    server.until_said("deaf", "staying")
    server.sagemaker.stop_training_job(TrainingJobName="deaf")
    assert server.ended("deaf")["SecondaryStatus"] == "Stopped"


def test_a_job_that_is_out_of_time_is_stopped_by_a_name_of_its_own(server, tmp_path):
    server.create("too-long", tmp_path, STAYS, StoppingCondition={"MaxRuntimeInSeconds": 4})
    shown = server.ended("too-long")
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert shown["TrainingTimeInSeconds"] >= 4


def test_a_failing_rank_is_the_failure_reason(server, tmp_path):
    server.create("fails", tmp_path, FAILS, hosts=2)
    shown = server.ended("fails")
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Failed", "Failed")
    assert shown["FailureReason"].startswith("AlgorithmError: ")
    assert "the second rank's own reason" in shown["FailureReason"]
    assert shown["FailureReason"].endswith("exit code: 1")
    assert "ModelArtifacts" not in shown or not shown["ModelArtifacts"].get("S3ModelArtifacts")


def test_an_entry_point_of_the_request_runs_with_the_variables_of_a_container(server, tmp_path):
    program = 'echo "$TRAINING_JOB_NAME $AWS_REGION $COLOUR"; cat "$1/input/config/hyperparameters.json"; exit 7'
    base = "/opt/ml" if server.opt_ml else '"$SAGEMAKER_BASE_DIR"'
    algorithm = {"TrainingImage": "i", "TrainingInputMode": "File", "ContainerEntrypoint": ["/bin/bash", "-c"]}
    server.create(
        "plain", tmp_path, HyperParameters={"lr": "0.1"}, Environment={"COLOUR": "blue"},
        AlgorithmSpecification={**algorithm, "ContainerArguments": [program.replace('"$1/', f"{base}\"/"), "x"]},
    )  # fmt: skip
    shown = server.ended("plain")
    assert shown["FailureReason"].endswith("exit code: 7")
    assert {"plain us-east-1 blue", '{"lr": "0.1"}'} <= set(server.lines("plain"))


def test_missing_data_and_a_missing_bucket_are_reasons(server, tmp_path):
    source = {"S3DataType": "S3Prefix", "S3Uri": (tmp_path / "nothing").as_uri()}
    server.create(
        "no-data", tmp_path, STAYS, InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]
    )
    server.create("no-bucket", tmp_path, HyperParameters=hyperparameters("s3://nobody-has-this/code.tar.gz"))
    assert "No S3 objects found under S3 URL" in server.ended("no-data")["FailureReason"]
    reason = server.ended("no-bucket")["FailureReason"]
    assert reason.startswith("ClientError: ") and "nobody-has-this" in reason
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in reason


def test_checkpoints_of_one_job_are_there_in_the_next(server, store, tmp_path):
    script = """
import os, pathlib
base = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"]) / "checkpoints"
print("found", sorted(path.name for path in base.iterdir()), flush=True)
(base / f"step-{len(list(base.iterdir()))}").write_text("x")
"""
    for number in (1, 2):
        server.create(f"kept-{number}", tmp_path, script, CheckpointConfig={"S3Uri": "s3://jobs/kept"})
        assert server.ended(f"kept-{number}")["TrainingJobStatus"] == "Completed"
    assert any("found ['step-0']" in line for line in server.lines("kept-2"))
    assert store.keys("jobs", "kept/") == ["kept/step-0", "kept/step-1"]


def test_errors_have_the_codes_that_clients_look_for(server, tmp_path):
    from botocore.exceptions import ClientError

    exceptions = server.sagemaker.exceptions
    server.create("twice", tmp_path, "print('done')")
    with pytest.raises(exceptions.ResourceInUse, match="must be unique within an AWS account"):
        server.create("twice", tmp_path, "print('done')")
    with pytest.raises(exceptions.ResourceLimitExceeded, match="request delta of 99 Instances"):
        server.create("many", tmp_path, hosts=99)
    for ask, code in (
        (lambda: server.describe("nobody"), "ValidationException"),
        (lambda: server.create("n" * 64, tmp_path), "ValidationException"),
        (lambda: server.create("odd", tmp_path, Environment={"1": "x"}), "ValidationException"),
        (lambda: server.sagemaker.list_endpoints(), "UnknownOperationException"),
        (lambda: server.logs.describe_log_streams(logGroupName="/other"), "ResourceNotFoundException"),
    ):
        with pytest.raises(ClientError) as refused:
            ask()
        assert refused.value.response["Error"]["Code"] == code
    assert server.ended("twice")["TrainingJobStatus"] == "Completed"


def test_lists_tags_and_lines_come_in_pages(server, tmp_path):
    arn = server.create(
        "talks", tmp_path, "for n in range(50): print('line', n)", Tags=[{"Key": "team", "Value": "x"}]
    )["TrainingJobArn"]
    server.ended("talks")
    pages = server.sagemaker.get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 2})
    jobs = [one["TrainingJobName"] for page in pages for one in page["TrainingJobSummaries"]]
    assert jobs.count("talks") == 1 and len(jobs) == len(set(jobs))
    server.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "cost", "Value": "1"}])
    server.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert server.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "1"}]
    ask = {"logGroupName": GROUP, "logStreamNamePrefix": "talks/", "filterPattern": "line"}
    pages = server.logs.get_paginator("filter_log_events").paginate(**ask, PaginationConfig={"PageSize": 7})
    said = [event["message"] for page in pages for event in page["events"]]
    assert sum("line" in line for line in said) >= 50
    assert [group["logGroupName"] for group in server.logs.describe_log_groups()["logGroups"]] == [GROUP]


def test_jobs_wait_for_their_turn_and_a_restarted_server_knows_what_became_of_them(tmp_path, environment):
    with serving(tmp_path, environment, "--stop-grace", "2") as first:
        first.create("runs", tmp_path, STAYS)
        first.until_said("runs", "staying")
        first.create("waits", tmp_path, STAYS)
        first.create("never", tmp_path, STAYS)
        assert first.describe("waits")["SecondaryStatus"] == "Pending"
        first.sagemaker.stop_training_job(TrainingJobName="waits")
        assert first.describe("waits")["SecondaryStatus"] == "Stopped"
        mark = str(first.directory / "jobs")
    assert not [line for line in processes() if mark in line]
    with serving(tmp_path, environment) as second:
        assert second.describe("waits")["TrainingJobStatus"] == "Stopped"
        for name in ("runs", "never"):
            assert "was ended while this job had not ended" in second.describe(name)["FailureReason"]
        assert any("staying" in line for line in second.lines("runs"))


def test_a_server_that_is_killed_leaves_no_host_behind(tmp_path, environment):
    with serving(tmp_path, environment) as server:
        server.create("runs", tmp_path, DEAF, hosts=2)
        server.until_said("runs", "staying")
        mark = str(server.directory / "jobs")
        server.process.kill()
        deadline = time.monotonic() + 30
        while left := [line for line in processes() if mark in line]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


def test_the_real_sdk_v3_model_trainer_trains_on_two_hosts(server, store, tmp_path):
    python = os.environ.get(SDK)
    if not python:
        pytest.skip(f"{SDK} names no Python with `pip install 'sagemaker>=3'`")
    if not server.opt_ml:
        pytest.skip("the SDK's scripts name /opt/ml, which cannot be had here")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.py").write_text(REDUCES)
    endpoints = {f"AWS_ENDPOINT_URL_{name}": server.url for name in ("SAGEMAKER", "STS", "IAM")}
    sent = subprocess.run(
        [python, str(Path(__file__).with_name("sdk_v3_request.py")), str(tmp_path / "source"), "v3", "2"],
        env={
            **{name: value for name, value in server.environment.items() if name != "PYTHONPATH"},
            **{name.upper(): value for name, value in key_in(server.directory / "jobs/credentials").items()},
            **endpoints,
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{store.port}",
            "AWS_REGION": "us-east-1",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert sent.returncode == 0, sent.stderr
    name = sent.stdout.split()[-1]
    shown = server.ended(name)
    assert shown["TrainingJobStatus"] == "Completed", (shown, server.lines(name))
    assert shown["AlgorithmSpecification"]["ContainerEntrypoint"] == ["/bin/bash"]
    assert {"sum 3.0 epochs 2 on algo-1", "sum 3.0 epochs 2 on algo-2"} <= set(server.lines(name))
    assert names_in(store.get("jobs", f"out/{name}/output/model.tar.gz")) == ["sum"]
