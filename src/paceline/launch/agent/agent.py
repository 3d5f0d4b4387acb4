"""One host's part of a job. The agent starts the host's ranks on request, reports how they end, and records what they do.

The agent receives messages and answers with messages. `uplink` decides whether a message goes to another process.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paceline.contract import Prepared
from paceline.contract.entry import is_python
from paceline.contract.failure import write_failure, write_success
from paceline.errors import PacelineError
from paceline.facts import Job
from paceline.launch.agent.attempt_exits import AttemptExits
from paceline.launch.agent.cleanup import Cleanup
from paceline.launch.agent.companion import Companions
from paceline.launch.agent.data import HostData, host_data
from paceline.launch.agent.deaf_ranks import DeafRanks, may_save
from paceline.launch.agent.exit_reason import Ending
from paceline.launch.agent.host_attempt import HostAttempt, HostIdentity
from paceline.launch.agent.host_fork_server import HostForkServer
from paceline.launch.agent.job_processes import JobProcesses, refused_calls
from paceline.launch.agent.output import LogTails, Pump
from paceline.launch.agent.preparation import HostPreparation
from paceline.launch.agent.run_environment import code_directory, environment_document, gpus_of_ranks
from paceline.launch.agent.scratch import Scratch, still_there
from paceline.launch.agent.store_client import HostStore
from paceline.launch.agent.telemetry import HostMonitor
from paceline.launch.agent.worker_spec import worker_specs
from paceline.launch.agent.workers import Workers, WorkerSpec
from paceline.launch.job.messages import (
    LONGEST,
    EventMessage,
    GatherMessage,
    HeartbeatMessage,
    IdleMessage,
    LinesMessage,
    Message,
    ReadyMessage,
    RefusedMessage,
    ResumedMessage,
    SnapshotRequest,
    StartAttemptMessage,
    StopMessage,
    TraceRequest,
)
from paceline.launch.ports import ReservedPorts
from paceline.part import Beginning, Host, HostPart, KeptState, first_answer, parts
from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.probes.nccl_ras import RasPort, configured_in_a_file
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import make_folder
from paceline.recording.ring import RingHeader
from paceline.recording.writer import write_json

RESUMED_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class _Started:
    """What belongs to an attempt from the start of its ranks on."""

    workers: Workers
    """The processes of the ranks."""
    exits: AttemptExits
    """The ends of the ranks."""
    companions: Companions
    """The processes beside the ranks."""


@dataclass(slots=True)
class HostAgent:
    """One host's ranks. `start_attempt`, `start_ranks`, `stop`, `kill` and `finish` are the coordinator's commands."""

    job: Job
    """The job as this host's command line describes it."""
    identity: HostIdentity
    """Names and settings of this host in the run."""
    directory: RunDirectory
    """This host's recording."""
    scratch: Scratch
    """This agent's directories outside the recording."""
    pump: Pump
    """Copies the ranks' output to their logs and to the terminal."""
    processes: JobProcesses
    """Every process of the job on this host."""
    uplink: Callable[[Message], None]
    """Sends a message of this host to the coordinator."""
    torch_directory: str | None = None
    """The directory in which the ranks' Python has torch; None: it has none."""
    gpu_count: int | None = None
    """Number of GPUs of this host; None: not known."""
    tails: LogTails | None = None
    """Output of ranks that goes to the first host; None: this is the first host."""
    cpus_by_local_rank: Sequence[frozenset[int]] | None = None
    """The CPUs to which each local rank is bound; None: ranks are not bound."""
    ports: ReservedPorts = field(default_factory=lambda: ReservedPorts(()))
    """Ports for servers of the ranks."""
    begins: Beginning = field(default_factory=Beginning)
    """What the run begins with."""
    prepared: Prepared | None = None
    """The tree and the variables of the SageMaker contract; None: no attempt has been prepared yet."""
    data: HostData = field(init=False)
    """This host's part in the job's data."""
    _parts: tuple[HostPart, ...] = ()
    _monitor: HostMonitor = field(init=False)
    _preparation: HostPreparation = field(init=False)
    _fork_server: HostForkServer = field(init=False)
    _store: HostStore = field(init=False)
    _cleanup: Cleanup = field(init=False)
    # The port of NCCL's RAS service of this host's ranks; None: there is no GPU, or no port is free.
    _ras: RasPort | None = None
    _attempt: int = 0
    _first_rank: int = 0
    # Where the ranks of the attempt keep their state; None: they keep none.
    _state: KeptState | None = None
    # None: the attempt is being prepared.
    _started: _Started | None = None
    _abandoned: bool = False
    # The state of the ranks is kept: their end is reported before it is judged.
    _at_once: bool = False
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _reaping: asyncio.Task[None] | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        identity, name, lasting = self.identity, self.identity.name, self.processes.lasting
        self._idle.set()
        host = Host(
            job=self.job,
            run_id=identity.run_id,
            command=identity.command,
            begins=self.begins,
            directory=self.directory.path,
            name=name,
            shares_machine=identity.shares_machine,
            environ=identity.environ,
            addresses=identity.addresses,
            python=identity.python,
            lasting=lasting,
            say=self._say,
        )
        self._parts = tuple(on_host for part in parts() if (on_host := part.on_host(host)) is not None)
        if self.gpu_count and not configured_in_a_file(identity.environ):
            with suppress(OSError):
                self._ras = RasPort()
        self.data = host_data(self.job, identity, self.directory, self.event, self.uplink)
        self._preparation = HostPreparation(self.job, identity, self.data, self.gpu_count, self.event)
        self._monitor = HostMonitor(
            name,
            self.directory,
            self.scratch,
            lambda kind, lines: self.uplink(LinesMessage(kind=kind, lines=lines)),
            self.event,
            on_heartbeats=lambda found, calls: self.uplink(HeartbeatMessage(heartbeats=found, calls=calls)),
            tails=self.tails,
            visible_devices=identity.environ.get("CUDA_VISIBLE_DEVICES"),
        )
        self._fork_server = HostForkServer(identity, self.job.ranks_per_host, lasting, self.event)
        self._store = HostStore(identity, self.torch_directory, lasting, self.event)
        self._cleanup = Cleanup(name, self.processes, self.pump, self._monitor, self.event)

    # ------------------------------------------------------------------------------------------------------ commands

    def start_attempt(self, message: StartAttemptMessage) -> None:
        """Begin to start this host's ranks of one attempt. A stop that arrives directly afterwards applies to this attempt."""
        self._attempt, self._abandoned, self._at_once = message.attempt, False, False
        self._first_rank = next(p.first_rank for p in message.placements if p.host == self.identity.name)
        self._idle.clear()
        self._going.clear()
        self._started = None
        self._reaping = self._reaping or self._spawn(self.processes.reap_every_second())
        self._spawn(self._prepare_attempt(message, time.monotonic()))

    def start_ranks(self, attempt: int) -> None:
        """Every host has its data: start the ranks that `start_attempt` has prepared."""
        if attempt == self._attempt:
            self._going.set()

    def stop(self, message: StopMessage) -> None:
        """Signal this host's ranks. If the attempt is still being prepared, abandon it."""
        self._abandoned = True
        self._end_is_near()
        if self._started is None:
            # A pip may be installing the requirements. The preparation ends when pip ends.
            self.processes.signal(signal.SIGTERM)
            self._give_up_data()
            return
        workers = self._started.workers
        self._started.companions.release()
        if message.signal == "SIGTERM" and not message.after_failure:
            self._started.exits.told_to_save |= may_save(workers.targets())
        workers.stop(message.signal, message.grace_seconds)
        # With a rank, so that the same from many hosts is shown once.
        deaf = DeafRanks(workers.targets, partial(self._say, rank=self._first_rank, attempt=self._attempt))
        self._spawn(deaf.after(message))

    def save_now(self, signal_name: str) -> None:
        """A scheduler says by a signal that the job will be ended: save the newest step at once, and train on."""
        self._say(f"{signal_name} at the agent: the newest kept step is saved now, the training goes on")
        self._end_is_near()
        if self._started is not None:
            self._started.workers.pass_on(signal_name)

    def _end_is_near(self) -> None:
        for part in self._parts:
            part.end_is_near()

    def kill(self, *, at_once: bool = False) -> None:
        """Send SIGKILL to this host's ranks. `at_once`: their state is kept, so nothing waits for what is left of them."""
        self._abandoned, self._at_once = True, at_once
        if self._started is not None:
            self._started.companions.release()
            self._started.workers.kill()
        else:
            self.processes.signal(signal.SIGKILL)
        if self._started is None or self._idle.is_set():
            self._give_up_data()

    def _give_up_data(self) -> None:
        self.data.give_up()
        self._going.set()

    def gather(self, message: GatherMessage) -> None:
        """Send the files that the ranks have left, and report what was sent."""
        self._spawn(self._gather(message))

    async def _gather(self, message: GatherMessage) -> None:
        self.uplink(await self.data.gather(message, self.prepared.environment if self.prepared is not None else None))

    def inquire(self, request: SnapshotRequest | TraceRequest) -> None:
        """Take snapshots of this host's ranks, or read their flight recorders, and answer."""
        if self._monitor.is_running:
            self._spawn(self._monitor.answer(request, self.uplink))

    async def wait_idle(self) -> None:
        """Wait until none of this host's ranks is left."""
        await self._idle.wait()

    async def finish(self, exit_code: int, failure: str) -> None:
        """Write the contract's success or failure file and the last telemetry."""
        self.data.close()
        self._fork_server.close()
        self._store.close()
        await self._cleanup.finish()
        for part in self._parts:
            await part.ended(exit_code)
        if self._reaping is not None:
            self._reaping.cancel()
        if self.prepared is not None:
            if exit_code == 0:
                write_success(self.prepared.tree)
            else:
                write_failure(self.prepared.tree, failure)
        await self._monitor.close()
        name = self.identity.name
        if not_written := self._monitor.not_written():
            self._say(f"{not_written} of {name} could not be written (disk full?)")
        if lost := self.pump.lost_bytes():
            self._say(f"{lost} bytes of logs on {name} could not be written (disk full?)")
        if long := self.pump.long_lines():
            self._say(f"filtered logs on {name} have {long} lines of over 1 MiB that were not looked at")

    def event(self, name: str, **fields: Any) -> None:
        """Record one event of this host."""
        self.uplink(EventMessage(event={"t_ns": time.time_ns(), "event": name, "host": self.identity.name, **fields}))

    # -------------------------------------------------------------------------------------------------------- start

    async def _prepare_attempt(self, message: StartAttemptMessage, began: float) -> None:
        try:
            await self._prepare_and_start(message, began)
        except PacelineError as error:
            self._refuse(error.code, error.what, error.saw, error.next)
        except Exception as error:
            # The coordinator must learn of every error: it would wait for a silent host without end.
            what = f"{self.identity.name} cannot start its ranks"
            self._refuse("U22", what, f"{type(error).__name__}: {error}", "df -h; ulimit -a")

    def _refuse(self, code: str, what: str, saw: str, next: str) -> None:
        # If this agent abandoned the preparation itself (it ended a pip), the failure is not a refusal.
        if not self._abandoned:
            self.uplink(RefusedMessage(code=code, what=what[:LONGEST], saw=saw[:LONGEST], next=next[:LONGEST]))
        if self._started is None or not self._started.workers.pids():
            self._say_idle(self._attempt)

    async def _prepare_and_start(self, message: StartAttemptMessage, began: float) -> None:
        for part in self._parts:
            for text in part.begins(message.attempt, message.placements):
                self._say(text)
        oom_before = oom_counters(control_group("memory"))
        self.prepared = await self._preparation.prepare(message, self.scratch.shared)
        await self._fork_server.loaded(lambda: not self._abandoned)
        if message.together and not self._abandoned:
            self.uplink(ReadyMessage(attempt=message.attempt))
            await self._going.wait()
        if self._abandoned:
            self._say_idle(message.attempt)
            return
        self._look_after_scratch()
        self.scratch.errors_of(message.attempt).mkdir(mode=0o700, exist_ok=True)
        steps = message.resume_step, message.hash_seed
        self._state = first_answer(
            part.kept_state(message.placements, *steps, keeps_state=message.keeps_state) for part in self._parts
        )
        attempt = HostAttempt(
            job=self.job,
            identity=self.identity,
            directory=self.directory,
            scratch=self.scratch,
            message=message,
            prepared=self.prepared,
            parts=self._parts,
            state=self._state,
            cpus_by_local_rank=self.cpus_by_local_rank,
            ras_address=self._ras.address if self._ras is not None else None,
        )
        specs = worker_specs(attempt)
        self._started = self._attempt_to_start(attempt, began, oom_before)
        make_folder(self.directory.attempt(self.identity.name, message.attempt))
        self._start(self._started, specs, message)

    def _look_after_scratch(self) -> None:
        found = still_there(self.scratch)
        if found is not self.scratch:
            self.scratch = self._monitor.scratch = found
            self.processes.also_removes(found.roots)

    def _attempt_to_start(self, attempt: HostAttempt, began: float, oom_before: OomCounters | None) -> _Started:
        def companion_lost(how: str) -> None:
            if workers.pids():
                workers.kill()
            else:
                exits.report_not_run(attempt.placement.first_rank, Ending(1, note=how))

        companions = Companions(
            self.identity.name, lambda: workers.pids(), self.processes.began, companion_lost, self.event
        )
        exits = AttemptExits(
            attempt, began, oom_before, self.pump, self._monitor, companions, self.uplink, self.event, self._spawn
        )
        workers = Workers(
            processes=self.processes,
            pump=self.pump,
            on_end=lambda end: exits.ended(end, workers.pids().values()),
            on_idle=self._ranks_ended,
            rank_processes=self._monitor.rank_pids,
            whole_group=not is_python(self.job.program),
            fork_server=self._fork_server.server,
        )
        return _Started(workers, exits, companions)

    def _start(self, started: _Started, specs: Sequence[WorkerSpec], message: StartAttemptMessage) -> None:
        attempt, workers = message.attempt, started.workers
        self.ports.release()
        if message.agent_store and self._first_rank == 0:
            self._store.hold(message.store_port, self.scratch.sockets)
        for asked in [part.companion(message.placements) for part in self._parts]:
            if asked is not None:
                log = self.directory.companion_log(self.identity.name, attempt, asked.name)
                self._spawn(started.companions.watch(started.companions.start(asked, specs[0], log)))
        try:
            workers.start(specs)
        except OSError as error:
            self._say(f"error: {specs[0].argv[0]} cannot be executed: {error.strerror}")
            code = 126 if isinstance(error, PermissionError) else 127
            started.exits.report_not_run(specs[0].rank, Ending(code, note=str(error)))
            if not workers.pids():
                self._say_idle(attempt)
            return
        for rank, pid in workers.pids().items():
            self.event("rank_started", rank=rank, attempt=attempt, pid=pid)
        if not self._monitor.is_running:
            self._watch_host(workers.no_pidfd, with_code=message.placements[0].host == self.identity.name)
        if self.job.fork_server:
            self._fork_server.ranks_started(attempt, workers.not_forked)
            if self.job.resume or attempt < self.job.max_restarts:
                keeps_state = self._state is not None
                headers = partial(self._headers, attempt)
                self._spawn(
                    self._fork_server.start_after_first_step(specs[0], attempt, headers, keeps_state=keeps_state)
                )
        hosts_by_address = {placement.address: placement.host for placement in message.placements}
        self._monitor.begin_attempt(attempt, workers, hosts_by_address)
        if self._state is not None and message.resume_step is not None:
            self._spawn(self._report_resumed(self._state, attempt, message.resume_step))
        for part in self._parts:
            part.ranks_started()
        self._spawn(self.data.watch())

    def _watch_host(self, no_pidfd: str, *, with_code: bool) -> None:
        """The first ranks have been started: say what this host refuses, sample it, and record with what they run."""
        for text in refused_calls(self.identity.name, no_pidfd):
            self._say(text)
        self._monitor.start()
        self._spawn(self._record_environment(with_code=with_code))

    async def _record_environment(self, *, with_code: bool) -> None:
        """Find out what the ranks run with, while they start, and write it. Only a comparison of two runs misses it.

        `with_code`: ask git too. One host does, because hundreds of them share a directory.
        """
        name, directory = self.identity.name, code_directory(self.job.program) if with_code else None
        try:
            if self.gpu_count:
                self._monitor.gpus = await asyncio.to_thread(gpus_of_ranks, self._monitor.visible_devices)
            document = await asyncio.to_thread(environment_document, self.identity, directory)
            await asyncio.to_thread(write_json, self.directory.environment_file(name), document)
        except Exception as error:
            self._say(f"environment.json of {name}: {type(error).__name__}: {error}")

    def _lasts(self, attempt: int) -> bool:
        return self._attempt == attempt and not self._idle.is_set()

    def _headers(self, attempt: int) -> Mapping[int, RingHeader] | None:
        return self._monitor.headers() if self._lasts(attempt) else None

    async def _report_resumed(self, state: KeptState, attempt: int, resume_step: int) -> None:
        """Tell the coordinator when every rank of this host has made a step since the resume."""
        while (stepped_ns := state.first_step_ns(resume_step)) is None:
            await asyncio.sleep(RESUMED_SECONDS)
            if not self._lasts(attempt):
                return
        self.uplink(ResumedMessage(attempt=attempt, stepped_ns=stepped_ns))

    # ---------------------------------------------------------------------------------------------------------- end

    def _ranks_ended(self) -> None:
        assert self._started is not None
        self._spawn(self._clear_up(self._started, at_once=self._at_once))

    async def _clear_up(self, started: _Started, *, at_once: bool) -> None:
        made_count = 0
        if at_once:
            made_count = await self._cleanup.kill(started.exits)
        else:
            await started.exits.judged()
            await started.companions.unneeded()
            await self._cleanup.clear(started.exits)
        self._say_idle(started.exits.attempt.message.attempt, made_count)

    def _say_idle(self, attempt: int, made_count: int = 0) -> None:
        """Report that no rank is left. `made_count`: the steps that a rank has made, where what the ranks left is read later."""
        self._idle.set()
        state = self._state
        keep = self._started is None or self._started.exits.keep_state
        kept = None if state is None or not keep else state.kept(self._first_rank)
        if state is not None and kept is not None:
            for rank, step in state.damaged(self._first_rank):
                self._say(f"the state that rank {rank} has kept of step {step} is damaged and not used (F04)")
        step_count = 0 if state is None else state.step_count()
        self.ports.reserve()
        self.uplink(
            IdleMessage(
                attempt=attempt, kept=kept, step_count=step_count, made_count=made_count, ports=self.ports.numbers
            )
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _say(self, text: str, **fields: Any) -> None:
        self.event("notice", **fields, text=text)
