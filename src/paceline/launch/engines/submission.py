"""One job as every engine is given it, and the job file that starts its agent on a host."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.facts import Channel, Program
from paceline.job_file import JobFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The directory of a job's code as it is shipped."""

    directory: str
    """Where the code lies on the submitting machine."""
    archive: str
    """A gzipped tar on the submitting machine."""
    digest: str
    """SHA-256 of its content, the same for the same files."""
    file_count: int
    """Files in it."""
    size_bytes: int
    """Their size."""
    archive_bytes: int
    """Size of the archive."""
    commit: str | None = None
    """The commit that git has checked out there; None outside a work tree."""
    dirty: tuple[str, ...] = ()
    """The paths that differ from the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job for an engine: the job file of its agents, and what the engine has to know beside it."""

    file: JobFile
    """What every agent is given; its program is relative to the package, and the engine fills in how hosts meet."""
    package: Package | None = None
    """The code; None: nothing is shipped."""
    hosts: int = 1
    """Agents, one a host."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every rank. They may hold secrets and are never shown."""
    retries: int = 0
    """How often the engine starts the job anew after a lost host or a preemption, beside --max-restarts."""
    engine_options: Mapping[str, str] = field(default_factory=dict)
    """What only this engine understands, from `--option KEY=VALUE`."""
    platform: Mapping[str, Any] = field(default_factory=dict)
    """Fields of CreateTrainingJob that only SageMaker understands."""

    @property
    def run_id(self) -> str:
        """Id of the recording, which whoever submits the job has chosen."""
        return self.file.run_id or ""

    @property
    def name(self) -> str:
        """How people call the job."""
        return self.file.job.name

    @property
    def program(self) -> Program:
        """What every rank executes."""
        return self.file.job.program

    @property
    def ranks_per_host(self) -> str:
        """As --nproc-per-node has it."""
        return self.file.ranks_per_host

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The input channels."""
        return self.file.job.contract.channels

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        """The values, as Python has them."""
        return self.file.job.contract.hyperparameters

    @property
    def profile(self) -> str:
        """Whose encoding hyperparameters get: v2 or v3 of the SDK."""
        return self.file.job.contract.profile

    @property
    def output_url(self) -> str | None:
        """Where model.tar.gz and output.tar.gz go."""
        return self.file.job.output_url

    @property
    def checkpoint_url(self) -> str | None:
        """What the checkpoints directory is kept in step with."""
        return self.file.job.checkpoint_url

    @property
    def max_run_seconds(self) -> float | None:
        """Time limit of the job."""
        return self.file.job.max_run_seconds


def as_run(submission: Submission, run_id: str) -> Submission:
    """The same job, recorded under another id."""
    return replace(submission, file=replace(submission.file, run_id=run_id))


def host_file(
    submission: Submission, node_rank: int = 0, first_address: str = "127.0.0.1", port: int | None = None
) -> JobFile:
    """The job file of the host of this node rank. `first_address`, `port`: where the first host's agent is met."""
    job = replace(
        submission.file.job,
        min_hosts=submission.hosts,
        max_hosts=submission.hosts,
        node_rank=node_rank,
        is_first=node_rank == 0,
        master_addr=first_address if submission.hosts > 1 else "127.0.0.1",
        agents_port=port if submission.hosts > 1 else None,
    )
    return replace(submission.file, job=job)
