from datetime import UTC, datetime

from paceline.contract.describe import REASON_CHARACTERS, StatusTransition, job_progress


def progress(**changes):
    known = {
        "status": "InProgress", "secondary_status": "Training", "transitions": (), "failure_reason": None, "model_url": None,
        "created": 1.0, "training_started": None, "ended": None, "modified": 1.0, "training_seconds": None,
    }  # fmt: skip
    return job_progress(**{**known, **changes})


def test_what_is_not_known_is_none():
    shown = progress()
    assert shown["TrainingJobStatus"] == "InProgress"
    unknown = ("FailureReason", "ModelArtifacts", "TrainingStartTime", "TrainingEndTime", "TrainingTimeInSeconds")
    assert [shown[name] for name in unknown] == [None] * len(unknown)


def test_a_present_status_has_no_end_and_an_unworded_one_no_message():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    (entry,) = progress(transitions=[StatusTransition(status="Training", started=moment, ended=None)])[
        "SecondaryStatusTransitions"
    ]
    assert entry == {"Status": "Training", "StartTime": moment}


def test_a_reason_is_as_long_as_the_service_allows():
    assert len(progress(failure_reason="x" * 2000)["FailureReason"]) == REASON_CHARACTERS
