"""One host's part of a job: starts this host's ranks when told to, reports how they end, and records what they do.

It obeys messages and answers with messages; whether they go to another process or not is the `uplink`'s business.
"""

import asyncio
import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.contract import Prepared, prepare_host, requirements
from paceline.contract.entry import command, first_line_of, is_shell_script, located
from paceline.contract.failure import write_failure, write_success
from paceline.contract.prepare import base_directory
from paceline.errors import PacelineError
from paceline.facts import Job, ProgramKind, RankExit
from paceline.launch.destinations import destinations
from paceline.launch.endings import Ending, Surroundings, why_ended
from paceline.launch.environment import AttemptEnvironment, rank_environment, substitute_local_rank
from paceline.launch.guardian import end_marked, marked_processes, signal_marked
from paceline.launch.messages import (
    EventMessage,
    ExitedMessage,
    FormMessage,
    IdleMessage,
    LinesMessage,
    LookRequest,
    Message,
    PulseMessage,
    Refused,
    TraceRequest,
)
from paceline.launch.monitor import HostMonitor
from paceline.launch.pump import LogTails, Pump
from paceline.launch.scratch import Scratch
from paceline.launch.state import Placement
from paceline.launch.workers import WorkerEnd, Workers, WorkerSpec
from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.recording.layout import RunDirectory

LEFTOVER_GRACE_SECONDS = 2.0


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


