"""A host in the run, and one attempt on it: what its ranks are started with."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.contract import Prepared
from paceline.facts import Job, Placement
from paceline.launch.agent.scratch import Scratch
from paceline.launch.job.messages import StartAttemptMessage
from paceline.part import HostPart, KeptState
from paceline.recording.layout import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """Names and settings of this host in the run."""

    run_id: str
    """Id of the run."""
    job_name: str
    """The job's name."""
    name: str
    """Name of this host in the run."""
    mark: str
    """The value of PACELINE_MARK in every process of the job on this host."""
    environ: Mapping[str, str]
    """Environment variables of the agent, which ranks inherit."""
    shares_machine: bool = False
    """Other hosts of the job run on this machine too."""
    own_mounts: bool = False
    """This host's agent and ranks have mounts of their own, which nothing else on the machine sees."""
    network_interface: str | None = None
    """The network interface to the other hosts; None: the interface of the route to the first host."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Host name -> address, for names that the resolver does not know; empty: the resolver knows all names."""
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables of every rank."""
    command: tuple[str, ...] = ()
    """The command line that started the job, without secrets."""

    @property
    def python(self) -> str:
        """The Python interpreter of this host's ranks."""
        return self.environ.get("PYTHON_EXEC") or sys.executable

    @property
    def marked_environ(self) -> dict[str, str]:
        """Environment variables of a process of the job that is no rank."""
        return {**self.environ, "PACELINE_MARK": self.mark}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAttempt:
    """One attempt on this host: with what its ranks are started."""

    job: Job
    """The job."""
    identity: HostIdentity
    """Names and settings of this host in the run."""
    directory: RunDirectory
    """This host's recording."""
    scratch: Scratch
    """The agent's directories outside the recording."""
    message: StartAttemptMessage
    """The coordinator's order."""
    prepared: Prepared
    """The tree and the variables of the SageMaker contract."""
    parts: Sequence[HostPart] = ()
    """What the parts do on this host."""
    state: KeptState | None = None
    """Where the ranks keep their state; None: they keep none."""
    cpus_by_local_rank: Sequence[frozenset[int]] | None = None
    """The CPUs to which each local rank is bound; None: ranks are not bound."""
    ras_address: str | None = None
    """Where NCCL's RAS service listens; None: at its own port."""

    @property
    def placement(self) -> Placement:
        """This host's part of the attempt."""
        return next(placed for placed in self.message.placements if placed.host == self.identity.name)

    @property
    def rendezvous_id(self) -> str:
        """torchrun's name of the rendezvous."""
        return self.job.rendezvous_id if self.job.rendezvous_id != "none" else self.identity.run_id

    @property
    def errors(self) -> Path:
        """The directory in which ranks write the exceptions that ended them."""
        return self.scratch.errors_of(self.message.attempt)
