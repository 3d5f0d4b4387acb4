"""What reaches the port of `paceline sagemaker-local`: as a stranger's, who must get nothing done, and as if it had been signed."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JOB: dict[str, Any] = {
    "TrainingJobName": "j", "RoleArn": "arn:aws:iam::123456789012:role/r",
    "AlgorithmSpecification": {"TrainingImage": "i", "ContainerEntrypoint": ["true"], "TrainingInputMode": "File",
                               "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]},
    "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "OutputDataConfig": {"S3OutputPath": "file:///tmp/x"}, "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "InputDataConfig": [{"ChannelName": "c", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": "file:///tmp/c", "S3DataDistributionType": "FullyReplicated"}}}],
    "HyperParameters": {"lr": "0.1"}, "Environment": {"A": "1"}, "Tags": [{"Key": "k", "Value": "v"}],
}  # fmt: skip
ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/first"
GROUP = "/aws/sagemaker/TrainingJobs"
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=PACELINE0/20260101/us-east-1/sagemaker/aws4_request, "
    "SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=" + "0" * 64
)
HEADERS = {
    "host": "127.0.0.1:8090", "content-type": "application/x-amz-json-1.1", "x-amz-date": "20260101T000000Z",
    "authorization": AUTHORIZATION, "content-length": "9",
}  # fmt: skip
ASKED = {
    "SageMaker.CreateTrainingJob": JOB,
    "SageMaker.DescribeTrainingJob": {"TrainingJobName": "first"},
    "SageMaker.ListTrainingJobs": {"MaxResults": 1, "NextToken": "1", "SortBy": "Status", "NameContains": "f"},
    "SageMaker.StopTrainingJob": {"TrainingJobName": "first"},
    "SageMaker.AddTags": {"ResourceArn": ARN, "Tags": [{"Key": "k", "Value": "v"}]},
    "SageMaker.ListTags": {"ResourceArn": ARN, "NextToken": "1"},
    "SageMaker.DeleteTags": {"ResourceArn": ARN, "TagKeys": ["k"]},
    "Logs_20140328.DescribeLogGroups": {"logGroupNamePrefix": GROUP},
    "Logs_20140328.DescribeLogStreams": {"logGroupName": GROUP, "nextToken": "1", "orderBy": "LogStreamName"},
    "Logs_20140328.GetLogEvents": {"logGroupName": GROUP, "logStreamName": "first/algo-1-1000", "nextToken": "f/1"},
    "Logs_20140328.FilterLogEvents": {"logGroupName": GROUP, "filterPattern": "a -b", "nextToken": "e30="},
}
REQUESTS: list[Any] = [
    {"headers": {**HEADERS, "x-amz-target": target}, "query": "", "body": body} for target, body in ASKED.items()
] + [
    {"headers": {**HEADERS, "content-type": "application/x-www-form-urlencoded"}, "query": "a=b", "form": "Action=GetCallerIdentity"}
]  # fmt: skip


class _NoQueue:
    """Takes jobs and starts none."""

    def enter(self, name: str) -> None: ...

    def leave(self, name: str) -> None: ...


class _Asked:
    """Stands for what does a request."""

    def answer(self, target: str, body: bytes) -> Any:
        raise AssertionError("something was done for a stranger")


def check_request(data: bytes) -> None:
    """A stranger's is refused; one that was let in is answered or refused, and no traceback is anybody's answer."""
    from paceline.contract.local_key import AccessKey
    from paceline.parts.sagemaker.local.signatures import Signatures

    try:
        request = json.loads(data)
        headers = [(str(name).lower().encode(), str(value).encode()) for name, value in request["headers"].items()]
        body = json.dumps(request["body"]).encode() if "body" in request else str(request["form"]).encode()
        query = str(request["query"]).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    key = AccessKey("PACELINE0", "a secret that nobody has")
    # At the time that the request states: what is wrong with it is the signature alone.
    signatures = Signatures(key, clock=lambda: 1767225600.0)
    assert 400 <= _status(_Asked(), signatures, headers, query, body) < 500
    with _service() as api:
        assert _status(api, None, headers, query, body) < 500


@contextmanager
def _service() -> Iterator[Any]:
    from paceline.parts.sagemaker.local.app import Api
    from paceline.parts.sagemaker.local.job_store import JobStore
    from paceline.parts.sagemaker.local.logs_api import LogsApi
    from paceline.parts.sagemaker.local.training_api import TrainingApi

    with tempfile.TemporaryDirectory() as folder:
        shelf = JobStore(Path(folder) / "jobs", region="us-east-1", clock=lambda: 1000.0)
        shelf.open()
        try:
            shelf.add({**JOB, "TrainingJobName": "first"})
            for number in range(4):
                shelf.stream("first", "algo-1").append(number, "a b")
            yield Api(TrainingApi(shelf, _NoQueue(), most_hosts=2), LogsApi(shelf, region="us-east-1"))  # type: ignore[arg-type]
        finally:
            shelf.close()


def _status(api: Any, signatures: Any, headers: list[tuple[bytes, bytes]], query: bytes, body: bytes) -> int:
    from paceline.parts.sagemaker.local.app import application

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/", "raw_path": b"/", "query_string": query,
        "scheme": "http", "server": ("127.0.0.1", 8090), "client": ("127.0.0.1", 5), "root_path": "", "headers": headers,
    }  # fmt: skip
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(application(api, signatures)(scope, receive, send))
    return int(said[0]["status"])
