"""Makes the argv, the environment and the output destinations of each rank of a host."""

import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from paceline.contract import Prepared
from paceline.contract.entry import command, first_line_of, is_shell_script, located
from paceline.facts import Console, Job, Placement
from paceline.launch.agent.environment import AttemptEnvironment, rank_environment, substitute_local_rank
from paceline.launch.agent.output import Destination
from paceline.launch.agent.scratch import Scratch
from paceline.launch.agent.workers import WorkerSpec
from paceline.launch.job.messages import StartAttemptMessage
from paceline.part import HostPart, KeptState
from paceline.recording.layout import RunDirectory

STDOUT, STDERR = 1, 2
EVERY_LOCAL_RANK = -1
_TORCHRUN_NAMES = {"out": "stdout", "err": "stderr"}


def destinations(
    console: Console,
    directory: RunDirectory,
    host: str,
    attempt: int,
    rank: int,
    local_rank: int,
    role: str,
    run: str,
    hostname: str,
) -> tuple[Destination, Destination]:
    """The destinations of one rank's stdout and stderr.

    Every rank has complete logs in the recording. A redirected stream is not shown on the terminal. A teed stream has a prefix on the
    terminal. The filter of local ranks applies to the terminal only. `--log-dir` adds torchrun's files:
    DIR/RUN/attempt_N/LOCAL_RANK/stdout.log. `hostname`: what ${hostname} of a prefix stands for.

    Source:  torch 2.13 torch/distributed/elastic/multiprocessing/api.py, `DefaultLogsSpecs.reify`
    """

    def one(name: str, bit: int, fd: int, filters: tuple[str, ...]) -> Destination:
        redirected = _bits(console.redirects, local_rank) & bit
        teed = _bits(console.tee, local_rank) & bit
        shown = teed or not redirected
        if console.local_ranks_filter is not None and local_rank not in console.local_ranks_filter:
            shown = False
        log_file = directory.log_file(host, attempt, rank, name)
        torchrun = None
        if console.log_dir is not None:
            torchrun = _torchrun_directory(console.log_dir, run, attempt)
        return Destination(
            log_file=log_file,
            console_fd=fd if shown else None,
            prefix=_prefix(console, hostname, role, rank, local_rank) if teed else b"",
            extra_file=torchrun / str(local_rank) / f"{_TORCHRUN_NAMES[name]}.log"
            if torchrun is not None and (redirected or teed)
            else None,
            filtered_file=(torchrun or log_file.parent) / f"filtered_{_TORCHRUN_NAMES[name]}.log" if filters else None,
            filters=filters,
        )

    return one("out", STDOUT, 1, console.stdout_filters), one("err", STDERR, 2, console.stderr_filters)


def _prefix(console: Console, hostname: str, role: str, rank: int, local_rank: int) -> bytes:
    template = console.line_prefix_template or "[${role_name}${local_rank}]:"
    values = {"role_name": role, "rank": rank, "local_rank": local_rank, "hostname": hostname}
    return Template(template).safe_substitute(values).encode()


def _torchrun_directory(log_dir: str, run: str, attempt: int) -> Path:
    return Path(log_dir) / run / f"attempt_{attempt}"


def _bits(chosen: dict[int, int], local_rank: int) -> int:
    return chosen.get(local_rank, chosen.get(EVERY_LOCAL_RANK, 0))


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
    def errors(self) -> Path:
        """The directory in which ranks write the exceptions that ended them."""
        return self.scratch.errors_of(self.message.attempt)

    def worker_specs(self) -> list[WorkerSpec]:
        """One WorkerSpec per rank of this host, in order of local rank."""
        shared = self._shared()
        program = located(self.job.program, self.job.contract.code_dir)
        argv = command(
            program,
            python=self.identity.python,
            arguments=self.prepared.script_arguments,
            first_line=first_line_of(program.target) if is_shell_script(program) else "",
        )
        return [self._spec(shared, argv, local_rank) for local_rank in range(shared.placement.ranks)]

    def _shared(self) -> AttemptEnvironment:
        job, identity, message = self.job, self.identity, self.message
        return AttemptEnvironment(
            run_id=identity.run_id,
            rendezvous_id=job.rendezvous_id if job.rendezvous_id != "none" else identity.run_id,
            role=job.role,
            attempt=message.attempt,
            max_restarts=job.max_restarts,
            placement=self.placement,
            host_count=len(message.placements),
            world_size=sum(placed.ranks for placed in message.placements),
            master_addr=message.master_addr,
            store_port=message.store_port,
            agent_store=message.agent_store,
            mark=identity.mark,
            ring_dir=self.scratch.rings,
            socket_dir=self.scratch.sockets,
            error_dir=self.errors,
            virtual_local_rank=job.virtual_local_rank,
            contract=self.prepared.environment,
            code_dir=self.prepared.working_directory,
            addresses=identity.addresses,
            gradients=message.gradients,
            allow_lossy=message.allow_lossy,
            hash_seed=message.hash_seed,
            ras_address=self.ras_address,
            extra=identity.extra_environment,
        )

    def _spec(self, shared: AttemptEnvironment, argv: Sequence[str], local_rank: int) -> WorkerSpec:
        identity = self.identity
        rank = shared.placement.first_rank + local_rank
        out, err = destinations(
            self.job.console,
            self.directory,
            identity.name,
            shared.attempt,
            rank,
            local_rank,
            self.job.role,
            shared.rendezvous_id,
            # Hosts that share a machine would all have its name.
            identity.name if identity.shares_machine else socket.gethostname(),
        )
        environment = rank_environment(shared, local_rank, identity.environ)
        own_argv: Sequence[str] = substitute_local_rank(argv, local_rank)
        new_argv = own_argv
        for part in self.parts:
            environment |= part.variables(self.message.placements, rank)
            new_argv = part.argv(new_argv)
        return WorkerSpec(
            rank=rank,
            local_rank=local_rank,
            argv=own_argv,
            environment=environment,
            out=out,
            err=err,
            working_directory=self.prepared.working_directory,
            cpus=self.cpus_by_local_rank[local_rank] if self.cpus_by_local_rank else None,
            state=self.state.descriptor(local_rank) if self.state is not None else None,
            new_argv=new_argv,
        )
