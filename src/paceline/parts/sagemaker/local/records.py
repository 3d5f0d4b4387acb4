"""A training job as it is stored, and as Describe and List return it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from paceline.contract.describe import StatusTransition, job_progress
from paceline.parts.sagemaker.local.states import MESSAGES, TrainingJobState, training_seconds

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


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.sagemaker_local/1"):
    """One job as it is stored."""

    name: str
    """The job's name, as given at its creation."""
    arn: str
    """The job's ARN, which AWS's clients use for tags."""
    serial: int
    """Counts the jobs of a directory, so that two jobs of the same second have an order."""
    request: Mapping[str, Any]
    """The request, without its tags."""
    state: TrainingJobState
    """The job's state."""
    tags: Mapping[str, str] = {}
    """Tag name -> value."""
    model_url: str | None = None
    """The model's URL, after the model was uploaded."""
    metrics: tuple[Mapping[str, Any], ...] = ()
    """In the form of FinalMetricDataList."""


def job_arn(region: str, role_arn: str, name: str) -> str:
    """The job's own ARN, in the account of its role."""
    account = role_arn.split(":")[4] if role_arn.count(":") >= 5 else "000000000000"
    return f"arn:aws:sagemaker:{region}:{account}:training-job/{name}"


def described(record: JobRecord) -> dict[str, Any]:
    """The job in the form of DescribeTrainingJob's answer."""
    state = record.state
    seconds = training_seconds(state)
    shown = {name: record.request[name] for name in _SHOWN_AS_ASKED if name in record.request}
    groups = record.request.get("ResourceConfig", {})
    return shown | {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        **job_progress(
            status=str(state.status),
            secondary_status=str(state.secondary),
            transitions=(
                StatusTransition(
                    status=str(one.status),
                    started=one.started,
                    ended=one.ended,
                    message=MESSAGES.get(one.status, ""),
                )
                for one in state.transitions
            ),
            failure_reason=state.reason,
            model_url=record.model_url,
            created=state.created,
            training_started=state.training_started,
            ended=state.ended,
            modified=state.modified,
            training_seconds=seconds,
        ),
        "BillableTimeInSeconds": seconds,
        "FinalMetricDataList": list(record.metrics) or None,
        "WarmPoolStatus": _pool(state) if groups.get("KeepAlivePeriodInSeconds") else None,
    }


def summary(record: JobRecord) -> dict[str, Any]:
    """The job in the form of an entry of ListTrainingJobs."""
    return {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        "CreationTime": record.state.created,
        "TrainingEndTime": record.state.ended,
        "LastModifiedTime": record.state.modified,
        "TrainingJobStatus": str(record.state.status),
        "SecondaryStatus": str(record.state.secondary),
    }


def _pool(state: TrainingJobState) -> dict[str, Any]:
    # No machines are kept warm: hosts on this machine start within a moment.
    return {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0} if state.over else {"Status": "InUse"}
