"""One host's part of a job. The agent starts the host's ranks on request, reports how they end, and records what they do.

The agent receives messages and answers with messages. `uplink` decides whether a message goes to another process.
"""

import asyncio
import dataclasses
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paceline.contract import Prepared, prepare_host, requirements
from paceline.contract.entry import is_python
from paceline.contract.failure import write_failure, write_success
from paceline.contract.prepare import base_directory
from paceline.contract.tree import Tree
from paceline.diagnosis.crash.root_cause import lost_a_loader_worker
from paceline.errors import PacelineError
from paceline.facts import Job, RankExit
from paceline.launch.agent.companion import RunningCompanion, start_companion
from paceline.launch.agent.data import HostData, kept_root
from paceline.launch.agent.deaf_ranks import DeafRanks, may_save
from paceline.launch.agent.exit_reason import HIDDEN, Ending, ExitContext, why_ended
from paceline.launch.agent.fork_server import (
    ForkServer,
    start_fork_server,
    why_not,
)
from paceline.launch.agent.job_processes import JobProcesses
from paceline.launch.agent.opt_ml import show_at_opt_ml
from paceline.launch.agent.output import AttemptOutput, LogTails, Pump
from paceline.launch.agent.run_environment import environment_document, gpus_of_ranks
from paceline.launch.agent.scratch import Scratch, still_there
from paceline.launch.agent.store_holder import NOT_HELD, StoreHolder, start_store_holder
from paceline.launch.agent.telemetry import HostMonitor, Watched, last_words
from paceline.launch.agent.worker_spec import HostAttempt, HostIdentity
from paceline.launch.agent.workers import WorkerEnd, Workers, WorkerSpec
from paceline.launch.job.messages import (
    LONGEST,
    EventMessage,
    ExitedMessage,
    Failure,
    GatheredMessage,
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
from paceline.launch.job.outcome import MISMATCH_CODE
from paceline.launch.ports import ReservedPorts
from paceline.part import Beginning, Host, HostPart, KeptState, first_answer, parts
from paceline.prctl import is_subreaper
from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.probes.nccl_ras import RasPort, configured_in_a_file
from paceline.probes.sigkill_source import killed_for_memory
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import make_folder, read_plain
from paceline.recording.ring import RingHeader
from paceline.recording.writer import write_json

LEFTOVER_GRACE_SECONDS = 2.0
REAP_SECONDS = 1.0
LATE_SECONDS = 5.0
RESUMED_SECONDS = 0.01
FIRST_STEP_SECONDS = 0.2
# Several times what the import takes on a busy machine. A fork server that is stopped must not keep the ranks.
LOADING_SECONDS = 15.0


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
    workers: Workers | None = None
    """The current attempt's worker processes; None: they have not been started."""
    monitor: HostMonitor | None = None
    """Samples this host and its ranks; None: no rank has been started yet."""
    prepared: Prepared | None = None
    """The tree and the variables of the SageMaker contract; None: no attempt has been prepared yet."""
    data: HostData = field(init=False)
    """This host's part in the job's data."""
    ports: ReservedPorts = field(default_factory=lambda: ReservedPorts(()))
    """Ports for servers of the ranks."""
    begins: Beginning = field(default_factory=Beginning)
    """What the run begins with."""
    # The port of NCCL's RAS service of this host's ranks; None: there is no GPU, or no port is free.
    _ras: RasPort | None = None
    # Where the ranks of the attempt keep their state; None: they keep none.
    _state: KeptState | None = None
    _first_rank: int = 0
    # Every rank of the attempt keeps its state, as far as it is known from those that have ended.
    _keeps: bool = True
    # Ranks of the attempt that have ended, and whose end was not reported yet.
    _unjudged: dict[int, WorkerEnd] = field(default_factory=dict)
    # Of each rank of the attempt that has ended: what judges its end.
    _judging: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    # Tasks that still read the output of attempts that have ended.
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    # The state of the ranks is kept: their end is reported before it is judged.
    _at_once: bool = False
    _fork_server: ForkServer | None = None
    _store_holder: StoreHolder | None = None
    # Why the next attempt cannot be forked, as far as this is known before the fork server was asked.
    _not_forked: str = "its ranks had not made their first step"
    _attempt: int = 0
    _oom_before: OomCounters | None = None
    _began_at: float = 0.0
    _abandoned: bool = False
    _told_refused: bool = False
    # Processes in which TensorFlow was told by SIGTERM that the job is stopped.
    _told_to_save: frozenset[int] = frozenset()
    # What the parts do on this host.
    _parts: tuple[HostPart, ...] = ()
    # How a companion of this host ended in the attempt, before it was ended; "": none did.
    _companion_lost: str = ""
    # Until when a companion of this host serves the other hosts.
    _serves_until: str = ""
    # The other hosts need no companion of this host any more.
    _unneeded: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _reaping: asyncio.Task[None] | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # ------------------------------------------------------------------------------------------------------ commands

    def __post_init__(self) -> None:
        self._idle.set()
        host = Host(
            job=self.job,
            run_id=self.identity.run_id,
            command=self.identity.command,
            begins=self.begins,
            directory=self.directory.path,
            name=self.identity.name,
            shares_machine=self.identity.shares_machine,
            environ=self.identity.environ,
            addresses=self.identity.addresses,
            python=self.identity.python,
            lasting=self.processes.lasting,
            say=lambda text: self.event("notice", text=text),
        )
        self._parts = tuple(on_host for part in parts() if (on_host := part.on_host(host)) is not None)
        if self.gpu_count and not configured_in_a_file(self.identity.environ):
            with suppress(OSError):
                self._ras = RasPort()
        base = base_directory(
            self.job.contract,
            below=self.directory.host(self.identity.name) / "ml",
            host=self.identity.name,
            several_here=self.identity.shares_machine,
        )
        kept = kept_root(self.job, base, self.directory.path.parent)
        self.data = HostData(
            self.job,
            self.identity.run_id,
            self.identity.name,
            base,
            kept,
            self.identity.environ,
            self.event,
            lambda said: self.uplink(said),
        )

    def start_attempt(self, message: StartAttemptMessage) -> None:
        """Begin to start this host's ranks of one attempt. A stop that arrives directly afterwards applies to this attempt."""
        self._attempt, self._abandoned, self._at_once = message.attempt, False, False
        self._first_rank = next(p.first_rank for p in message.placements if p.host == self.identity.name)
        self._keeps = True
        self._idle.clear()
        self._going.clear()
        self._companion_lost = self._serves_until = ""
        self._unneeded.set()
        self.workers = None
        self._began_at = time.monotonic()
        self._reaping = self._reaping or self._spawn(self._reap_orphans())
        self._spawn(self._prepare_attempt(message))

    async def _reap_orphans(self) -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            self.processes.reap_orphans()

    def start_ranks(self, attempt: int) -> None:
        """Every host has its data: start the ranks that `start_attempt` has prepared."""
        if attempt == self._attempt:
            self._going.set()

    async def _prepare_attempt(self, message: StartAttemptMessage) -> None:
        try:
            await self._prepare_and_start(message)
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
        if self.workers is None or not self.workers.pids():
            self._say_idle(self._attempt)

    async def _prepare_and_start(self, message: StartAttemptMessage) -> None:
        for part in self._parts:
            for text in part.begins(message.attempt, message.placements):
                self.event("notice", text=text)
        self._oom_before = oom_counters(control_group("memory"))
        self.prepared = prepared = await self._prepare(message)
        if self._fork_server is not None:
            await self._fork_server.loaded(LOADING_SECONDS, lambda: not self._abandoned)
        if message.together and not self._abandoned:
            self.uplink(ReadyMessage(attempt=message.attempt))
            await self._going.wait()
        if self._abandoned:
            self._say_idle(message.attempt)
            return
        self._look_after_scratch()
        self.scratch.errors_of(message.attempt).mkdir(mode=0o700, exist_ok=True)
        self._state = self._state_of_ranks(message)
        attempt = HostAttempt(
            job=self.job,
            identity=self.identity,
            directory=self.directory,
            scratch=self.scratch,
            message=message,
            prepared=prepared,
            parts=self._parts,
            state=self._state,
            cpus_by_local_rank=self.cpus_by_local_rank,
            ras_address=self._ras.address if self._ras is not None else None,
        )
        specs = attempt.worker_specs()
        self.workers = Workers(
            processes=self.processes,
            pump=self.pump,
            on_end=self._worker_ended,
            on_idle=self._workers_idle,
            rank_processes=self._rank_processes,
            whole_group=not is_python(self.job.program),
            fork_server=self._fork_server,
        )
        make_folder(self.directory.attempt(self.identity.name, message.attempt))
        self._start(specs, message)

    def _look_after_scratch(self) -> None:
        found = still_there(self.scratch)
        if found is not self.scratch:
            self.scratch = found
            self.processes.also_removes(found.roots)
            if self.monitor is not None:
                self.monitor.scratch = found

    def _state_of_ranks(self, message: StartAttemptMessage) -> KeptState | None:
        return first_answer(
            part.kept_state(message.placements, message.resume_step, message.hash_seed, keeps_state=message.keeps_state)
            for part in self._parts
        )

    def stop(self, message: StopMessage) -> None:
        """Signal this host's ranks. If the attempt is still being prepared, abandon it."""
        self._abandoned = True
        self._unneeded.set()
        self._end_is_near()
        if self.workers is not None:
            if message.signal == "SIGTERM" and not message.after_failure:
                self._told_to_save |= may_save(self.workers.targets())
            self.workers.stop(message.signal, message.grace_seconds)
            self._spawn(self._watch_deaf_ranks(self.workers, message))
        else:
            # A pip may be installing the requirements. The preparation ends when pip ends.
            self.processes.signal(signal.SIGTERM)
            self._give_up_data()

    async def _watch_deaf_ranks(self, workers: Workers, message: StopMessage) -> None:
        rank, attempt = self._first_rank, self._attempt

        def tell(text: str) -> None:
            # With a rank, so that the same from many hosts is shown once.
            self.event("notice", rank=rank, attempt=attempt, text=text)

        deaf = DeafRanks(workers.targets, tell)
        if message.after_failure:
            await deaf.after_failure()
        elif message.signal == "SIGTERM":
            await deaf.after_stop(message.grace_seconds)

    def save_now(self, signal_name: str) -> None:
        """A scheduler says by a signal that the job will be ended: save the newest step at once, and train on."""
        self.event(
            "notice", text=f"{signal_name} at the agent: the newest kept step is saved now, the training goes on"
        )
        self._end_is_near()
        if self.workers is not None:
            self.workers.pass_on(signal_name)

    def _end_is_near(self) -> None:
        for part in self._parts:
            part.end_is_near()

    def kill(self, *, at_once: bool = False) -> None:
        """Send SIGKILL to this host's ranks. `at_once`: their state is kept, so nothing waits for what is left of them."""
        self._abandoned, self._at_once = True, at_once
        self._unneeded.set()
        if self.workers is not None:
            self.workers.kill()
        else:
            self.processes.signal(signal.SIGKILL)
        if self.workers is None or self._idle.is_set():
            self._give_up_data()

    def _give_up_data(self) -> None:
        self.data.give_up()
        self._going.set()

    def gather(self, message: GatherMessage) -> None:
        """Send the files that the ranks have left, and report what was sent."""
        self._spawn(self._gather(message))

    async def _gather(self, message: GatherMessage) -> None:
        said = GatheredMessage(kinds=[], errors=[])
        if self.prepared is not None:
            try:
                said = await self.data.gather(message, self.prepared.environment)
            except Exception as error:
                # Whatever the error is, the coordinator waits for this host's answer.
                what = f"{self.identity.name} could not send what its ranks left"
                saw = f"{type(error).__name__}: {error}"
                said.errors.append(Failure(code="E53", what=what, saw=saw, next=f"ls -la {self.data.base}"))
        self.uplink(said)

    async def wait_idle(self) -> None:
        """Wait until none of this host's ranks is left."""
        await self._idle.wait()

    async def finish(self, exit_code: int, failure: str) -> None:
        """Write the contract's success or failure file and the last telemetry."""
        self.data.close()
        self._end_fork_server()
        if self._store_holder is not None:
            self._store_holder.close()
            self.processes.lasting.discard(self._store_holder.pid)
            self._store_holder = None
        if self._late:
            await asyncio.wait(self._late, timeout=LATE_SECONDS)
        for part in self._parts:
            await part.ended(exit_code)
        if self._reaping is not None:
            self._reaping.cancel()
        if self.prepared is not None:
            if exit_code == 0:
                write_success(self.prepared.tree)
            else:
                write_failure(self.prepared.tree, failure)
        if self.monitor is not None:
            await self.monitor.close()
            if not_written := self.monitor.not_written():
                self.event("notice", text=f"{not_written} of {self.identity.name} could not be written (disk full?)")
        if lost := self.pump.lost_bytes():
            self.event("notice", text=f"{lost} bytes of logs on {self.identity.name} could not be written (disk full?)")
        if long := self.pump.long_lines():
            self.event(
                "notice",
                text=f"filtered logs on {self.identity.name} have {long} lines of over 1 MiB that were not looked at",
            )

    def inquire(self, request: SnapshotRequest | TraceRequest) -> None:
        """Take snapshots of this host's ranks, or read their flight recorders, and answer."""
        if self.monitor is not None:
            self._spawn(self._inquire(self.monitor, request))

    async def _inquire(self, monitor: HostMonitor, request: SnapshotRequest | TraceRequest) -> None:
        try:
            self.uplink(await asyncio.to_thread(monitor.answer, request))
        except Exception as error:
            # A process may end while it is inspected. The coordinator then judges without this host's answer.
            monitor.say_missing("look", f"{type(error).__name__}: {error}")

    def event(self, name: str, **fields: Any) -> None:
        """Record one event of this host."""
        self.uplink(EventMessage(event={"t_ns": time.time_ns(), "event": name, "host": self.identity.name, **fields}))

    # -------------------------------------------------------------------------------------------------------- start

    async def _prepare(self, message: StartAttemptMessage) -> Prepared:
        await asyncio.to_thread(self._install_requirements)
        fetched = await self.data.fetch(message)
        prepared = await asyncio.to_thread(
            prepare_host,
            self.job.contract,
            base=self.data.base,
            fetched=fetched,
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
        # Every host would report the same about the channels, so only the first host reports it.
        if message.attempt == 0 and message.placements[0].host == self.identity.name:
            for finding in prepared.findings:
                self.event("finding", **dataclasses.asdict(finding))
        if self.job.contract.shown_at_opt_ml and message.attempt == 0:
            self._show_at_opt_ml(prepared.tree)
        return prepared

    def _show_at_opt_ml(self, tree: Tree) -> None:
        # In the thread of the loop: the directory of the process is entered again, and no other thread may start a program meanwhile.
        refused = (
            show_at_opt_ml(tree) if self.identity.own_mounts else "this machine allows no mounts of its own to a host"
        )
        if refused is not None:
            self.event(
                "notice",
                text=f"/opt/ml is not the tree of {self.identity.name}: {refused}; read SM_CHANNEL_* and SM_MODEL_DIR",
            )

    def _install_requirements(self) -> None:
        wanted = requirements.wanted(self.job.contract, self.job.program)
        if wanted is None:
            return
        self.event("notice", text=f"installing {wanted}")
        requirements.install(
            wanted,
            python=self.identity.python,
            lock_directory=self.scratch.shared,
            run_id=self.identity.run_id,
            environment={**self.identity.environ, "PACELINE_MARK": self.identity.mark},
        )

    def _start(self, specs: Sequence[WorkerSpec], message: StartAttemptMessage) -> None:
        assert self.workers is not None
        self.ports.release()
        if message.agent_store and self._first_rank == 0:
            self._hold_store(message.store_port)
        self._start_companions(specs[0], message)
        try:
            self.workers.start(specs)
        except OSError as error:
            self.event("notice", text=f"error: {specs[0].argv[0]} cannot be executed: {error.strerror}")
            code = 126 if isinstance(error, PermissionError) else 127
            self._send_exit(specs[0].rank, Ending(code, note=str(error)), self._attempt)
            if not self.workers.pids():
                self._say_idle(self._attempt)
            return
        pids = self.workers.pids()
        for rank, pid in pids.items():
            self.event("rank_started", rank=rank, attempt=self._attempt, pid=pid)
        if not self._told_refused:
            self._told_refused = True
            self._tell_refused(self.workers)
        if self.job.fork_server:
            self._tell_how_started(message.attempt)
            if self._fork_server is None and (self.job.resume or message.attempt < self.job.max_restarts):
                self._spawn(self._keep_fork_server(specs[0], message.attempt))
        if self.monitor is None:
            self.monitor = HostMonitor(
                self.identity.name,
                self.directory,
                self.scratch,
                self._lines,
                self.event,
                on_pulses=lambda pulses, calls: self.uplink(HeartbeatMessage(pulses=pulses, calls=calls)),
                tails=self.tails,
                visible_devices=self.identity.environ.get("CUDA_VISIBLE_DEVICES"),
            )
            self.monitor.start()
            is_first = message.placements[0].host == self.identity.name
            self._spawn(self._record_environment(self.monitor, with_code=is_first))
        hosts_by_address = {placement.address: placement.host for placement in message.placements}
        self.monitor.begin_attempt(self._attempt, self.workers, hosts_by_address)
        if self._state is not None and message.resume_step is not None:
            self._spawn(self._tell_resumed(self._state, message.attempt, message.resume_step))
        for part in self._parts:
            part.ranks_started()
        self._spawn(self.data.watch())

    def _hold_store(self, port: int) -> None:
        assert self.torch_directory is not None
        (self.scratch.sockets / NOT_HELD).unlink(missing_ok=True)
        if self._store_holder is None:
            environment = {**self.identity.environ, "PACELINE_MARK": self.identity.mark}
            try:
                self._store_holder = start_store_holder(
                    self.identity.python, self.torch_directory, environment, self._store_failed
                )
            except OSError as error:
                self._store_failed(str(error))
                return
            self.processes.lasting.add(self._store_holder.pid)
        self._store_holder.hold(port)

    def _store_failed(self, reason: str) -> None:
        self.event(
            "notice", text=f"rank 0 serves the store of the ranks; it cannot be held on {self.identity.name}: {reason}"
        )
        with suppress(OSError):
            (self.scratch.sockets / NOT_HELD).touch()

    def _start_companions(self, spec: WorkerSpec, message: StartAttemptMessage) -> None:
        """Start the processes that the parts want beside the ranks."""
        for asked in [part.companion(message.placements) for part in self._parts]:
            if asked is None:
                continue
            log = self.directory.companion_log(self.identity.name, message.attempt, asked.name)
            companion = start_companion(asked, spec.environment, spec.working_directory, log)
            self.processes.began(companion.process.pid)
            if asked.serves_until:
                self._serves_until = f"its {asked.name} serves until {asked.serves_until}"
                self._unneeded.clear()
            self._spawn(self._watch_companion(companion, message.attempt))

    async def _watch_companion(self, companion: RunningCompanion, attempt: int) -> None:
        """If it ends before it is ended, this host has failed: what waits for it may wait for ever."""
        how = await companion.ended()
        is_served = self.workers is not None and (self.workers.pids() or not self._unneeded.is_set())
        if not is_served or attempt != self._attempt or self._abandoned:
            return
        assert self.workers is not None
        self._companion_lost = f"the {companion.asked.name} of {self.identity.name} {how}"
        self.event("notice", text=f"{self._companion_lost}; its output: {companion.log}")
        self._unneeded.set()
        if self.workers.pids():
            self.workers.kill()
        else:
            self._send_exit(self._first_rank, Ending(1, note=self._companion_lost), attempt)

    async def _record_environment(self, monitor: HostMonitor, *, with_code: bool) -> None:
        """Find out what the ranks run with, while they start, and write it. Only a comparison of two runs misses it.

        `with_code`: ask git too. One host does, because hundreds of them share a directory.
        """
        script = Path(self.job.program.target)
        directory = script.parent if script.parent.is_dir() else Path.cwd()
        try:
            if self.gpu_count:
                monitor.gpus = await asyncio.to_thread(gpus_of_ranks, monitor.visible_devices)
            document = await asyncio.to_thread(environment_document, self.identity, directory if with_code else None)
            await asyncio.to_thread(write_json, self.directory.environment_file(self.identity.name), document)
        except Exception as error:
            self.event("notice", text=f"environment.json of {self.identity.name}: {type(error).__name__}: {error}")

    def _tell_refused(self, workers: Workers) -> None:
        """Say which calls this kernel or its sandbox refuses, where the way around them is worse."""
        name = self.identity.name
        if workers.no_pidfd:
            self.event(
                "notice", text=f"{name} has no pidfd ({workers.no_pidfd}): threads wait for the ends of the ranks"
            )
        if not is_subreaper():
            text = "what a rank leaves behind in a session of its own is not found there if it has lost the mark of the job"
            self.event("notice", text=f"{name} does not let an agent adopt processes: {text}")

    def _tell_how_started(self, attempt: int) -> None:
        assert self.workers is not None
        refused = self.workers.not_forked if self._fork_server is not None else self._not_forked
        if attempt and refused:
            self.event("notice", text=f"the ranks of {self.identity.name} are new processes, not forks: {refused}")
        if self.workers.not_forked and not (self._fork_server is not None and self._fork_server.is_loading):
            self._end_fork_server()

    async def _tell_resumed(self, state: KeptState, attempt: int, resume_step: int) -> None:
        """Tell the coordinator when every rank of this host has made a step since the resume."""
        while (stepped_ns := state.first_step_ns(resume_step)) is None:
            await asyncio.sleep(RESUMED_SECONDS)
            if self._attempt != attempt or self._idle.is_set():
                return
        self.uplink(ResumedMessage(attempt=attempt, stepped_ns=stepped_ns))

    async def _keep_fork_server(self, spec: WorkerSpec, attempt: int) -> None:
        """Start the fork server once every rank of this host has made a step."""
        assert self.monitor is not None
        headers: list[RingHeader] = []
        while len(headers) < self.job.ranks_per_host or not all(header.step_count for header in headers):
            await asyncio.sleep(FIRST_STEP_SECONDS)
            if self._attempt != attempt or self._idle.is_set() or self.monitor.rings is None:
                return
            headers = list(self.monitor.rings.headers().values())
        self._not_forked = why_not(headers, spec.argv, self.identity.python, spec.environment)
        if not self._not_forked:
            self._fork_server = start_fork_server(
                self.identity.python,
                spec.environment,
                spec.working_directory,
                keeps_state=self._state is not None,
            )
            self.processes.lasting.add(self._fork_server.pid)
        self.event("fork_server", attempt=attempt, refused=self._not_forked)

    def _end_fork_server(self) -> None:
        if self._fork_server is not None:
            self._fork_server.close()
            self.processes.lasting.discard(self._fork_server.pid)
            self._fork_server = None

    # ---------------------------------------------------------------------------------------------------------- end

    def _rank_processes(self) -> list[int]:
        return self.monitor.rank_pids() if self.monitor is not None else []

    def _worker_ended(self, end: WorkerEnd) -> None:
        assert self.workers is not None
        ranks = self.monitor.ranks_by_pid() if self.monitor is not None else {}
        own_rank = {pid for pid, rank in ranks.items() if rank == end.spec.rank or self.job.ranks_per_host == 1}
        around = ExitContext(
            pump=self.pump.of_attempt(),
            errors=self.scratch.errors_of(self._attempt),
            said=None
            if self.monitor is None
            else last_words(self.monitor.rings, end.pid) or self.monitor.failed.get(end.pid),
            others=frozenset({*self.workers.pids().values(), *ranks} - own_rank),
            below=frozenset() if end.pid in ranks else frozenset(own_rank),
            oom_before=self._oom_before,
            began=self._began_at,
            state_mismatch=self._is_mismatch(end),
            not_put_back=self._is_not_put_back(end),
            told_to_save=end.pid in self._told_to_save,
        )
        self._keeps = self._keeps and self._all_keep()
        report = self._spawn(self._report(end, around, self._attempt, self._unjudged, keeps=self._keeps))
        self._judging[end.spec.rank] = report
        if self._keeps and _was_killed(end, around):
            # Before it is judged who killed it: every other rank has to end too.
            self._send_early(end, self._attempt, resumable=True, out_of_memory=_may_be_memory(around))
        else:
            self._unjudged[end.spec.rank] = end

    def _all_keep(self) -> bool:
        """Whether every rank of this host keeps its state, or may still begin to."""
        if self._state is None:
            return False
        rings = self.monitor.rings if self.monitor is not None else None
        headers = rings.headers() if rings is not None else {}
        return self._state.may_go_on({rank - self._first_rank: header.step_count for rank, header in headers.items()})

    def _send_early(
        self, end: WorkerEnd, attempt: int, *, resumable: bool = False, out_of_memory: bool = False
    ) -> None:
        """Report the end of a rank, before it is known why it ended. `_report` reports it again when it is known."""
        exit = RankExit(
            host=self.identity.name,
            rank=end.spec.rank,
            attempt=attempt,
            code=end.code,
            time_ns=end.time_ns,
            signalled_by_us=end.signalled_by_us,
            state_mismatch=self._is_mismatch(end),
            not_put_back=self._is_not_put_back(end),
        )
        self.uplink(ExitedMessage(exit=exit, early=True, resumable=resumable, out_of_memory=out_of_memory))

    def _is_mismatch(self, end: WorkerEnd) -> bool:
        return end.code == MISMATCH_CODE and self._state is not None and self._state.stopped(end.spec.local_rank)

    def _is_not_put_back(self, end: WorkerEnd) -> bool:
        return end.code != 0 and self._state is not None and self._state.not_put_back(end.spec.local_rank)

    async def _report(
        self, end: WorkerEnd, around: ExitContext, attempt: int, unjudged: dict[int, WorkerEnd], *, keeps: bool
    ) -> None:
        try:
            ending = await why_ended(end, around)
        except Exception as failure:
            # Other programs wrote the files and the kernel log from which the reason is read. The exit counts without a reason.
            note = f"why was not judged: {type(failure).__name__}: {failure}"
            ending = Ending(end.code, note=note, signalled_by_us=end.signalled_by_us)
        if self._companion_lost and attempt == self._attempt:
            ending = Ending(1, note=self._companion_lost)
        elif ending.code == 0 and not self._unneeded.is_set():
            self.event("notice", text=f"rank {end.spec.rank} on {self.identity.name} has ended; {self._serves_until}")
        if ending.note == HIDDEN and ending.error is not None:
            self.event(
                "notice", text=f"rank {end.spec.rank} on {self.identity.name} raised {ending.error.type}; {HIDDEN}"
            )
        unjudged.pop(end.spec.rank, None)
        self._send_exit(end.spec.rank, ending, attempt, end=end, around=around, keeps=keeps)

    def _send_exit(
        self,
        rank: int,
        ending: Ending,
        attempt: int,
        *,
        end: WorkerEnd | None = None,
        around: ExitContext | None = None,
        keeps: bool = False,
    ) -> None:
        exit = RankExit(
            host=self.identity.name,
            rank=rank,
            attempt=attempt,
            code=ending.code,
            time_ns=ending.done_ns or (end.time_ns if end else time.time_ns()),
            error=ending.error,
            note=ending.note,
            signalled_by_us=ending.signalled_by_us,
            tail=ending.tail,
            state_mismatch=around is not None and around.state_mismatch,
            not_put_back=around is not None and around.not_put_back,
        )
        self.event("rank_exited", **{name: value for name, value in dataclasses.asdict(exit).items() if name != "host"})
        # The kill of a rank was reported early.
        resumable = keeps and exit.code > 0 and not exit.signalled_by_us and lost_a_loader_worker(exit)
        out_of_memory = resumable and around is not None and _may_be_memory(around)
        self.uplink(ExitedMessage(exit=exit, resumable=resumable, out_of_memory=out_of_memory))

    def _workers_idle(self) -> None:
        self._spawn(self._leave(self._attempt) if self._at_once else self._become_idle(self._attempt))

    async def _leave(self, attempt: int) -> None:
        """Report that no rank is left, although what the ranks left is still to be read: the next attempt begins meanwhile."""
        judging, self._judging = self._judging, {}
        unjudged, self._unjudged = self._unjudged, {}
        watched = self.monitor.detach() if self.monitor is not None else None
        output = self.pump.of_attempt()
        try:
            await self.processes.kill(LEFTOVER_GRACE_SECONDS)
        except OSError as error:
            self._say_not_cleared(attempt, error)
        # Who has ended by itself may be the first one, or may only have lost its peer: its exception says which.
        by_itself = [rank for rank, end in unjudged.items() if end.code > 0 and not end.signalled_by_us]
        await asyncio.gather(*(judging[rank] for rank in by_itself))
        for end in unjudged.values():
            self._send_early(end, attempt)
        late = self._spawn(self._clear_up_late(attempt, list(judging.values()), watched, output))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        self._say_idle(attempt, 0 if watched is None else watched.step_count())

    async def _clear_up_late(
        self, attempt: int, reports: list[asyncio.Task[None]], watched: Watched | None, output: AttemptOutput
    ) -> None:
        try:
            await asyncio.gather(*reports)
            await asyncio.to_thread(output.drain, 2.0)
            self._say_unwatched(attempt)
            if self.monitor is not None and watched is not None:
                await self.monitor.end_detached(watched)
        except Exception as error:
            self._say_not_cleared(attempt, error)

    async def _become_idle(self, attempt: int) -> None:
        await asyncio.gather(*self._judging.values())
        await self._unneeded.wait()
        self._judging = {}
        try:
            await self._clear_up(attempt)
        except Exception as error:
            # The cleanup does not decide how the attempt ended, and the other hosts wait for this host.
            self._say_not_cleared(attempt, error)
        self._unjudged = {}
        self._say_idle(attempt)

    def _say_not_cleared(self, attempt: int, error: Exception) -> None:
        text = f"{self.identity.name} could not clear up after attempt {attempt}: {type(error).__name__}: {error}"
        self.event("notice", text=text)

    async def _clear_up(self, attempt: int) -> None:
        self.processes.reap_orphans()
        if await asyncio.to_thread(self.processes.here):
            await asyncio.to_thread(self.processes.end, LEFTOVER_GRACE_SECONDS)
        await asyncio.to_thread(self.pump.drain, 2.0)
        self._say_unwatched(attempt)
        if self.monitor is not None:
            await self.monitor.end_attempt()

    def _say_unwatched(self, attempt: int) -> None:
        for left in self.scratch.errors_of(attempt).glob("*.unwatched"):
            self.event(
                "process_unwatched",
                attempt=attempt,
                pid=int(left.stem) if left.stem.isdecimal() else 0,
                reason=_said_in(left),
            )
            left.unlink(missing_ok=True)

    def _say_idle(self, attempt: int, made_count: int = 0) -> None:
        """Report that no rank is left. `made_count`: the steps that a rank has made, where what the ranks left is read later."""
        self._idle.set()
        state = self._state
        kept = None if state is None or not self._keeps else state.kept(self._first_rank)
        if state is not None and kept is not None:
            for rank, step in state.damaged(self._first_rank):
                self.event(
                    "notice", text=f"the state that rank {rank} has kept of step {step} is damaged and not used (F04)"
                )
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

    def _lines(self, kind: Literal["telemetry", "logs"], lines: list[dict[str, Any]]) -> None:
        self.uplink(LinesMessage(kind=kind, lines=lines))


def _said_in(file: Path) -> str:
    try:
        return read_plain(file, LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _was_killed(end: WorkerEnd, around: ExitContext) -> bool:
    """Whether a signal that did not come from this agent ended the rank in its work.

    A rank that is killed from outside as its interpreter shuts down may not have written all its data. One that crashes there will again.
    """
    by_another = end.code < 0 and not end.signalled_by_us and not end.overdue
    return by_another and (around.said is None or end.code == -signal.SIGKILL)


def _may_be_memory(around: ExitContext) -> bool:
    return around.oom_before is not None and killed_for_memory(around.oom_before, oom_counters(control_group("memory")))
