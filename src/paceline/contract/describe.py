"""How far a training job is, in the shape of SageMaker's DescribeTrainingJob."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

REASON_CHARACTERS = 1024
Time = datetime | float
"""As the answer is to have it: a moment, or Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTransition:
    """One entry of SecondaryStatusTransitions."""

    status: str
    """The secondary status."""
    started: Time | None
    """When the job entered it."""
    ended: Time | None
    """When the job left it; None: it is the present one."""
    message: str = ""
    """In words."""


def job_progress(
    *,
    status: str,
    secondary_status: str,
    transitions: Iterable[StatusTransition],
    failure_reason: str | None,
    model_url: str | None,
    created: Time | None,
    training_started: Time | None,
    ended: Time | None,
    modified: Time | None,
    training_seconds: int | None,
) -> dict[str, Any]:
    """The members of the answer that change while a job goes on; what is not known is None."""
    return {
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary_status,
        "SecondaryStatusTransitions": [_transition(one) for one in transitions],
        "FailureReason": failure_reason[:REASON_CHARACTERS] if failure_reason else None,
        "ModelArtifacts": {"S3ModelArtifacts": model_url} if model_url else None,
        "CreationTime": created,
        "TrainingStartTime": training_started,
        "TrainingEndTime": ended,
        "LastModifiedTime": modified,
        "TrainingTimeInSeconds": training_seconds,
    }


def _transition(one: StatusTransition) -> dict[str, Any]:
    facts = {"Status": one.status, "StartTime": one.started, "EndTime": one.ended, "StatusMessage": one.message}
    return {name: value for name, value in facts.items() if value not in (None, "")}
