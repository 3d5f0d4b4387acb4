"""The attempts of a job that a keeper holds: what each is called, where it is recorded, and what is said when a host was lost.

Engines whose hosts paceline itself watches (SSH, Ray) go through them alike. Slurm and SageMaker start a job again themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import HostLost
from paceline.facts import SecondaryStatus, Status
from paceline.launch.engines.base import Observation
from paceline.launch.engines.jobs import note_end
from paceline.launch.engines.submission import Submission, as_run
from paceline.recording.layout import RunDirectory
from paceline.recording.writer import EventLog
from paceline.terminal_text import write_line


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """One start of the job on its hosts."""

    number: int
    """From 1."""
    job: Submission
    """The job, under the id of this attempt."""
    directory: Path
    """Where this attempt is recorded."""
    retries: int
    """How often the job may be started again in all."""
    following: str
    """Id of the run that follows where this one loses a host."""

    @property
    def is_last(self) -> bool:
        """Whether none follows, however it ends."""
        return self.number > self.retries


def attempts_of(job: Submission, run_dir: Path) -> Iterator[JobAttempt]:
    """The attempts that the job has, in order: r-1 in `run_dir`, r-1.2 beside it, and so on. Whoever is content takes no further one."""
    for number in range(1, job.retries + 2):
        this = job if number == 1 else as_run(job, f"{job.run_id}.{number}")
        directory = run_dir if number == 1 else run_dir.with_name(this.run_id)
        following = f"{job.run_id}.{number + 1}"
        yield JobAttempt(number=number, job=this, directory=directory, retries=job.retries, following=following)


def note_retry(lost: JobAttempt, why: str) -> None:
    """Say, and put into the recording of the attempt that lost a host, which run follows it."""
    again = f"retry {lost.number} of {lost.retries}"
    say(f"{why}; {again} as {lost.following}")
    recording = RunDirectory(lost.directory)
    if not recording.run_file.exists():
        return
    log = EventLog(recording.events_file)
    log.record("notice", text=f"{why}; started again as {lost.following} ({again})")
    log.close()
    # Where its first host was the one that was lost, no agent lived to say it.
    failed = SecondaryStatus.FAILED
    note_end(
        lost.directory,
        Observation(status=Status.FAILED, secondary_status=failed, reason=why, exit_code=HostLost.exit_code),
    )


def say(text: str) -> None:
    """A line of the engine's own, beside the first agent's."""
    write_line(f"paceline  {text}")
