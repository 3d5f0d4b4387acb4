"""The agent of every host except the first: it joins, obeys and reports, and ends its ranks when the coordinator is lost."""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline import __version__
from paceline.errors import HostLost, RankNeverArrived, UsageError
from paceline.facts import Job, SecondaryStatus, Status
from paceline.launch.agent.agent import HostAgent
from paceline.launch.job.accepted_messages import objection_to_first
from paceline.launch.job.framed_connection import (
    ENDED,
    MAX_FRAME_BYTES,
    SILENCE_SECONDS,
    SILENT,
    Connection,
    WireError,
    greet,
)
from paceline.launch.job.messages import (
    ClaimedMessage,
    FinishMessage,
    GatherMessage,
    HeartbeatMessage,
    Hello,
    KillMessage,
    LinesMessage,
    Message,
    Ping,
    Pong,
    RefusedMessage,
    SnapshotRequest,
    StartAttemptMessage,
    StartWorkersMessage,
    StopMessage,
    StopRequest,
    TraceReply,
    TraceRequest,
    Welcome,
    decode,
    encode,
)
from paceline.launch.job.outcome import Outcome, Stop, StopKind, stopped
from paceline.launch.job.state import FIRST_NOTICE_SECONDS, NEXT_NOTICE_SECONDS
from paceline.probes.ports import try_connect

RETRY_SECONDS = 0.3
COPIED = "~/paceline-token"
CONNECT_SECONDS = 3.0
# Rank 0's store is lost with the first host. The ranks cannot communicate any more, so a longer grace has no use.
ORPHAN_GRACE_SECONDS = 2.0


class _Full(Exception):
    """The job has all its hosts; a place may become free."""


async def join(
    job: Job,
    token: bytes | None,
    token_source: str,
    report: Callable[[dict[str, Any]], None],
    ports: tuple[int, ...],
) -> tuple[Connection, Welcome]:
    """Connect to the coordinator and join the job; report what is seen while this host waits. `ports`: free ones, for the ranks.

    Raises:  RankNeverArrived: the coordinator did not answer within the join timeout
             UsageError: the coordinator refused this host, or the token does not match
    """
    loop = asyncio.get_running_loop()
    began, next_notice = loop.time(), loop.time() + FIRST_NOTICE_SECONDS
    while True:
        full: str | None = None
        try:
            return await _try_join(job, token, token_source, ports)
        except _Full as error:
            full = str(error)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        waited = loop.time() - began
        if waited >= job.join_timeout_seconds:
            raise await _never_answered(job, waited, full)
        if loop.time() >= next_notice:
            next_notice += NEXT_NOTICE_SECONDS
            report({"event": "waiting", "waited_seconds": round(waited), "missing": [await _what_is_seen(job, full)]})
        await asyncio.sleep(RETRY_SECONDS)


async def _try_join(
    job: Job, token: bytes | None, token_source: str, ports: tuple[int, ...]
) -> tuple[Connection, Welcome]:
    reader, writer = await asyncio.wait_for(asyncio.open_connection(job.master_addr, job.agents_port), SILENCE_SECONDS)
    hello = _hello(job, writer.get_extra_info("sockname")[0], ports)
    try:
        link = await asyncio.wait_for(greet(reader, writer, token, server=False), SILENCE_SECONDS)
        link.send(hello)
        answer = await link.hear()
    except WireError as error:
        writer.close()
        raise UsageError(
            "U12",
            f"{job.master_addr}:{job.agents_port} did not take this host in",
            saw=f"{error}; here it is {token_source}, there what its own terminal now names",
            next=f"give every host the same: where that is the user's own, scp {job.master_addr}:.config/paceline/token {COPIED}; "
            f"paceline run --set token_file={COPIED} ...",
        ) from error
    except (TimeoutError, asyncio.IncompleteReadError, OSError):
        writer.close()
        raise
    if isinstance(answer, RefusedMessage) and answer.later:
        writer.close()
        raise _Full(f"{answer.what}: {answer.saw}")
    if isinstance(answer, RefusedMessage):
        raise UsageError(answer.code, answer.what, saw=answer.saw, next=answer.next)
    if not isinstance(answer, Welcome):
        raise UsageError(
            "U12",
            f"{job.master_addr}:{job.agents_port} did not take this host in",
            saw=f"it answered with {type(answer).__name__}",
            next=f"ss -ltnp sport = :{job.agents_port}",
        )
    link.most_bytes = MAX_FRAME_BYTES
    return link, answer


def _hello(job: Job, own_address: str, ports: tuple[int, ...]) -> Hello:
    hello = Hello(
        host_name=_resolvable_name(own_address),
        wanted_name=job.host_name,
        address=job.local_address or own_address,
        node_rank=job.node_rank,
        ranks=job.ranks_per_host,
        hosts_wanted=(job.min_hosts, job.max_hosts),
        paceline_version=__version__,
        ports=ports,
    )
    try:
        decode(encode(hello))
    except msgspec.ValidationError as error:
        raise UsageError(
            "U05",
            f"{hello.wanted_name or hello.host_name!r} with {hello.ranks} ranks cannot be a host of a job",
            saw=str(error),
            next="give this machine a name of letters, digits, points and dashes, and the job 1 to 4096 ranks per host",
        ) from error
    return hello


def _resolvable_name(address: str) -> str:
    """This machine's name if it resolves to the address that peers use, else the address."""
    name = socket.gethostname()
    try:
        known = {entry[4][0] for entry in socket.getaddrinfo(name, None)}
    except OSError:
        return address
    return name if address in known else address


