"""Samples this host's machine and ranks once a second, for the recording and for the coordinator."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.crash.rendezvous import address_in, brought
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.launch.agent.exit_deadline import FAILED_IDLE_SECONDS, ExitDeadline
from paceline.launch.agent.exit_reason import reported_error
from paceline.launch.agent.heartbeats import HeartbeatSampler
from paceline.launch.agent.output import LogTails
from paceline.launch.agent.ring_collector import Leaving, RingCollector
from paceline.launch.agent.scratch import Scratch
from paceline.launch.agent.workers import Workers
from paceline.launch.inspect.snapshot import look_at
from paceline.launch.job.messages import SnapshotReply, SnapshotRequest, TraceReply, TraceRequest
from paceline.probes.rendezvous import rendezvous_seen
from paceline.probes.sigterm_notice import takes_as_notice
from paceline.probes.telemetry import Sampler
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import RankPhase, RingHeader
from paceline.recording.telemetry_rollup import TelemetryRollup
from paceline.recording.writer import JsonLines

INTERVAL_SECONDS = 1.0
RENDEZVOUS_SECONDS = 0.5
NO_COLLECTIVES = "torch's shows none of the job's collectives; stacks, CPU time and the calls from Python tell which one a rank is in"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is sampled of one attempt."""

    rings: RingCollector
    """The rings of its ranks."""
    heartbeats: HeartbeatSampler
    """The heartbeats of its ranks."""
    workers: Workers
    """Its worker processes."""

    def step_count(self) -> int:
        """The greatest number of steps that one of its ranks has made by now."""
        self.rings.look()
        return max((header.step_count for header in self.rings.headers().values()), default=0)


