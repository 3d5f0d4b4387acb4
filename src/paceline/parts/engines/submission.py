"""A job in the form that every engine gets, and the job file that starts its agent on a host."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.facts import Channel, Program
from paceline.job_file import JobFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A job's packed code."""

    directory: str
    """The directory of the code on the submitting machine."""
    archive: str
    """Path of the archive, a gzipped tar file on the submitting machine."""
    digest: str
    """SHA-256 of the archive's content, the same for the same files."""
    file_count: int
    """Number of files in the archive."""
    size_bytes: int
    """Total size of these files."""
    archive_bytes: int
    """Size of the archive."""
    commit: str | None = None
    """The commit that git has checked out in the directory; None: the directory is not in a work tree."""
    dirty: tuple[str, ...] = ()
    """The paths that differ from the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job for an engine: the job file of its agents, and the settings for the engine."""

    file: JobFile
    """The job file for every agent. Its program is relative to the package. The engine fills in the rendezvous of the hosts."""
    package: Package | None = None
    """The packed code; None: no code is shipped."""
    hosts: int = 1
    """Number of hosts. Each host has one agent."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every rank. Their values may be secrets and are never shown."""
    retries: int = 0
    """How many times the engine restarts the job after a lost host or a preemption, in addition to --max-restarts."""
    engine_options: Mapping[str, str] = field(default_factory=dict)
    """Options for this engine only, from `--option KEY=VALUE`."""
    platform: Mapping[str, Any] = field(default_factory=dict)
    """Fields of CreateTrainingJob, for SageMaker only."""

    @property
    def run_id(self) -> str:
        """Id of the run, which the submitting process has chosen."""
        return self.file.run_id or ""

    @property
    def name(self) -> str:
        """The job's name for people."""
        return self.file.job.name

    @property
    def program(self) -> Program:
        """The program that every rank executes."""
        return self.file.job.program

    @property
    def ranks_per_host(self) -> str:
        """The value of --nproc-per-node."""
        return self.file.ranks_per_host

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The input channels."""
        return self.file.job.contract.channels

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        """The hyperparameters, as Python values."""
        return self.file.job.contract.hyperparameters

    @property
    def profile(self) -> str:
        """The encoding of hyperparameters: that of version 2 or 3 of the SDK."""
        return self.file.job.contract.profile

    @property
    def output_url(self) -> str | None:
        """The URL for model.tar.gz and output.tar.gz."""
        return self.file.job.output_url

    @property
    def checkpoint_url(self) -> str | None:
        """The URL with which the checkpoints directory is kept in sync."""
        return self.file.job.checkpoint_url

    @property
    def max_run_seconds(self) -> float | None:
        """Time limit of the job."""
        return self.file.job.max_run_seconds


def as_run(submission: Submission, run_id: str) -> Submission:
    """A further attempt of the same job: it has a run id of its own."""
    job = replace(submission.file.job, submission_id=submission.file.job.submission_id or submission.file.run_id)
    return replace(submission, file=replace(submission.file, run_id=run_id, job=job))


def host_file(
    submission: Submission, node_rank: int = 0, first_address: str = "127.0.0.1", port: int | None = None
) -> JobFile:
    """The job file of the host with this node rank. `first_address` and `port` are those of the first host's agent."""
    job = replace(
        submission.file.job,
        min_hosts=submission.hosts,
        max_hosts=submission.hosts,
        node_rank=node_rank,
        is_first=node_rank == 0,
        master_addr=first_address if submission.hosts > 1 else "127.0.0.1",
        agents_port=port if submission.hosts > 1 else None,
        submission_id=submission.file.job.submission_id or submission.file.run_id,
    )
    return replace(submission.file, job=job)