async def _what_is_seen(job: Job, full: str | None) -> dict[str, Any]:
    assert job.agents_port is not None
    if full is not None:
        return {"host": job.master_addr, "ranks": None, "saw": full}
    seen = await asyncio.to_thread(try_connect, job.master_addr, job.agents_port, CONNECT_SECONDS)
    return {"host": job.master_addr, "ranks": None, "saw": str(seen)}


async def _never_answered(job: Job, waited_seconds: float, full: str | None) -> RankNeverArrived:
    missing = await _what_is_seen(job, full)
    return RankNeverArrived(
        "U21",
        f"the first host never answered (waited {waited_seconds:.0f} s)",
        saw=missing["saw"],
        next=f"start the agent there: paceline run --node-rank 0 --master-addr {job.master_addr} ...",
    )


@dataclass(slots=True)
class PeerAgent:
    """The agent of every host except the first. `run` lasts until the coordinator says how the job ended, or is lost."""

    job: Job
    """The job as this host's command line describes it."""
    link: Connection
    """The connection to the coordinator."""
    first_name: str
    """The first host's address, which serves as its name on this host."""
    local: HostAgent
    """This host's ranks."""
    report: Callable[[dict[str, Any]], None]
    """Called with every event that this host's terminal shows."""
    _leaving: Stop | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> Outcome:
        """Obey the coordinator until the job ends.

        Raises:  PacelineError: this host cannot run the job
        """
        beating = asyncio.get_running_loop().create_task(self.link.beat())
        try:
            return await self._obey()
        except TimeoutError as error:
            reason = str(error) or SILENT
        except WireError as error:
            reason = str(error)
        except (asyncio.IncompleteReadError, OSError):
            reason = ENDED
        finally:
            beating.cancel()
            self.link.close()
        return await self._orphaned(reason)

    async def _obey(self) -> Outcome:
        while True:
            message = await self.link.hear()
            if fault := objection_to_first(message, self.local.identity.name, self.job.ranks_per_host):
                raise WireError(f"the first host sent {fault}")
            match message:
                case StartAttemptMessage():
                    self._say_another_strategy(message)
                    self.local.start_attempt(message)
                case StartWorkersMessage():
                    self.local.start_ranks(message.attempt)
                case ClaimedMessage():
                    self.local.data.claimed(message.same, message.taken)
                case GatherMessage():
                    self.local.gather(message)
                case StopMessage():
                    self.local.stop(message)
                case KillMessage():
                    self.local.kill(at_once=message.at_once)
                case SnapshotRequest() | TraceRequest():
                    self.local.inquire(message)
                case Ping():
                    self.link.send(Pong(sent_ns=message.sent_ns, at_ns=time.time_ns()))
                case FinishMessage():
                    await self.local.finish(message.outcome.exit_code, message.outcome.failure_text())
                    return message.outcome
                case _:
                    pass

    def _say_another_strategy(self, message: StartAttemptMessage) -> None:
        here, there = self.job.gradients, message.gradients
        if here not in (None, there) and message.attempt == 0:
            text = f"{self.local.identity.name} was started with --gradients {here}; the first host's counts: {there or 'none'}"
            self.local.event("notice", text=text)

    def send(self, message: Message) -> None:
        """Send a message to the coordinator. A message that this host's terminal must show too is also reported here."""
        if not isinstance(message, LinesMessage | HeartbeatMessage | TraceReply):
            self.link.send(message)
        elif not self.link.writer.is_closing() and self.link.writer.transport.get_write_buffer_size() < 1 << 20:
            # If the network is too slow for telemetry, telemetry is dropped: a queue could grow without bound. The complete files are here.
            self.link.send(message)

    def ask_stop(self, stop: Stop, *, now: bool = False) -> None:
        """Act on a signal to this host's agent: if peers are trusted, the whole job ends, else this host leaves it.

        If the program that started this agent has ended, the job loses this host. The coordinator then decides how the job ends.
        """
        if self.link.authenticated and stop.kind is not StopKind.LIFELINE:
            self.link.send(StopRequest(signal=stop.signal, reason=stop.reason, now=now))
            return
        self._leaving = stop
        if stop.kind is StopKind.LIFELINE:
            # The link is closed before the ranks end: otherwise their ends would count as failures of the ranks.
            self.link.close()
        if now:
            self.local.kill()
        self._spawn(self._leave(stop))

    async def _leave(self, stop: Stop) -> None:
        self.local.stop(StopMessage(signal=stop.signal, grace_seconds=self.job.stop_grace_seconds, reason=stop.reason))
        await self.local.wait_idle()
        self.link.close()

    async def _orphaned(self, reason: str) -> Outcome:
        if self._leaving is not None:
            await self.local.wait_idle()
            return stopped(self._leaving)
        self.report({"event": "host_lost", "host": self.first_name, "reason": reason, "t_ns": time.time_ns()})
        self.local.stop(
            StopMessage(signal="SIGTERM", grace_seconds=ORPHAN_GRACE_SECONDS, reason=reason, after_failure=True)
        )
        await self.local.wait_idle()
        text = f"the first host {self.first_name} is lost: {reason}"
        await self.local.finish(HostLost.exit_code, text)
        return Outcome(
            exit_code=HostLost.exit_code,
            status=Status.FAILED,
            secondary_status=SecondaryStatus.FAILED,
            reason=text,
        )

    def _spawn(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
