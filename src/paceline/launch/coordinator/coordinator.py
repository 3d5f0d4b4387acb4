"""The coordinator, which is the first host's agent: it admits hosts, drives the job's state machine, and records the run's events."""

import asyncio
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from paceline import __version__
from paceline.diagnosis.case import Case, Confirmation, StepTiming
from paceline.facts import Job, Placement, Run, SecondaryStatus, Status
from paceline.launch.agent.agent import HostAgent
from paceline.launch.coordinator.artifacts import ArtifactCollector
from paceline.launch.coordinator.hang_monitor import HangMonitor
from paceline.launch.coordinator.late_exits import LateExits
from paceline.launch.coordinator.limits import GREETING_SECONDS, ConnectionLimit, RateLimit
from paceline.launch.coordinator.pace_inputs import PaceInputs
from paceline.launch.coordinator.pace_monitor import PaceMonitor
from paceline.launch.coordinator.restart_costs import RestartMonitor
from paceline.launch.coordinator.resume_costs import ResumeMonitor
from paceline.launch.disk import DiskThread
from paceline.launch.job import state as job_state
from paceline.launch.job.accepted_messages import SendingHost, objection
from paceline.launch.job.admission import missing_hosts, unique_name, why_refused
from paceline.launch.job.framed_connection import (
    ENDED,
    MAX_FRAME_BYTES,
    SILENT,
    Connection,
    TokenMismatch,
    WireError,
    greet,
)
from paceline.launch.job.messages import (
    HOST_EVENTS,
    ClaimMessage,
    EventMessage,
    ExitedMessage,
    FinishMessage,
    GatheredMessage,
    HeartbeatMessage,
    Hello,
    IdleMessage,
    KillMessage,
    LinesMessage,
    Message,
    Pong,
    ReadyMessage,
    RefusedMessage,
    ResumedMessage,
    SnapshotReply,
    SnapshotRequest,
    StartAttemptMessage,
    StartWorkersMessage,
    StopMessage,
    StopRequest,
    TraceReply,
    TraceRequest,
    Welcome,
)
from paceline.launch.job.outcome import Outcome, Stop, StopKind
from paceline.launch.ports import free_store_port
from paceline.recording.fact_json import to_plain
from paceline.recording.lateness import LatenessFile, LatenessFrame
from paceline.recording.layout import RunDirectory
from paceline.recording.peer_steps import short_progress
from paceline.recording.step_rollups import INTERVALS_SECONDS, ROLLUP, rollup_file
from paceline.recording.writer import EventLog, JsonLines, append_whole_records, write_json

TICK_SECONDS = 0.2
FAREWELL_SECONDS = 3.0

MOST_OF_RANKS = 100

PROGRESS_EVERY_LINES = 10
MOST_ATTEMPTS = 100_000
# What they take for each rank while they wait for the disk.
LATENESS_BYTES, TIMING_BYTES = 256, 4096


class PeerFiles:
    """One file for each host and kind ("telemetry", "logs"), and the sums of its steps. A file is opened when its first line arrives."""

    def __init__(self, directory: RunDirectory, first_host: str) -> None:
        self._directory = directory
        self._first_host = first_host
        self._lines: Counter[str] = Counter()
        self._files: dict[tuple[str, str], JsonLines] = {}

    def append(self, host: str, kind: str, lines: Sequence[dict[str, Any]]) -> None:
        """Write these lines. The call may wait for the disk."""
        if (host, kind) not in self._files:
            self._files[host, kind] = JsonLines(self._directory.peer_file(self._first_host, host, kind))
        for line in lines:
            self._files[host, kind].append(self._thinned(host, line))
            self._append_sums(host, line.get("sums"))

    def _append_sums(self, host: str, sums: Any) -> None:
        """Write sums of steps beside the host's lines; what is none is passed over."""
        attempt = sums.get("attempt") if isinstance(sums, dict) else None
        if not isinstance(attempt, int) or not 0 <= attempt <= MOST_ATTEMPTS:
            return
        for seconds in INTERVALS_SECONDS:
            # A record in base64 that is damaged, or half of one, would damage all that follow.
            with suppress(OSError, ValueError, TypeError):
                records = b64decode(sums.get(str(seconds), ""), validate=True)
                if records and len(records) % ROLLUP.size == 0:
                    place = self._directory.peer_attempt(self._first_host, host, attempt)
                    append_whole_records(rollup_file(place, seconds), records, ROLLUP.size)

    def _thinned(self, host: str, line: dict[str, Any]) -> dict[str, Any]:
        """The line as it is written here. All totals of many ranks every second would be most of the recording, so most lines have few."""
        self._lines[host] += 1
        whole = line.get("final", True) or self._lines[host] % PROGRESS_EVERY_LINES == 0
        left_out = {"final", "sums"} if whole else {"final", "sums", "progress"}
        kept = {name: value for name, value in line.items() if name not in left_out}
        return kept if whole or not line.get("progress") else {**kept, "steps": short_progress(line["progress"])}


