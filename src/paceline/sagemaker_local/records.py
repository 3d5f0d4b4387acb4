"""A training job as it is kept, and as Describe and List show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.sagemaker_local.states import MESSAGES, TrainingJobState, as_json, from_json, training_seconds

_SCHEMA = "paceline.sagemaker_local/1"
_SHOWN_AS_ASKED = (
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "DebugHookConfig",
    "ExperimentConfig",
    "DebugRuleConfigurations",
    "TensorBoardOutputConfig",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "Environment",
    "RetryStrategy",
    "RemoteDebugConfig",
    "InfraCheckConfig",
    "MlflowConfig",
    "ModelPackageConfig",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job: what was asked, its tags, where it stands, what it left.

    `serial`: counts the jobs of a directory, so that two of the same second have an order. `metrics`: as FinalMetricDataList has them.
    """

    name: str
    arn: str
    serial: int
    request: Mapping[str, Any]
    state: TrainingJobState
    tags: Mapping[str, str] = field(default_factory=dict)
    model_url: str | None = None
    metrics: tuple[Mapping[str, Any], ...] = ()


def job_arn(region: str, role_arn: str, name: str) -> str:
    """The job's own ARN, in the account of its role."""
    account = role_arn.split(":")[4] if role_arn.count(":") >= 5 else "000000000000"
    return f"arn:aws:sagemaker:{region}:{account}:training-job/{name}"


def described(record: JobRecord) -> dict[str, Any]:
    """The job as DescribeTrainingJob answers it."""
    state = record.state
    seconds = training_seconds(state)
    shown = {name: record.request[name] for name in _SHOWN_AS_ASKED if name in record.request}
    groups = record.request.get("ResourceConfig", {})
    return shown | {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        "TrainingJobStatus": str(state.status),
        "SecondaryStatus": str(state.secondary),
        "FailureReason": state.reason or None,
        "ModelArtifacts": {"S3ModelArtifacts": record.model_url} if record.model_url else None,
        "CreationTime": state.created,
        "LastModifiedTime": state.modified,
        "TrainingStartTime": state.training_started,
        "TrainingEndTime": state.ended,
        "TrainingTimeInSeconds": seconds,
        "BillableTimeInSeconds": seconds,
        "SecondaryStatusTransitions": transitions(state),
        "FinalMetricDataList": list(record.metrics) or None,
        "WarmPoolStatus": _pool(state) if groups.get("KeepAlivePeriodInSeconds") else None,
    }


def transitions(state: TrainingJobState) -> list[dict[str, Any]]:
    """SecondaryStatusTransitions: each status with its times and message."""
    return [
        {
            "Status": str(one.status),
            "StartTime": one.started,
            "EndTime": one.ended,
            "StatusMessage": MESSAGES.get(one.status, ""),
        }
        for one in state.transitions
    ]


def summary(record: JobRecord) -> dict[str, Any]:
    """The job as a line of ListTrainingJobs."""
    return {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        "CreationTime": record.state.created,
        "TrainingEndTime": record.state.ended,
        "LastModifiedTime": record.state.modified,
        "TrainingJobStatus": str(record.state.status),
        "SecondaryStatus": str(record.state.secondary),
    }


def to_json(record: JobRecord) -> dict[str, Any]:
    """Everything of a job, as values to keep."""
    return {
        "schema": _SCHEMA,
        "name": record.name,
        "arn": record.arn,
        "serial": record.serial,
        "request": record.request,
        "state": as_json(record.state),
        "tags": dict(record.tags),
        "model_url": record.model_url,
        "metrics": list(record.metrics),
    }


def of_json(kept: Mapping[str, Any]) -> JobRecord:
    """What `to_json` kept.

    Holds:   of_json(to_json(record)) == record
    """
    return JobRecord(
        name=kept["name"],
        arn=kept["arn"],
        serial=kept["serial"],
        request=kept["request"],
        state=from_json(kept["state"]),
        tags=kept["tags"],
        model_url=kept["model_url"],
        metrics=tuple(kept["metrics"]),
    )


def _pool(state: TrainingJobState) -> dict[str, Any]:
    # Nothing is kept warm: the hosts of this machine start in a moment.
    return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0} if state.over else {"Status": "InUse"}
