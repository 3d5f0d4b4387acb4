"""AWS's JSON protocol around the operations, and what keeps the server from starting."""

import json
import socket

import pytest

from paceline.errors import UsageError
from paceline.parts.sagemaker.local.app import Api, listening, region_of
from paceline.parts.sagemaker.local.job_store import JobStore
from paceline.parts.sagemaker.local.logs_api import LogsApi
from paceline.parts.sagemaker.local.training_api import TrainingApi

pytest.importorskip("botocore", reason="pip install 'paceline[sagemaker]'")


class Waiting:
    def enter(self, name):
        pass

    def leave(self, name):
        pass


@pytest.fixture
def api(tmp_path):
    shelf = JobStore(tmp_path / "jobs", region="us-east-1", clock=lambda: 1000.5)
    shelf.open()
    yield Api(TrainingApi(shelf, Waiting(), most_hosts=2), LogsApi(shelf, region="us-east-1"))
    shelf.close()


def ask(api, operation, service="SageMaker", **request):
    return api.answer(f"{service}.{operation}", json.dumps(request).encode())


def create(api, name="a"):
    return ask(
        api, "CreateTrainingJob", TrainingJobName=name, RoleArn="arn:aws:iam::123456789012:role/training",
        AlgorithmSpecification={"TrainingImage": "i", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
        OutputDataConfig={"S3OutputPath": "file:///out"},
        ResourceConfig={"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
    )  # fmt: skip


def test_an_answer_has_a_request_id_and_times_in_epoch_seconds(api):
    assert create(api)[0] == 200
    status, headers, answer = ask(api, "DescribeTrainingJob", TrainingJobName="a")
    assert status == 200 and headers["x-amzn-RequestId"]
    assert (answer["CreationTime"], answer["TrainingJobStatus"]) == (1000.5, "InProgress")
    assert "TrainingEndTime" not in answer and "FailureReason" not in answer


def test_an_error_names_its_code_in_the_body_and_in_a_header(api):
    create(api)
    status, headers, answer = create(api)
    assert (status, answer["__type"], headers["x-amzn-ErrorType"]) == (400, "ResourceInUse", "ResourceInUse")
    assert "must be unique" in answer["message"]


def test_cloudwatch_has_a_code_of_its_own_for_what_it_cannot_take(api):
    answer = ask(api, "GetLogEvents", "Logs_20140328", logGroupName="g", logStreamName="s", limit=0)[2]
    assert answer["__type"] == "InvalidParameterException"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"NameContains":"\\ud800"}', b'{"CreationTimeAfter":1e300}']
)
def test_what_is_no_request_at_all_is_a_serialization_error(api, body):
    assert api.answer("SageMaker.ListTrainingJobs", body)[2]["__type"] == "SerializationException"


@pytest.mark.parametrize("token", ["-1", "x", "9" * 5000])
def test_a_page_that_cannot_be_is_refused(api, token):
    create(api)
    answer = ask(api, "ListTrainingJobs", NextToken=token)[2]
    assert answer["__type"] == "ValidationException" and "pagination token" in answer["message"]


def test_every_operation_that_is_served_is_one_of_the_model(api):
    from paceline.parts.sagemaker.local.service_model import service

    for name, operations in api._operations.items():
        assert set(operations) <= set(service(name).operation_names)


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError) as refused:
        listening("127.0.0.1", taken.getsockname()[1])
    assert refused.value.code == "U04"


def test_the_region_is_aws_own_variable_or_the_usual_one():
    assert region_of({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "x"}) == "eu-west-1"
    assert region_of({}) == "us-east-1"
