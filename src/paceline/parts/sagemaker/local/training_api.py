"""The supported operations of SageMaker: a checked request in, an answer out."""

from collections.abc import Callable, Mapping
from typing import Any

from paceline.facts import Status
from paceline.parts.sagemaker.local.errors import ApiError, invalid
from paceline.parts.sagemaker.local.job_store import JobStore
from paceline.parts.sagemaker.local.queue import Queue
from paceline.parts.sagemaker.local.records import JobRecord, described, summary
from paceline.parts.sagemaker.local.service_model import place
from paceline.parts.sagemaker.local.states import JobStopRequested
from paceline.parts.sagemaker.local.validation import check, groups

Operation = Callable[[Mapping[str, Any]], dict[str, Any]]
_MOST_TAGS = 50
_PAGE = 10


class TrainingApi:
    """Create, describe, list, stop and tag training jobs. `unnamed`: why several hosts cannot have names here; "" if they can."""

    def __init__(self, shelf: JobStore, queue: Queue, *, most_hosts: int, unnamed: str = "") -> None:
        self._shelf = shelf
        self._queue = queue
        self._most_hosts = most_hosts
        self._unnamed = unnamed

    def operations(self) -> dict[str, Operation]:
        """Name of the operation in the service model -> the function that does it."""
        return {
            "CreateTrainingJob": self.create,
            "DescribeTrainingJob": lambda request: described(self._shelf.job(request["TrainingJobName"])),
            "ListTrainingJobs": self.list,
            "StopTrainingJob": self.stop,
            "AddTags": self.add_tags,
            "ListTags": self.list_tags,
            "DeleteTags": self.delete_tags,
        }

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Accept a job, and add it to the queue.

        Raises:  ApiError: the job is invalid, a job with its name exists, or it is too large
        """
        check(request, most_hosts=self._most_hosts)
        if self._unnamed and sum(count for _, _, count in groups(request)) > 1:
            raise invalid(
                f"paceline sagemaker-local cannot name several hosts on this machine ({self._unnamed}); one works."
            )
        record = self._shelf.add(request)
        self._queue.enter(record.name)
        return {"TrainingJobArn": record.arn}

    def stop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a job to end.

        Raises:  ApiError ValidationException: there is no such job, or it has ended
        """
        record = self._shelf.job(request["TrainingJobName"])
        if record.state.over:
            raise invalid(f"The request was rejected because the training job is in status {record.state.status}.")
        self._shelf.apply(record.name, JobStopRequested())
        self._queue.leave(record.name)
        return {}

    def list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of the jobs that match a filter.

        Raises:  ApiError ValidationException: a NextToken that this server did not issue
        """
        found = listed(self._shelf.all(), request)
        start = _place(request.get("NextToken"))
        stop = start + request.get("MaxResults", _PAGE)
        return {
            "TrainingJobSummaries": [summary(record) for record in found[start:stop]],
            "NextToken": str(stop) if stop < len(found) else None,
        }

    def add_tags(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Set tags of a job.

        Raises:  ApiError ResourceLimitExceeded: more than 50; ValidationException: no such job
        """
        record = self._shelf.of_arn(request["ResourceArn"])
        tags = {**record.tags, **{tag["Key"]: tag["Value"] for tag in request["Tags"]}}
        if len(tags) > _MOST_TAGS:
            raise ApiError(
                "ResourceLimitExceeded", f"A resource can have at most {_MOST_TAGS} tags; it would have {len(tags)}."
            )
        return {"Tags": _tags(self._shelf.note(record.name, tags=tags))}

    def list_tags(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of a job's tags.

        Raises:  ApiError ValidationException: no such job, or a NextToken that this server did not issue
        """
        tags = _tags(self._shelf.of_arn(request["ResourceArn"]))
        start = _place(request.get("NextToken"))
        stop = start + request.get("MaxResults", _MOST_TAGS)
        return {"Tags": tags[start:stop], "NextToken": str(stop) if stop < len(tags) else None}

    def delete_tags(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Remove tags. A tag that does not exist is no error.

        Raises:  ApiError ValidationException: no such job
        """
        record = self._shelf.of_arn(request["ResourceArn"])
        gone = set(request["TagKeys"])
        self._shelf.note(record.name, tags={key: value for key, value in record.tags.items() if key not in gone})
        return {}


def listed(records: list[JobRecord], request: Mapping[str, Any]) -> list[JobRecord]:
    """The jobs that match the filters of ListTrainingJobs, in its order. It has no side effects."""
    keys: dict[str, Callable[[JobRecord], Any]] = {
        "Name": lambda record: record.name,
        "CreationTime": lambda record: record.serial,
        "Status": lambda record: (str(record.state.status), record.serial),
    }
    found = [record for record in records if _wanted(record, request)]
    descending = request.get("SortOrder", "Ascending") == "Descending"
    return sorted(found, key=keys[request.get("SortBy", "CreationTime")], reverse=descending)


def _wanted(record: JobRecord, request: Mapping[str, Any]) -> bool:
    state = record.state
    status: Status | None = request.get("StatusEquals")
    return (
        request.get("NameContains", "").lower() in record.name.lower()
        and (status is None or state.status == status)
        and "TrainingPlanArnEquals" not in request
        and "WarmPoolStatusEquals" not in request
        and _within(state.created, request.get("CreationTimeAfter"), request.get("CreationTimeBefore"))
        and _within(state.modified, request.get("LastModifiedTimeAfter"), request.get("LastModifiedTimeBefore"))
    )


def _within(at: float, after: Any, before: Any) -> bool:
    return (after is None or at >= _seconds(after)) and (before is None or at <= _seconds(before))


def _seconds(stamp: Any) -> float:
    from botocore.utils import parse_to_aware_datetime

    return float(parse_to_aware_datetime(stamp).timestamp())


def _place(token: str | None) -> int:
    try:
        return place(token)
    except ValueError as error:
        raise invalid("Invalid pagination token given.") from error


def _tags(record: JobRecord) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in record.tags.items()]