class Notices:
    """Decides which notices of ranks are recorded. Notices of agents, which name no rank, are always recorded."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def are_new(self, event: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether an event of a host is recorded. If several ranks send the same notice in an attempt, only the first one is recorded.

        Holds:   notices that differ between ranks are recorded for each rank; one run records at most MOST_OF_RANKS
        """
        if event != "notice" or "rank" not in fields:
            return True
        key = (str(fields.get("attempt")), str(fields.get("text")))
        if key in self._told or len(self._told) >= MOST_OF_RANKS:
            return False
        self._told.add(key)
        return True


@dataclass(slots=True)
class Coordinator:
    """The first host's agent. A run has one coordinator."""

    job: Job
    """The job as the first host's command line describes it."""
    run_facts: Run
    """Identity of the run, as in run.json."""
    directory: RunDirectory
    """The run's recording on this host."""
    local: HostAgent
    """The first host's ranks."""
    token: bytes | None
    """The secret with which hosts prove that they belong to the job; None: hosts are admitted without a secret."""
    report: Callable[[dict[str, Any]], None]
    """Called with every event when it is recorded, for the terminal."""
    events: EventLog
    """The file in which events are recorded."""
    state: job_state.JobState
    """The state of the job for `step` of `launch/job/state.py`."""
    token_source: str = ""
    """Where the token comes from, for people."""
    token_file: Path | None = None
    """The user's own token file, of which other hosts need a copy; None: the token was given, or there is none."""
    hang_monitor: HangMonitor = field(init=False)
    """Watches for hangs and finds their causes."""
    pace_monitor: PaceMonitor = field(init=False)
    """Watches the step times of the job."""
    restarts: RestartMonitor = field(init=False)
    """Watches what restarts cost."""
    resumes: ResumeMonitor = field(init=False)
    """Follows resumes until every rank has made a step again."""
    late_exits: LateExits = field(default_factory=LateExits)
    """How ranks ended, as their agents have judged it."""
    data: ArtifactCollector = field(init=False)
    """The coordinator's part of the job's data."""
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Host -> rank -> the rank's progress, from the host's newest telemetry."""
    peers: dict[str, Connection] = field(default_factory=dict)
    """Host -> connection, for the other hosts that are connected now."""
    warned_open: bool = False
    """The event open_port was recorded: a host has joined without a token."""
    told_token: bool = False
    """The event token_needed was recorded: the other hosts need a copy of `token_file`."""
    # Set when this host is a member. It must be the first member and have rank 0, even if other hosts connect faster.
    _begun: asyncio.Event = field(default_factory=asyncio.Event)
    _finished: asyncio.Future[Outcome] | None = None
    _outcome: Outcome | None = None
    _started: StartAttemptMessage | None = None
    _resume: job_state.Resume | None = None
    _disk: DiskThread = field(default_factory=DiskThread)
    _not_kept: set[str] = field(default_factory=set)
    # Hosts that have left the job and were told so; their connections end soon.
    _dismissed: set[str] = field(default_factory=set)
    _peer_files: PeerFiles = field(init=False)
    _lateness: LatenessFile = field(init=False)
    _notices: Notices = field(default_factory=Notices)
    _newcomers: ConnectionLimit = field(default_factory=ConnectionLimit)
    # The hosts of the newest attempt that have been connected since it started. A new host with a lost host's name is not one of them.
    _placed: dict[str, Placement] = field(default_factory=dict)
    _objected: set[tuple[str, str]] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._peer_files = PeerFiles(self.directory, self.local.identity.name)
        self.hang_monitor = HangMonitor(run=self.run_facts, ask=self._send, record=self.record, hung=self._hung)
        self._lateness = LatenessFile(self.directory.lateness_file)
        self.pace_monitor = PaceMonitor(
            self.job,
            self.hang_monitor,
            self.record,
            inputs=PaceInputs(self.directory.path),
            keep_timing=self._keep_timing,
            keep_lateness=self._keep_lateness,
        )
        self.restarts = RestartMonitor(self.directory.path, self.run_facts.started_ns, self.record)
        if self.state.resume is not None:
            self.restarts.goes_on(self.state.resume.step)
        self.resumes = ResumeMonitor(self.record, self.hang_monitor.offset_ns)
        self.data = ArtifactCollector(
            self.job, self.run_facts.id, self.local, self.peers, lambda: self._placed.keys(), self.record
        )

    async def run(self, server: asyncio.Server | None = None) -> Outcome:
        """Drive the job to its end. `server` listens on the agents' port already and passes connections to `accept`."""
        loop = asyncio.get_running_loop()
        self._finished = loop.create_future()
        name = self.local.identity.name
        self._spawn(self.hang_monitor.watch())
        self._spawn(self.pace_monitor.watch())
        self._status(Status.IN_PROGRESS, SecondaryStatus.PENDING)
        member = job_state.Member(
            host=name,
            address=self.job.master_addr,
            ranks=self.job.ranks_per_host,
            node_rank=self.job.node_rank,
            ports=self.local.ports.numbers,
        )
        self.feed(job_state.HostJoined(loop.time(), member))
        self._begun.set()
        self._spawn(self._tick())
        try:
            outcome = await self._finished
        finally:
            if server is not None:
                server.close()
        return await self._close(outcome)

    def feed(self, event: job_state.Event) -> None:
        """Pass one event to the state machine and carry out its actions.

        If an action fails, the error ends the run with its reason, because no caller would report it.
        """
        try:
            self.state, actions = job_state.step(self.state, event)
            for action in actions:
                self._act(action)
        except Exception as error:
            self._fail(error)

    def ask_stop(self, stop: Stop, *, now: bool = False) -> None:
        """Request the end of the job, after a signal, `paceline stop`, or a peer's request."""
        if self.state.phase is job_state.JobPhase.ENDED:
            self.data.asked_to_end(stop.reason, now=now)
            return
        if self.state.stop is None or now:
            self.record("stop_asked", reason=stop.reason, signal=stop.signal, now=now)
            self._status(Status.STOPPING, SecondaryStatus.STOPPING)
        self.feed(job_state.StopRequested(_now(), stop, now))

    def record(self, event: str, /, **fields: Any) -> None:
        """Write one event to events.jsonl and report it for the terminal. Facts among the fields are encoded in the file alone."""
        record = {"t_ns": fields.pop("t_ns", None) or time.time_ns(), "event": event, **fields}
        self._disk.write(self.events.append, record)
        self.hang_monitor.noted(record)
        self.report(record)

    def _keep_lateness(self, frame: LatenessFrame) -> None:
        """Write how late the ranks were. If the disk does not answer, only so much waits for it."""
        if not self._disk.offer(LATENESS_BYTES * len(frame.late), self._lateness.append, frame):
            self._lateness.lost += 1

    def _keep_timing(self, timing: StepTiming) -> None:
        """Write the newest step timing over the one before. If the disk refuses or does not answer, the one before stays."""

        def write() -> None:
            with suppress(OSError):
                write_json(self.directory.step_timing_file(timing.attempt), timing, indent=None)

        self._disk.offer(TIMING_BYTES * len(timing.ranks), write)

    def flush(self) -> None:
        """Wait until all recorded events are in their file."""
        self._disk.close()

    @contextmanager
    def _without_harm(self) -> Iterator[None]:
        """An error in what only watches the job is recorded, and never ends the job."""
        try:
            yield
        except Exception as error:
            self.hang_monitor.say_failed(error)

    def _hung(self, confirmation: Confirmation) -> None:
        """Handle a confirmed hang as --on-hang says: only report it, or end the attempt."""
        if self.job.on_hang != "report":
            text = f"stopped on a confirmed hang: {confirmation.reason}"
            resume = self.job.on_hang == "resume"
            restart = resume or self.job.on_hang == "restart"
            self.feed(job_state.Hung(_now(), text, restart=restart, resume=resume, ranks=confirmation.ranks))

    # ------------------------------------------------------------------------------------------------------- actions

    def _act(self, action: job_state.Action) -> None:
        match action:
            case StartAttemptMessage():
                self._start_attempt(action)
            case StartWorkersMessage():
                self._start_ranks(action)
            case StopMessage():
                self.hang_monitor.ending = True
                self.record("stopping", **to_plain(action))
                self._broadcast(action)
                self.local.stop(action)
            case KillMessage():
                self.hang_monitor.ending = True
                if action.at_once:
                    self.record("stopping", signal="SIGKILL", grace_seconds=0.0, reason=action.reason)
                self._broadcast(action)
                self.local.kill(at_once=action.at_once)
            case job_state.ReportWaiting():
                missing = missing_hosts(self.job, self.state.members, self.job.master_addr)
                self.record("waiting", waited_seconds=round(action.waited_seconds), missing=missing)
                if self.token_file is not None and not self.told_token:
                    self.told_token = True
                    self.record("token_needed", file=str(self.token_file), address=self.job.master_addr)
            case job_state.ReportRestart():
                self._report_restart(action)
            case job_state.Dismiss():
                if (link := self.peers.get(action.host)) is not None:
                    self._dismissed.add(action.host)
                    link.send(FinishMessage(outcome=action.outcome))
            case FinishMessage():
                assert self._finished is not None
                if not self._finished.done():
                    self._finished.set_result(action.outcome)

    def _report_restart(self, action: job_state.ReportRestart) -> None:
        case, resume = self.hang_monitor.last_case(), action.resume
        self._resume = resume
        self._spawn(self._conclude(case, frozenset(self.hang_monitor.exits), resumed=resume is not None))
        with self._without_harm():
            resume_step = None if resume is None else resume.step
            self.restarts.ended(self.progress, action.attempt - 1, resume_step, action.made_count)
        self.record("attempt_ended", attempt=action.attempt - 1, reason=action.reason)
        self._status(Status.IN_PROGRESS, SecondaryStatus.RESTARTING)
        self.record(
            "restart",
            attempt=action.attempt,
            restarts_left=action.restarts_left,
            reason=action.reason,
            resume_step=None if resume is None else resume.step,
        )

    async def _conclude(self, case: Case | None, ranks: frozenset[int], *, resumed: bool) -> None:
        """Judge an attempt that has ended. Where its ranks were killed at once, their agents judge why while the next one runs."""
        if case is not None:
            with self._without_harm():
                case = await self.late_exits.with_exits(case, ranks)
            self.late_exits.forget(case.attempt)
        await self.hang_monitor.conclude(case, resumed=resumed)

    def _start_attempt(self, start: StartAttemptMessage) -> None:
        if not start.store_port:
            start = msgspec.structs.replace(start, store_port=free_store_port())
        self.record("attempt_started", world_size=start.world_size, **to_plain(start))
        self._status(Status.IN_PROGRESS, SecondaryStatus.DOWNLOADING if start.together else SecondaryStatus.TRAINING)
        self._placed = {placement.host: placement for placement in start.placements}
        for placement in start.placements:
            if placement.host in self.peers:
                self.peers[placement.host].send(start)
        self._started = start
        self.resumes.began(start, self._resume if start.resume_step is not None else None)
        if not start.together:
            self._watch_ranks()
        self.local.start_attempt(start)

    def _start_ranks(self, message: StartWorkersMessage) -> None:
        self._status(Status.IN_PROGRESS, SecondaryStatus.TRAINING)
        self._broadcast(message)
        self._watch_ranks()
        self.local.start_ranks(message.attempt)

    def _watch_ranks(self) -> None:
        assert self._started is not None
        self.hang_monitor.attempt_started(self._started)
        self.pace_monitor.attempt_started()

    def _send(self, host: str, message: SnapshotRequest | TraceRequest) -> None:
        """Send a request to one host, which may be this host. A host that has left does not answer."""
        if host in self.peers:
            self.peers[host].send(message)
        elif host == self.local.identity.name:
            self.local.inquire(message)

    def _broadcast(self, message: Message) -> None:
        for link in self.peers.values():
            link.send(message)

    def _status(self, status: Status, secondary: SecondaryStatus) -> None:
        self.record("status", status=str(status), secondary_status=str(secondary))

    # ------------------------------------------------------------------------------------------------- what hosts say

    def from_peer(self, host: str, message: Message) -> None:
        """Handle one message of another host if it is accepted, else ignore it.

        Raises:  WireError: no agent of this version sends such a message
        """
        sender = SendingHost(
            phase=self.state.phase,
            attempt=self.state.attempt,
            proven=self.peers[host].authenticated,
            placement=self._placed.get(host),
            gathering=self.data.asked_for,
            has_gathered=host in self.data.gathered,
        )
        found = objection(message, sender)
        if found is None:
            self.from_host(host, message)
        elif found.breach:
            raise WireError(f"{host}: {found.text}")
        elif found.told and (host, found.text) not in self._objected:
            self._objected.add((host, found.text))
            self.record("notice", host=host, text=f"not taken from {host}: {found.text}")

    def from_host(self, host: str, message: Message) -> None:
        """Handle an accepted message of a host, which may be this host."""
        match message:
            case ExitedMessage():
                exit = replace(message.exit, host=host)
                if not message.early:
                    self.late_exits.take(exit)
                    self.record("rank_exited", **asdict(exit))
                self.hang_monitor.exited(exit)
                self.feed(job_state.HostSaid(_now(), host, msgspec.structs.replace(message, exit=exit)))
            case IdleMessage() | ReadyMessage():
                self.feed(job_state.HostSaid(_now(), host, message))
            case ResumedMessage():
                self.resumes.take(host, message)
            case ClaimMessage():
                self.data.claim(host, message)
            case GatheredMessage():
                self.data.take(host, message)
            case EventMessage():
                self._take_event(host, dict(message.event))
            case LinesMessage():
                self._take_lines(host, message)
            case HeartbeatMessage() | SnapshotReply() | TraceReply() | Pong():
                self.hang_monitor.take(host, message)
            case RefusedMessage():
                self.record(
                    "refused", host=host, code=message.code, what=message.what, saw=message.saw, next=message.next
                )
                stop = Stop(StopKind.REFUSED, "SIGTERM", f"error[{message.code}]: {message.what}")
                self.feed(job_state.StopRequested(_now(), stop))
            case StopRequest():
                self._take_stop_request(host, message)
            case _:
                pass

    def _take_event(self, host: str, event: dict[str, Any]) -> None:
        name, t_ns = event.pop("event", None), event.pop("t_ns", None)
        if name in HOST_EVENTS and self._notices.are_new(name, event):
            self.record(name, **{**event, "host": host, "t_ns": t_ns if isinstance(t_ns, int) else None})

    def _take_lines(self, host: str, message: LinesMessage) -> None:
        if message.kind == "telemetry" and message.lines:
            progress = message.lines[-1].get("progress")
            self.progress[host] = self._of_newest(progress) if isinstance(progress, dict) else {}
            with self._without_harm():
                self.hang_monitor.telemetry(host, message.lines)
                self.pace_monitor.telemetry(host, message.lines)
                if self._started is not None:
                    self.restarts.look(host, self.progress, self._started.attempt, self._started.world_size)
        if host == self.local.identity.name:
            return
        size_bytes = self.peers[host].received_bytes
        kept = self._disk.offer(size_bytes, self._peer_files.append, host, message.kind, message.lines)
        if not kept and host not in self._not_kept:
            self._not_kept.add(host)
            text = f"lines of {host} are not kept here: this host's disk is too slow; the complete files are on {host}"
            self.record("notice", host=host, text=text)

    def _of_newest(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Without ranks of the attempt before: what they left may come when the next attempt has begun."""
        newest = 0 if self._started is None else self._started.attempt
        return {
            rank: one
            for rank, one in progress.items()
            if not (isinstance(one, dict) and isinstance(one.get("attempt"), int) and one["attempt"] < newest)
        }

    def _take_stop_request(self, host: str, message: StopRequest) -> None:
        stop = Stop(StopKind.SIGNAL, message.signal, f"{message.reason} on {host}")
        if self.job.min_hosts == self.job.max_hosts or self.state.phase is job_state.JobPhase.ENDED:
            self.ask_stop(stop, now=message.now)
        else:
            self.record("host_leaves", host=host, reason=message.reason, now=message.now)
            self.feed(job_state.HostLeaves(_now(), host, stop, message.now))

    # --------------------------------------------------------------------------------------------------------- peers

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to the agents' port, from its greeting to its end."""
        name, reason = "", ENDED
        address = writer.get_extra_info("peername")[0]
        newcomer = self._newcomers.enter(address, writer.close)
        try:
            await self._begun.wait()
            async with asyncio.timeout(GREETING_SECONDS):
                link = await greet(reader, writer, self.token, server=True)
                hello = await link.receive()
            name = self._welcome(link, hello, address)
            self._newcomers.leave(newcomer)
            rate_limit = RateLimit(_now())
            while name:
                message = await link.hear()
                self.from_peer(name, message)
                if seconds := rate_limit.wait_seconds(link.received_bytes, _now()):
                    await asyncio.sleep(seconds)
        except TimeoutError as error:
            reason = str(error) or SILENT
        except WireError as error:
            reason = str(error)
            if name or self._newcomers.is_worth_telling():
                here = f"; here it is {self.token_source}" if isinstance(error, TokenMismatch) else ""
                self.record("notice", text=f"a connection from {address} was refused: {error}{here}")
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            # The message is well-formed, but no agent of this version sends it. Only that host is lost.
            reason = f"its agent sent what this one cannot take ({type(error).__name__}: {error})"
        finally:
            self._newcomers.leave(newcomer)
            writer.close()
            if name:
                self._lose(name, link, reason)

    def _welcome(self, link: Connection, hello: Message, peer_address: str) -> str:
        if not isinstance(hello, Hello):
            raise WireError(f"expected a hello, got {type(hello).__name__}")
        if refused := why_refused(self.job, self.state.members, self.job.master_addr, hello):
            link.send(refused)
            self.record("notice", text=f"host {hello.host_name} was refused: {refused.what}; {refused.saw}")
            return ""
        if hello.paceline_version != __version__:
            other = f"{hello.host_name} runs paceline {hello.paceline_version}, this host {__version__}"
            self.record("notice", text=other)
        taken = {self.local.identity.name, *self.peers}
        name = unique_name(hello.wanted_name or hello.host_name, peer_address, taken)
        self.peers[name] = link
        link.most_bytes = MAX_FRAME_BYTES
        if not link.authenticated and not self.warned_open:
            self.warned_open = True
            self.record(
                "open_port",
                text="hosts join without a token: whoever reaches the port can run code in the ranks; "
                "set PACELINE_TOKEN or --set token_file on every host",
            )
        link.send(Welcome(run_id=self.run_facts.id, name=name, job_name=self.job.name))
        address = hello.address or peer_address
        self.record("host_joined", host=name, address=address, ranks=hello.ranks)
        self._spawn(link.beat())
        self._spawn(link.ask_time())
        member = job_state.Member(
            host=name, address=address, ranks=hello.ranks, node_rank=hello.node_rank, ports=hello.ports
        )
        self.feed(job_state.HostJoined(_now(), member))
        return name

    def _lose(self, name: str, link: Connection, reason: str) -> None:
        if self.peers.get(name) is not link:
            return
        del self.peers[name]
        self._placed.pop(name, None)
        self.progress.pop(name, None)
        if self._outcome is None:
            if name not in self._dismissed:
                self.record("host_lost", host=name, reason=reason)
            self._dismissed.discard(name)
            self.feed(job_state.HostLeft(_now(), name, reason))

    # ------------------------------------------------------------------------------------------------------ the clock

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            stopping = self.state.stop is not None
            self.feed(job_state.Tick(_now()))
            if self.state.stop is not None and not stopping:
                self.record("stop_asked", reason=self.state.stop.reason, signal=self.state.stop.signal, now=False)
                self._status(Status.STOPPING, SecondaryStatus.STOPPING)

    def _spawn(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(error)

    async def _close(self, outcome: Outcome) -> Outcome:
        # A job that never started a rank has no files to send.
        if self.state.started_at is not None:
            outcome = await self.data.end(outcome)
        self._outcome = outcome
        self._broadcast(FinishMessage(outcome=outcome.for_other_hosts()))
        await self.local.finish(outcome.exit_code, outcome.failure_text())
        await self._wait_for_farewells()
        outcome = replace(outcome, exits=self.late_exits.as_judged(outcome.exits))
        await self.hang_monitor.conclude(self.hang_monitor.last_case())
        if self._lateness.lost:
            text = f"how late the ranks were could not be written {self._lateness.lost} times (disk full?)"
            self.record("notice", text=text)
        if outcome.finding is not None:
            self.record("finding", host=self.local.identity.name, **asdict(outcome.finding))
        with self._without_harm():
            self.restarts.ended(self.progress, self.state.attempt)
        self.record("attempt_ended", attempt=self.state.attempt, reason=outcome.reason)
        self._status(outcome.status, outcome.secondary_status)
        for task in list(self._tasks):
            task.cancel()
        return outcome

    async def _wait_for_farewells(self) -> None:
        """Wait until the hosts have closed their connections after their last telemetry, but not for long."""
        deadline = _now() + FAREWELL_SECONDS
        while self.peers and _now() < deadline:
            await asyncio.sleep(0.02)


def _now() -> float:
    return asyncio.get_running_loop().time()
