"""The attempts of a job that a keeper process runs: their ids, their recordings, and the notice when a host was lost.

The SSH and Ray engines use this module, because paceline itself watches their hosts. Slurm and SageMaker restart a job themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import HostLost
from paceline.facts import SecondaryStatus, Status
from paceline.part import Observation
from paceline.parts.engines.jobs import note_end
from paceline.parts.engines.submission import Submission, as_run
from paceline.recording.layout import RunDirectory
from paceline.recording.writer import EventLog
from paceline.terminal_text import write_line


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """One start of the job on its hosts."""

    number: int
    """Number of the attempt, counted from 1."""
    job: Submission
    """The job, with the run id of this attempt."""
    directory: Path
    """The directory of this attempt's recording."""
    retries: int
    """How many times the job may be started again in total."""
    following: str
    """Id of the run that follows if this attempt loses a host."""

    @property
    def is_last(self) -> bool:
        """Whether no attempt can follow this one."""
        return self.number > self.retries


def attempts_of(job: Submission, run_dir: Path) -> Iterator[JobAttempt]:
    """The attempts of the job, in order: r-1 in `run_dir`, r-1.2 beside it, and so on. The caller stops when no retry is needed."""
    for number in range(1, job.retries + 2):
        this = job if number == 1 else as_run(job, f"{job.run_id}.{number}")
        directory = run_dir if number == 1 else run_dir.with_name(this.run_id)
        following = f"{job.run_id}.{number + 1}"
        yield JobAttempt(number=number, job=this, directory=directory, retries=job.retries, following=following)


def note_retry(lost: JobAttempt, why: str) -> None:
    """Report which run follows an attempt that lost a host, and write it to that attempt's recording."""
    again = f"retry {lost.number} of {lost.retries}"
    say(f"{why}; {again} as {lost.following}")
    recording = RunDirectory(lost.directory)
    if not recording.run_file.exists():
        return
    log = EventLog(recording.events_file)
    log.record("notice", text=f"{why}; started again as {lost.following} ({again})")
    log.close()
    # If the first host was lost, no agent was left to record the end.
    failed = SecondaryStatus.FAILED
    note_end(
        lost.directory,
        Observation(status=Status.FAILED, secondary_status=failed, reason=why, exit_code=HostLost.exit_code),
    )


def tell_of_lost_steps(job: Submission) -> None:
    """Say what a lost host costs a job that keeps its state, if the saved steps are on that host only."""
    own = job.file.job
    if own.resume and job.retries and job.hosts == 1 and own.checkpoint_url is None and own.state_dir is None:
        say(
            "steps are saved on the job's host only: a retry on another host begins at the start; --checkpoints URL keeps them"
        )


def say(text: str) -> None:
    """Print a line of the engine, besides the coordinator's lines."""
    write_line(f"paceline  {text}")
