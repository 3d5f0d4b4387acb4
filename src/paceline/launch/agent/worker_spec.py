"""What each rank of a host is started with: its words, its environment, where its output goes."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.contract import Prepared
from paceline.contract.entry import command, first_line_of, is_shell_script, located
from paceline.facts import Job
from paceline.launch.agent.destinations import destinations
from paceline.launch.agent.environment import AttemptEnvironment, rank_environment, substitute_local_rank
from paceline.launch.agent.scratch import Scratch
from paceline.launch.agent.tf_config import tf_config
from paceline.launch.agent.workers import WorkerSpec
from paceline.launch.job.messages import StartAttemptMessage
from paceline.launch.job.state import Placement
from paceline.recording.layout import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """What this host is in the run."""

    run_id: str
    job_name: str
    name: str
    mark: str
    environ: Mapping[str, str]
    shares_machine: bool = False
    network_interface: str | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    extra_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> str:
        """The interpreter of its ranks."""
        return self.environ.get("PYTHON_EXEC") or sys.executable


def worker_specs(
    job: Job,
    identity: HostIdentity,
    scratch: Scratch,
    directory: RunDirectory,
    message: StartAttemptMessage,
    prepared: Prepared,
    *,
    cpus_by_local_rank: Sequence[frozenset[int]] | None = None,
) -> list[WorkerSpec]:
    """One per rank of this host, by local rank."""
    placement = next(placed for placed in message.placements if placed.host == identity.name)
    shared = _shared(job, identity, scratch, message, placement, prepared)
    program = located(job.program, job.contract.code_dir)
    argv = command(
        program,
        python=identity.python,
        arguments=prepared.script_arguments,
        first_line=first_line_of(program.target) if is_shell_script(program) else "",
    )
    return [
        _spec(job, identity, directory, shared, local_rank, argv, prepared, cpus_by_local_rank)
        for local_rank in range(placement.ranks)
    ]


def _shared(
    job: Job,
    identity: HostIdentity,
    scratch: Scratch,
    message: StartAttemptMessage,
    placement: Placement,
    prepared: Prepared,
) -> AttemptEnvironment:
    return AttemptEnvironment(
        run_id=identity.run_id,
        rendezvous_id=job.rendezvous_id if job.rendezvous_id != "none" else identity.run_id,
        role=job.role,
        attempt=message.attempt,
        max_restarts=job.max_restarts,
        placement=placement,
        host_count=len(message.placements),
        world_size=sum(placed.ranks for placed in message.placements),
        master_addr=message.master_addr,
        store_port=message.store_port,
        mark=identity.mark,
        ring_dir=scratch.rings,
        socket_dir=scratch.sockets,
        error_dir=scratch.errors,
        virtual_local_rank=job.virtual_local_rank,
        contract=prepared.environment,
        addresses=identity.addresses,
        gradients=message.gradients,
        allow_lossy=message.allow_lossy,
        extra={**identity.extra_environment, **_tensorflow(job, identity, message)},
    )


def _tensorflow(job: Job, identity: HostIdentity, message: StartAttemptMessage) -> dict[str, str]:
    if job.tf_config is None:
        return {}
    hosts = [placed.host for placed in sorted(message.placements, key=lambda placed: placed.node_rank)]
    return {"TF_CONFIG": tf_config(job.tf_config, hosts, identity.name, identity.addresses)}


def _spec(
    job: Job,
    identity: HostIdentity,
    directory: RunDirectory,
    shared: AttemptEnvironment,
    local_rank: int,
    argv: Sequence[str],
    prepared: Prepared,
    cpus_by_local_rank: Sequence[frozenset[int]] | None,
) -> WorkerSpec:
    rank = shared.placement.first_rank + local_rank
    out, err = destinations(
        job.console, directory, identity.name, shared.attempt, rank, local_rank, job.role, shared.rendezvous_id
    )
    return WorkerSpec(
        rank=rank,
        local_rank=local_rank,
        argv=substitute_local_rank(argv, local_rank),
        environment=rank_environment(shared, local_rank, identity.environ),
        out=out,
        err=err,
        working_directory=prepared.working_directory,
        cpus=cpus_by_local_rank[local_rank] if cpus_by_local_rank else None,
    )