@dataclass(slots=True)
class HostMonitor:
    """Samples one host and its ranks as long as the job lasts."""

    host: str
    """Name of this host."""
    directory: RunDirectory
    """This host's recording."""
    scratch: Scratch
    """This agent's directories outside the recording."""
    on_lines: Callable[[Literal["telemetry", "logs"], list[dict[str, Any]]], None]
    """Sends telemetry samples, and the ranks' output if there is any, to the coordinator."""
    on_event: Callable[..., None]
    """Records one event. A sensor that cannot be read gives one event."""
    on_heartbeats: Callable[[list[Heartbeat], list[RankCalls]], None] = lambda heartbeats, calls: None
    """Sends each rank's heartbeat and calls to the coordinator, twice in each interval."""
    tails: LogTails | None = None
    """Output of ranks that goes to the first host; None: this is the first host."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES of the ranks; None: it is not set."""
    gpus: Sequence[tuple[str, int | None]] = ()
    """Id and driver's number of the GPUs that the ranks see, in their order; (): none, or not known yet."""
    sampler: Sampler = field(default_factory=Sampler)
    """Reads the sensors of this host."""
    current: Watched | None = None
    """The current attempt; None: no attempt has begun."""
    hosts_by_address: Mapping[str, str] = field(default_factory=dict)
    """Address -> name of each host of the current attempt."""
    interval_seconds: float = INTERVAL_SECONDS
    """Time between two samples."""
    failed: dict[int, Leaving] = field(default_factory=dict)
    """pid -> when a process of TensorFlow or JAX has failed with an exception. It may then wait for the others for minutes."""
    _task: asyncio.Task[None] | None = None
    _telemetry: JsonLines | None = None
    _minutes: TelemetryRollup | None = None
    _said_missing: set[str] = field(default_factory=set)
    # Of the attempts that have ended: see RingCollector.unwritten.
    _unwritten: list[int] = field(default_factory=lambda: [0, 0])
    # One sample at a time: a thread uses sensors, rings and the telemetry file, and the event loop closes them.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_running(self) -> bool:
        """Whether samples are taken: ranks have been started."""
        return self._task is not None

    def start(self) -> None:
        self._telemetry = JsonLines(self.directory.telemetry_file(self.host))
        self._minutes = TelemetryRollup(self.directory.telemetry_roll_file(self.host))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def begin_attempt(self, attempt: int, workers: Workers, hosts_by_address: Mapping[str, str] | None = None) -> None:
        self.hosts_by_address = hosts_by_address or {}
        self.failed = {}
        rings = RingCollector(self.scratch.rings, self.directory, self.host, attempt)
        self._sums_to_send(rings)
        if self.current is not None:
            self.current.heartbeats.close()
        self.current = Watched(rings, HeartbeatSampler(self.host, attempt, self.scratch.sockets), workers)

    async def end_attempt(self) -> None:
        """Read the last records of the rings, which outlive their processes."""
        if self.current is not None:
            await self.end_detached(self.current)

    def detach(self) -> Watched | None:
        """Let another attempt begin before `end_detached` reads what the ranks of this one left. None: no attempt has begun."""
        found, self.current = self.current, None
        return found

    async def end_detached(self, watched: Watched) -> None:
        """Read the last records of the rings of an attempt."""
        async with self._turn:
            await self._sample(watched, final=True)
            self._unwritten = [a + b for a, b in zip(self._unwritten, watched.rings.unwritten(), strict=True)]
            watched.rings.close()
            if watched is not self.current:
                watched.heartbeats.close()

    def rank_pids(self) -> list[int]:
        """The pids of processes that joined a process group or count steps, according to their rings."""
        rings = self._rings_now()
        return rings.pids() if rings is not None else []

    def ranks_by_pid(self) -> dict[int, int]:
        """pid -> rank of every process that was one in this attempt, also of those that have ended, according to their rings."""
        rings = self._rings_now()
        return rings.ranks_by_pid() if rings is not None else {}

    def headers(self) -> Mapping[int, RingHeader]:
        """Rank -> the newest header of its ring; empty: no rank of the attempt has one yet."""
        return self.current.rings.headers() if self.current is not None else {}

    def last_words(self, pid: int) -> Leaving | None:
        """What the process reported when its program was done; None: the program was not done, or the process was no rank."""
        rings = self._rings_now()
        said = rings.exiting().get(pid) if rings is not None else None
        return said or self.failed.get(pid)

    def _rings_now(self) -> RingCollector | None:
        if self.current is None:
            return None
        self.current.rings.look()
        return self.current.rings

    async def answer(
        self, request: SnapshotRequest | TraceRequest, reply: Callable[[SnapshotReply | TraceReply], None]
    ) -> None:
        """Send snapshots of some ranks, or the newest entries of every flight recorder. It takes up to a second."""
        try:
            reply(await asyncio.to_thread(self._answer, request))
        except Exception as error:
            # A process may end while it is inspected. The coordinator then judges without this host's answer.
            self.say_missing("look", f"{type(error).__name__}: {error}")

    def _answer(self, request: SnapshotRequest | TraceRequest) -> SnapshotReply | TraceReply:
        current = self.current
        if isinstance(request, TraceRequest):
            traces = {} if current is None else current.heartbeats.traces(current.rings, finished=request.finished)
            return TraceReply(number=request.number, traces=traces)
        pids = self._pids()
        snapshots, host = look_at(
            {rank: pids[rank] for rank in request.ranks if rank in pids},
            host=self.host,
            attempt=current.rings.attempt if current is not None else 0,
            role="suspect",
            socket_dir=self.scratch.sockets,
            hosts_by_address=self._hosts_by_number(),
            all_ranks_here=pids,
            directory=self.directory.path,
            deep=request.deep,
        )
        snapshots = [self._with_error(snapshot) for snapshot in self._with_rendezvous(snapshots)]
        return SnapshotReply(number=request.number, snapshots=snapshots, hosts=[host])

    def _with_error(self, snapshot: RankSnapshot) -> RankSnapshot:
        return replace(snapshot, raised=reported_error(self.scratch.errors_of(snapshot.attempt), snapshot.pid))

    def _with_rendezvous(self, snapshots: list[RankSnapshot]) -> list[RankSnapshot]:
        """The snapshots. For each rank that is still in its rendezvous, the result of a connection to its store is added."""
        headers = self.headers()
        seen: dict[str, str] = {}
        found = []
        for snapshot in snapshots:
            header = headers.get(snapshot.rank)
            waits = header is not None and header.phase is RankPhase.RENDEZVOUS
            address = address_in(brought(header.rendezvous)) if header is not None and waits else None
            host, _, port = (address or "").rpartition(":")
            if address is not None and port.isdigit():
                if address not in seen:
                    seen[address] = rendezvous_seen(host, int(port), RENDEZVOUS_SECONDS)
                snapshot = replace(snapshot, rendezvous_seen=seen[address])
            found.append(snapshot)
        return found

    def _hosts_by_number(self) -> dict[str, str]:
        """Numeric address -> name of each host of the job. Names are resolved here, because a slow answer delays nothing here."""
        found: dict[str, str] = {}
        for address, host in self.hosts_by_address.items():
            with suppress(OSError):
                found |= {str(entry[4][0]): host for entry in socket.getaddrinfo(address, None)}
        return found

    def _pids(self) -> dict[int, int]:
        """Rank -> pid of the process that trains: the process with a ring, else the process that the agent started."""
        headers = self.headers()
        started = self.current.workers.pids() if self.current is not None else {}
        return started | {rank: header.pid for rank, header in headers.items() if not header.exiting}

    async def close(self) -> None:
        """Take a last sample, at any time within the interval."""
        if self._task is None:
            return
        async with self._turn:
            self._task.cancel()
            await self._sample(self.current, final=True)
            if self._telemetry is not None and self._minutes is not None:
                await asyncio.to_thread(self._minutes.close)
                self._telemetry.close()
            if self.current is not None:
                self.current.heartbeats.close()
                self.current.rings.close()

    async def _sample(self, watched: Watched | None, *, final: bool = False) -> None:
        """Drain the rings, read the sensors, write one line, and send it with the ranks' heartbeats.

        `final`: an attempt or the job ends, so this line must not be thinned out on the way.
        """
        rings, pids = (watched.rings, watched.workers.pids()) if watched is not None else (None, {})
        # In a thread, because the recording may be on a disk that does not answer, and supervision must go on.
        line, heartbeats, calls = await asyncio.to_thread(self._read, watched, pids, final)
        progress = rings.progress() if rings is not None else {}
        self.on_heartbeats(heartbeats, calls)
        sums = self._sums_to_send(rings)
        more = {"sums": sums} if sums else {}
        self.on_lines("telemetry", [{**line, "progress": progress, "final": final, **more}])
        self._send_tails(rings.attempt if rings is not None else 0)
        self._say_joined(rings)
        for sensor, reason in self.sampler.missing.items():
            self.say_missing(sensor, reason)
        if watched is not None:
            if watched.heartbeats.recorder_shows is False:
                self.say_missing("flight recorder", NO_COLLECTIVES)
            self._note_failed(pids.values(), self.scratch.errors_of(watched.rings.attempt))
            deadlines = {pid: ExitDeadline(said.since_ns) for pid, said in watched.rings.exiting().items()}
            deadlines |= {pid: ExitDeadline(said.since_ns, FAILED_IDLE_SECONDS) for pid, said in self.failed.items()}
            watched.workers.enforce_exit_deadline(deadlines, time.time_ns())

    def _note_failed(self, pids: Iterable[int], errors: Path) -> None:
        for pid in pids:
            report = errors / f"{pid}.json"
            if pid not in self.failed and report.exists() and takes_as_notice(pid) is not None:
                self.failed[pid] = Leaving(report.stat().st_mtime_ns, 1)

    def _read(
        self, watched: Watched | None, pids: dict[int, int], final: bool
    ) -> tuple[dict[str, Any], list[Heartbeat], list[RankCalls]]:
        assert self._telemetry is not None and self._minutes is not None
        if watched is not None:
            watched.rings.drain(is_last=final)
        line = {"t_ns": time.time_ns(), **self.sampler.sample(pids)}
        self._telemetry.append(line)
        self._minutes.add(line)
        if watched is None:
            return line, [], []
        return line, *watched.heartbeats.look(watched.rings, time.time_ns())

    def _sums_to_send(self, rings: RingCollector | None) -> dict[str, Any]:
        """The newest sums of steps, if this is not the first host: it may have no storage in common with the first."""
        if rings is None or self.tails is None:
            return {}
        sums = rings.take_sums()
        return {"attempt": rings.attempt, **sums} if sums else {}

    def _send_tails(self, attempt: int) -> None:
        lines = [
            {"t_ns": time.time_ns(), "attempt": attempt, "rank": rank, "stream": stream, "text": text}
            for rank, stream, text in (self.tails.take() if self.tails is not None else ())
        ]
        if lines:
            self.on_lines("logs", lines)

    def not_written(self) -> str:
        """What of this host's recording the disk has refused, in words; "": nothing."""
        moves, sums = self._unwritten
        parts = [
            f"{moves} times the steps of a rank" if moves else "",
            f"{sums} sums of steps" if sums else "",
            f"{self._telemetry.lost} lines of telemetry"
            if self._telemetry is not None and self._telemetry.lost
            else "",
        ]
        return ", ".join(filter(None, parts))

    def say_missing(self, sensor: str, reason: str) -> None:
        """Record, once, that this host cannot read a sensor, and why."""
        if sensor not in self._said_missing:
            self._said_missing.add(sensor)
            self.on_event("sensor_missing", sensor=sensor, reason=reason)

    def _say_joined(self, rings: RingCollector | None) -> None:
        if rings is None:
            return
        for joined in rings.newly_joined():
            self.on_event("rank_joined", **joined, **self._device(joined["local_rank"]))
        for said in rings.newly_said():
            self.on_event("notice", **said)
        for kind, marked in rings.newly_marked():
            self.on_event(kind, **marked)

    def _device(self, local_rank: int | None) -> dict[str, Any]:
        """The GPU that a rank uses if it takes the one with its local number, as nearly all scripts do."""
        visible = {} if self.visible_devices is None else {"visible_devices": self.visible_devices}
        if local_rank is None or not 0 <= local_rank < len(self.gpus):
            return visible
        uuid, index = self.gpus[local_rank]
        return {**visible, "gpu_uuid": uuid, **({} if index is None else {"gpu_index": index})}

    async def _send_heartbeats(self) -> None:
        """Send only the heartbeats between two samples, so that a rank that stands still is seen within half a second."""
        if self.current is not None:
            self.on_heartbeats(*await asyncio.to_thread(self._look, self.current))

    def _look(self, watched: Watched) -> tuple[list[Heartbeat], list[RankCalls]]:
        watched.rings.look()
        return watched.heartbeats.look(watched.rings, time.time_ns())

    async def _run(self) -> None:
        whole = False
        while True:
            await asyncio.sleep(self.interval_seconds / 2)
            whole = not whole
            try:
                async with self._turn:
                    await (self._sample(self.current) if whole else self._send_heartbeats())
            except Exception as error:
                # Only this sample is lost. If sampling ended here, no exit deadline would be enforced any more.
                self.say_missing("monitor", f"{type(error).__name__}: {error}")
