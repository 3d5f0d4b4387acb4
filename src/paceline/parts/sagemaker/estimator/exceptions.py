"""The exceptions for a failed training job, with SDK v2's names."""

from paceline.errors import PacelineError


class UnexpectedStatusException(PacelineError):
    """The job ended without success.

    `rank`, `host`: the first rank that failed and its host, None if no rank failed; `rank_exit_code`: that rank's exit code, or minus a
    signal's number. `reason`: the reason in the recording.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        job_name: str,
        run_id: str,
        actual_status: str,
        reason: str,
        run_exit_code: int | None = None,
        rank: int | None = None,
        host: str | None = None,
        rank_exit_code: int | None = None,
        saw: str = "",
    ) -> None:
        super().__init__(code, what, saw=saw, next=f"paceline why {run_id}")
        self.job_name = job_name
        self.run_id = run_id
        self.actual_status = actual_status
        self.allowed_statuses = ("Completed", "Stopped")
        self.reason = reason
        self.rank = rank
        self.host = host
        self.rank_exit_code = rank_exit_code
        self.exit_code = run_exit_code or 1


class CapacityError(UnexpectedStatusException):
    """The engine had no machine for the job."""


class TrainingTimeout(UnexpectedStatusException):
    """The job reached its time limit. SDK v2's fit() returns then, as after a completed job; `raise_on_timeout=False` does so here."""
