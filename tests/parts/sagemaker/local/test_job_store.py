"""Jobs that are kept: names, tags, lists, a server that was ended."""

import json

import msgspec
import pytest

from paceline.errors import UsageError
from paceline.facts import SecondaryStatus
from paceline.facts import SecondaryStatus as Secondary
from paceline.parts.sagemaker.local.errors import ApiError
from paceline.parts.sagemaker.local.job_store import JobStore
from paceline.parts.sagemaker.local.records import JobRecord, described
from paceline.parts.sagemaker.local.states import Finished, StageFailed, StageReached
from paceline.parts.sagemaker.local.training_api import TrainingApi, listed

ROLE = "arn:aws:iam::123456789012:role/training"


class Waiting:
    """A queue in which nothing gets its turn."""

    def enter(self, name):
        self.last = name

    def leave(self, name):
        self.last = None


def request(name):
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
        "OutputDataConfig": {"S3OutputPath": "file:///out"},
        "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
    }


@pytest.fixture
def shelf(tmp_path):
    ticks = iter(range(1000, 10_000))
    shelf = JobStore(tmp_path / "jobs", region="eu-west-1", clock=lambda: float(next(ticks)))
    shelf.open()
    yield shelf
    shelf.close()


@pytest.fixture
def training(shelf):
    return TrainingApi(shelf, Waiting(), most_hosts=2)


def test_the_arn_is_in_the_roles_account_and_the_servers_region(training):
    answer = training.create(request("a"))
    assert answer == {"TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/a"}


def test_several_hosts_without_names_are_refused_before_anything_is_kept(shelf):
    training = TrainingApi(shelf, Waiting(), most_hosts=2, unnamed="unshare: no")
    two = {"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1}
    with pytest.raises(ApiError, match=r"several hosts on this machine \(unshare: no\)"):
        training.create({**request("a"), "ResourceConfig": two})
    assert shelf.all() == []


def test_a_second_job_of_one_name_is_refused(training):
    training.create(request("a"))
    with pytest.raises(ApiError) as refused:
        training.create(request("a"))
    assert refused.value.code == "ResourceInUse"
    assert "training-job/a" in refused.value.message


@pytest.mark.parametrize("operation", ["stop", "DescribeTrainingJob"])
def test_a_name_that_no_job_has_is_a_validation_error(training, operation):
    ask = training.operations().get(operation) or training.stop
    with pytest.raises(ApiError) as refused:
        ask({"TrainingJobName": "nobody"})
    assert (refused.value.code, refused.value.message) == ("ValidationException", "Requested resource not found.")


def test_a_job_that_has_ended_cannot_be_stopped(training, shelf):
    training.create(request("a"))
    shelf.apply("a", Finished())
    with pytest.raises(ApiError, match="because the training job is in status Completed"):
        training.stop({"TrainingJobName": "a"})


def test_tags_are_set_listed_in_pages_and_taken_away(training):
    arn = training.create({**request("a"), "Tags": [{"Key": "team", "Value": "x"}]})["TrainingJobArn"]
    training.add_tags({"ResourceArn": arn, "Tags": [{"Key": "cost", "Value": "1"}, {"Key": "team", "Value": "y"}]})
    first = training.list_tags({"ResourceArn": arn, "MaxResults": 1})
    assert first == {"Tags": [{"Key": "team", "Value": "y"}], "NextToken": "1"}
    training.delete_tags({"ResourceArn": arn, "TagKeys": ["team", "never"]})
    assert training.list_tags({"ResourceArn": arn})["Tags"] == [{"Key": "cost", "Value": "1"}]


def test_a_job_has_at_most_fifty_tags(training):
    arn = training.create(request("a"))["TrainingJobArn"]
    with pytest.raises(ApiError) as refused:
        training.add_tags({"ResourceArn": arn, "Tags": [{"Key": str(n), "Value": ""} for n in range(51)]})
    assert refused.value.code == "ResourceLimitExceeded"


def test_jobs_are_listed_oldest_first_in_pages(training):
    for name in ("b", "c", "a"):
        training.create(request(name))
    seen, token = [], None
    while True:
        answer = training.list({"MaxResults": 2, **({"NextToken": token} if token else {})})
        seen += [one["TrainingJobName"] for one in answer["TrainingJobSummaries"]]
        token = answer["NextToken"]
        if token is None:
            break
    assert seen == ["b", "c", "a"]
    with pytest.raises(ApiError):
        training.list({"NextToken": "no"})


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"SortBy": "Name", "SortOrder": "Descending"}, "cba"),
        ({"NameContains": "B"}, "b"),
        ({"StatusEquals": "Failed"}, "c"),
        ({"StatusEquals": "InProgress", "SortBy": "Name"}, "ab"),
        ({"CreationTimeAfter": 1001.0}, "ca"),
        ({"WarmPoolStatusEquals": "InUse"}, ""),
    ],
)
def test_lists_are_filtered_and_sorted(shelf, filters, names):
    pytest.importorskip("botocore", reason="pip install 'paceline[sagemaker]'")
    for name in ("b", "c", "a"):
        shelf.add(request(name))
    shelf.apply("c", StageFailed(reason="no"))
    assert "".join(record.name for record in listed(shelf.all(), filters)) == names