@dataclass(slots=True)
class HostAgent:
    """`form`, `stop`, `kill` and `finish` are the first agent's commands; `uplink` takes what this host has to say."""

    job: Job
    identity: HostIdentity
    directory: RunDirectory
    scratch: Scratch
    pump: Pump
    uplink: Callable[[Message], None]
    gpu_count: int | None = None
    tails: LogTails | None = None
    cpus_by_local_rank: Sequence[frozenset[int]] | None = None
    workers: Workers | None = None
    monitor: HostMonitor | None = None
    prepared: Prepared | None = None
    _attempt: int = 0
    _oom_before: OomCounters | None = None
    _formed_at: float = 0.0
    _abandoned: bool = False
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _reports: list[asyncio.Task[None]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # ------------------------------------------------------------------------------------------------------ commands

    def __post_init__(self) -> None:
        self._idle.set()

    def form(self, message: FormMessage) -> None:
        """Begin to start this host's ranks of one attempt. A stop that comes right behind already means this attempt."""
        self._attempt, self._abandoned = message.attempt, False
        self._idle.clear()
        self.workers = None
        self._formed_at = time.monotonic()
        self._spawn(self._form(message))

    async def _form(self, message: FormMessage) -> None:
        try:
            await self._prepare_and_start(message)
        except PacelineError as error:
            self._refuse(error.code, error.what, error.saw, error.next)
        except Exception as error:
            # Whatever it is, the first agent has to learn of it: a host that says nothing more is waited for without end.
            what = f"{self.identity.name} cannot start its ranks"
            self._refuse("U22", what, f"{type(error).__name__}: {error}", "df -h; ulimit -a")

    def _refuse(self, code: str, what: str, saw: str, next: str) -> None:
        # What was given up may fail in the giving up (a pip that was ended), and that is no refusal.
        if not self._abandoned:
            self.uplink(Refused(code=code, what=what, saw=saw, next=next))
        if self.workers is None or not self.workers.pids():
            self._say_idle(self._attempt)

    async def _prepare_and_start(self, message: FormMessage) -> None:
        placement = next(p for p in message.placements if p.host == self.identity.name)
        self._oom_before = oom_counters(control_group("memory"))
        self.prepared = prepared = await self._prepare(message)
        if self._abandoned:
            self._say_idle(message.attempt)
            return
        specs = self._specs(message, placement, prepared)
        self.workers = Workers(
            mark=self.identity.mark,
            pump=self.pump,
            on_end=self._worker_ended,
            on_idle=self._workers_idle,
            rank_processes=self._rank_processes,
            whole_group=not _is_python(self.job),
        )
        self.directory.attempt(self.identity.name, message.attempt).mkdir(parents=True, exist_ok=True)
        self._start(specs, message)

    def stop(self, signal_name: str, grace_seconds: float) -> None:
        """Signal this host's ranks; an attempt that is still being prepared is given up."""
        self._abandoned = True
        if self.workers is not None:
            self.workers.stop(signal_name, grace_seconds)
        else:
            # A pip that installs the requirements; its end is the end of the preparation.
            signal_marked(self.identity.mark, signal.SIGTERM)

    def kill(self) -> None:
        self._abandoned = True
        if self.workers is not None:
            self.workers.kill()
        else:
            signal_marked(self.identity.mark, signal.SIGKILL)

    async def wait_idle(self) -> None:
        """Until none of this host's ranks is left."""
        await self._idle.wait()

    async def finish(self, exit_code: int, failure: str) -> None:
        """Last words: the contract's success or failure file, the last telemetry."""
        if self.prepared is not None:
            if exit_code == 0:
                write_success(self.prepared.tree)
            else:
                write_failure(self.prepared.tree, failure)
        if self.monitor is not None:
            await self.monitor.close()
        if lost := self.pump.lost_bytes():
            self.event("notice", text=f"{lost} bytes of logs on {self.identity.name} could not be written (disk full?)")

    def inquire(self, request: LookRequest | TraceRequest) -> None:
        """Look closely at this host's ranks, or read their flight recorders, and answer."""
        if self.monitor is not None:
            self._spawn(self._inquire(self.monitor, request))

    async def _inquire(self, monitor: HostMonitor, request: LookRequest | TraceRequest) -> None:
        try:
            self.uplink(await asyncio.to_thread(monitor.answer, request))
        except Exception as error:
            # What is looked at may vanish meanwhile; the first agent judges without this host.
            monitor.say_missing("look", f"{type(error).__name__}: {error}")

    def event(self, name: str, **fields: Any) -> None:
        """Record one event of this host."""
        self.uplink(EventMessage(event={"t_ns": time.time_ns(), "event": name, "host": self.identity.name, **fields}))

    # -------------------------------------------------------------------------------------------------------- start

    async def _prepare(self, message: FormMessage) -> Prepared:
        await asyncio.to_thread(self._install_requirements)
        prepared = await asyncio.to_thread(
            prepare_host,
            self.job.contract,
            base=base_directory(
                self.job.contract,
                below=self.directory.host(self.identity.name) / "ml",
                host=self.identity.name,
                several_here=self.identity.shares_machine,
            ),
            job_name=self.identity.job_name,
            hosts=tuple(p.host for p in sorted(message.placements, key=lambda p: p.node_rank)),
            current_host=self.identity.name,
            program=self.job.program,
            master_addr=message.master_addr,
            master_port=message.store_port,
            ranks_per_host=self.job.ranks_per_host,
            gpu_count=self.gpu_count or 0,
            network_interface=self.identity.network_interface,
            environ=self.identity.environ,
        )
        # Every host finds the same about the channels; the first one says it.
        if message.attempt == 0 and message.placements[0].host == self.identity.name:
            for finding in prepared.findings:
                self.event("finding", **dataclasses.asdict(finding))
        return prepared

    def _install_requirements(self) -> None:
        wanted = requirements.wanted(self.job.contract, self.job.program)
        if wanted is None:
            return
        self.event("notice", text=f"installing {wanted}")
        requirements.install(
            wanted,
            python=self._python(),
            lock_directory=self.scratch.shared,
            run_id=self.identity.run_id,
            environment={**self.identity.environ, "PACELINE_MARK": self.identity.mark},
        )

    def _python(self) -> str:
        return self.identity.environ.get("PYTHON_EXEC") or sys.executable

    def _specs(self, message: FormMessage, placement: Placement, prepared: Prepared) -> list[WorkerSpec]:
        shared = AttemptEnvironment(
            run_id=self.identity.run_id,
            rendezvous_id=self.job.rendezvous_id if self.job.rendezvous_id != "none" else self.identity.run_id,
            role=self.job.role,
            attempt=message.attempt,
            max_restarts=self.job.max_restarts,
            placement=placement,
            host_count=len(message.placements),
            world_size=sum(p.ranks for p in message.placements),
            master_addr=message.master_addr,
            store_port=message.store_port,
            mark=self.identity.mark,
            ring_dir=self.scratch.rings,
            socket_dir=self.scratch.sockets,
            error_dir=self.scratch.errors,
            virtual_local_rank=self.job.virtual_local_rank,
            contract=prepared.environment,
            addresses=self.identity.addresses,
            gradients=message.gradients,
            allow_lossy=message.allow_lossy,
            extra=self.identity.extra_environment,
        )
        for stale in self.scratch.errors.glob("*.json"):
            stale.unlink(missing_ok=True)
        argv = self._argv(prepared)
        return [self._spec(shared, local_rank, argv, prepared) for local_rank in range(placement.ranks)]

    def _argv(self, prepared: Prepared) -> list[str]:
        program = located(self.job.program, self.job.contract.code_dir)
        return command(
            program,
            python=self._python(),
            arguments=prepared.script_arguments,
            first_line=first_line_of(program.target) if is_shell_script(program) else "",
        )

    def _spec(self, shared: AttemptEnvironment, local_rank: int, argv: Sequence[str], prepared: Prepared) -> WorkerSpec:
        rank = shared.placement.first_rank + local_rank
        out, err = destinations(
            self.job.console,
            self.directory,
            self.identity.name,
            shared.attempt,
            rank,
            local_rank,
            self.job.role,
            shared.rendezvous_id,
        )
        return WorkerSpec(
            rank=rank,
            local_rank=local_rank,
            argv=substitute_local_rank(argv, local_rank),
            environment=rank_environment(shared, local_rank, self.identity.environ),
            out=out,
            err=err,
            working_directory=prepared.working_directory,
            cpus=self.cpus_by_local_rank[local_rank] if self.cpus_by_local_rank else None,
        )

    def _start(self, specs: Sequence[WorkerSpec], message: FormMessage) -> None:
        assert self.workers is not None
        try:
            self.workers.start(specs)
        except OSError as error:
            self.event("notice", text=f"error: {specs[0].argv[0]} cannot be executed: {error.strerror}")
            code = 126 if isinstance(error, PermissionError) else 127
            self._send_exit(specs[0].rank, Ending(code, note=str(error)))
            if not self.workers.pids():
                self._say_idle(self._attempt)
            return
        pids = self.workers.pids()
        for rank, pid in pids.items():
            self.event("rank_started", rank=rank, attempt=self._attempt, pid=pid)
        if self.monitor is None:
            self.monitor = HostMonitor(
                self.identity.name,
                self.directory,
                self.scratch,
                self._lines,
                self.event,
                on_pulses=lambda pulses, calls: self.uplink(PulseMessage(pulses=pulses, calls=calls)),
                tails=self.tails,
            )
            self.monitor.start()
        hosts_by_address = {placement.address: placement.host for placement in message.placements}
        self.monitor.begin_attempt(self._attempt, self.workers, hosts_by_address)

    # ---------------------------------------------------------------------------------------------------------- end

    def _rank_processes(self) -> list[int]:
        return self.monitor.rank_pids() if self.monitor is not None else []

    def _worker_ended(self, end: WorkerEnd) -> None:
        self._reports.append(self._spawn(self._report(end)))

    async def _report(self, end: WorkerEnd) -> None:
        assert self.workers is not None
        surroundings = Surroundings(
            pump=self.pump,
            errors=self.scratch.errors,
            said=self.monitor.last_words(end.pid) if self.monitor is not None else None,
            others=frozenset(self.workers.pids().values()),
            oom_before=self._oom_before,
            began=self._formed_at,
        )
        try:
            ending = await why_ended(end, surroundings)
        except Exception as failure:
            # The files and the kernel log that the reason is read from are other people's; the exit counts without them.
            note = f"why was not judged: {type(failure).__name__}: {failure}"
            ending = Ending(end.code, note=note, signalled_by_us=end.signalled_by_us)
        self._send_exit(end.spec.rank, ending, end=end)

    def _send_exit(self, rank: int, ending: Ending, *, end: WorkerEnd | None = None) -> None:
        exit = RankExit(
            host=self.identity.name,
            rank=rank,
            attempt=self._attempt,
            code=ending.code,
            time_ns=ending.done_ns or (end.time_ns if end else time.time_ns()),
            error=ending.error,
            note=ending.note,
            signalled_by_us=ending.signalled_by_us,
            tail=ending.tail,
        )
        self.event("rank_exited", **{name: value for name, value in dataclasses.asdict(exit).items() if name != "host"})
        self.uplink(ExitedMessage(exit=exit))

    def _workers_idle(self) -> None:
        self._spawn(self._become_idle(self._attempt))

    async def _become_idle(self, attempt: int) -> None:
        await asyncio.gather(*self._reports)
        self._reports.clear()
        try:
            await self._clear_up(attempt)
        except Exception as error:
            # Nothing of this decides how the attempt ended, and the other hosts wait for this one.
            text = f"{self.identity.name} could not clear up after attempt {attempt}: {type(error).__name__}: {error}"
            self.event("notice", text=text)
        self._say_idle(attempt)

    async def _clear_up(self, attempt: int) -> None:
        if any(True for _ in marked_processes(self.identity.mark)):
            await asyncio.to_thread(end_marked, self.identity.mark, LEFTOVER_GRACE_SECONDS)
        await asyncio.to_thread(self.pump.drain, 2.0)
        for left in self.scratch.errors.glob("*.unwatched"):
            self.event(
                "process_unwatched", attempt=attempt, pid=int(left.stem), reason=left.read_text(errors="replace")
            )
            left.unlink(missing_ok=True)
        if self.monitor is not None:
            await self.monitor.end_attempt()

    def _say_idle(self, attempt: int) -> None:
        self._idle.set()
        self.uplink(IdleMessage(attempt=attempt))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _lines(self, kind: Literal["telemetry", "logs"], lines: list[dict[str, Any]]) -> None:
        self.uplink(LinesMessage(kind=kind, lines=lines))


def _is_python(job: Job) -> bool:
    return job.program.kind is not ProgramKind.EXECUTABLE and not is_shell_script(job.program)