def test_jobs_that_had_not_ended_with_their_server_have_failed(shelf, tmp_path):
    for name in ("ended", "running"):
        shelf.add(request(name))
    shelf.apply("ended", Finished())
    shelf.apply("running", StageReached(to=Secondary.PENDING))
    shelf.stream("running", "algo-1").append(1, "hello")
    shelf.close()
    again = JobStore(tmp_path / "jobs", region="eu-west-1", clock=lambda: 5000.0)
    again.open()
    assert described(again.job("ended"))["TrainingJobStatus"] == "Completed"
    lost = described(again.job("running"))
    assert (lost["TrainingJobStatus"], lost["SecondaryStatus"]) == ("Failed", "Failed")
    assert lost["FailureReason"].startswith("InternalServerError: paceline sagemaker-local was ended")
    assert [stream.name for stream in again.streams()] == ["running/algo-1-1001"]
    again.close()


def test_two_servers_cannot_have_one_directory(shelf, tmp_path):
    with pytest.raises(UsageError) as refused:
        JobStore(tmp_path / "jobs", region="eu-west-1").open()
    assert refused.value.code == "U22"


def test_what_is_no_job_in_the_directory_is_named(tmp_path):
    (tmp_path / "jobs" / "x").mkdir(parents=True)
    (tmp_path / "jobs" / "x" / "job.json").write_text("{}")
    shelf = JobStore(tmp_path / "jobs", region="eu-west-1")
    with pytest.raises(UsageError, match=r"x/job\.json is no job"):
        shelf.open()
    shelf.close()


def test_a_record_survives_being_kept_and_only_its_owner_reads_it(shelf):
    record = shelf.add(request("a"))
    assert msgspec.json.decode(msgspec.json.encode(record), type=JobRecord) == record
    assert (shelf.place("a") / "job.json").stat().st_mode & 0o077 == 0


KEPT = """{"schema": "paceline.sagemaker_local/1", "name": "a", "arn": "arn:aws:sagemaker:eu-west-1:000000000000:training-job/a",
"serial": 3, "request": {"TrainingJobName": "a"}, "state": {"created": 1.5, "modified": 4, "training_started": 2.5, "ended": 4.0,
"reason": "", "status": "Stopped", "secondary": "MaxRuntimeExceeded", "why_stopping": "MaxRuntimeExceeded", "transitions":
[["Starting", 1.5, 2.5], ["Training", 2.5, 3.0], ["Stopping", 3.0, 4.0], ["MaxRuntimeExceeded", 4.0, 4.0]]},
"tags": {"team": "vision"}, "model_url": "s3://b/a/output/model.tar.gz", "metrics":
[{"MetricName": "loss", "Value": 1.5, "Timestamp": 2.0}]}"""


def test_the_file_of_a_job_has_the_form_that_earlier_servers_wrote():
    record = msgspec.json.decode(KEPT, type=JobRecord)
    assert (record.serial, record.state.why_stopping, record.tags) == (
        3, SecondaryStatus.MAX_RUNTIME_EXCEEDED, {"team": "vision"},
    )  # fmt: skip
    assert json.loads(msgspec.json.encode(record)) == json.loads(KEPT)


def test_a_job_is_described_with_all_its_statuses_and_times():
    shown = described(msgspec.json.decode(KEPT, type=JobRecord))
    assert shown["SecondaryStatusTransitions"][1] == {
        "Status": "Training", "StartTime": 2.5, "EndTime": 3.0, "StatusMessage": "Training in-progress",
    }  # fmt: skip
    times = [shown[name] for name in ("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime")]
    assert times == [1.5, 2.5, 4.0, 4]
    assert (shown["TrainingTimeInSeconds"], shown["BillableTimeInSeconds"], shown["FailureReason"]) == (2, 2, None)
    assert shown["ModelArtifacts"] == {"S3ModelArtifacts": "s3://b/a/output/model.tar.gz"}
