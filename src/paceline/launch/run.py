"""Runs this host's agent, as the coordinator or as a peer, until the job has ended, and then releases all resources of the run."""

import asyncio
import errno
import json
import os
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from paceline import __version__
from paceline.errors import UsageError
from paceline.facts import Job, Run
from paceline.launch.agent import peer
from paceline.launch.agent.agent import HostAgent
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.job_processes import JobProcesses, guarded
from paceline.launch.agent.output import LogTails, Pump
from paceline.launch.agent.peer import PeerAgent
from paceline.launch.agent.scratch import Scratch, make_scratch
from paceline.launch.agent.store_client import torch_directory
from paceline.launch.coordinator.coordinator import Coordinator
from paceline.launch.disk import refused_by_disk
from paceline.launch.job.outcome import Outcome, Stop, StopKind, stopped
from paceline.launch.job.state import begin
from paceline.launch.pausable_loop import OwnTimeLoop
from paceline.launch.ports import ReservedPorts, require_free, why_not_listening
from paceline.launch.prepare import LaunchConfig
from paceline.part import Beginning, first_answer, parts
from paceline.probes.ports import is_local_address
from paceline.recording.fact_json import to_json
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import create_run, make_run_directory, new_run_id, register, write_run
from paceline.recording.writer import EventLog, write_json
from paceline.storage.urls import shown

SINGLE_HOST_NAME = "localhost"
PROGRESS_SECONDS = 1.0
# asyncio accepts as many connections as its backlog in one turn, before one of them can be closed. A hundred would use up the
# descriptors.
ACCEPTED_AT_ONCE = 16

_LONGEST_REQUEST_BYTES = 65536


async def serve_control(
    path: Path, answer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
) -> asyncio.AbstractServer:
    """Answer requests until the server is closed. `answer` gets the request's object and returns the reply's object."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            reply = await answer(request) if isinstance(request, dict) else {"ok": False, "error": "not an object"}
        except (ValueError, OSError, RecursionError) as error:
            reply = {"ok": False, "error": str(error)}
        writer.write(to_json(reply).encode() + b"\n")
        writer.close()

    return await asyncio.start_unix_server(one, str(path), limit=_LONGEST_REQUEST_BYTES)


class Reporter(Protocol):
    """Reports to the terminal. The agent's thread calls all methods except `erase` and `repaint`, which the pump's thread calls."""

    def attach(self, say: Callable[[int, str], None]) -> None: ...
    def event(self, event: Mapping[str, Any]) -> None: ...
    def progress(self, progress: Mapping[str, Mapping[str, Any]]) -> None: ...
    def erase(self) -> bytes: ...
    def repaint(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class JobResult:
    """How the job ended, according to this host's agent."""

    outcome: Outcome
    """The end of the run."""
    directory: RunDirectory
    """This host's recording."""
    first: bool
    """This host's agent was the coordinator, which keeps the run's events."""


def run_job(job: Job, config: LaunchConfig, reporter: Reporter) -> JobResult:
    """Run this host's part of the job and return how the job ended.

    Raises:  PacelineError: no process was started, or this host could not join
    """
    mark = uuid.uuid4().hex
    begins = _beginning(job, config)
    ports = ReservedPorts(next((wanted for part in parts() if (wanted := part.ports(job))), ()))
    with refused_by_disk("a temporary directory for this run", "export TMPDIR=/a/directory/with/room"):
        scratch = make_scratch(mark, config.environ)
    with guarded(mark, scratch.roots) as processes:
        pump = Pump(erase=reporter.erase, repaint=reporter.repaint)
        reporter.attach(pump.say)
        for pipe, fd in config.setup.relays:
            pump.relay(pipe, fd)
        try:
            own = _RunResources(mark, scratch, pump, processes, begins, ports)
            with asyncio.Runner(loop_factory=OwnTimeLoop) as runner:
                return runner.run(_run(job, config, reporter, own))
        finally:
            pump.close()
            ports.close()


def _beginning(job: Job, config: LaunchConfig) -> Beginning:
    asked = (part.beginning(job, config.run_id, config.environ, config.runs_root) for part in parts())
    if (begins := first_answer(asked)) is not None:
        return begins
    if job.resume or job.resume_from is not None:
        raise UsageError(
            "U03",
            "this paceline cannot resume a job: it has no part that does",
            saw=f"--resume {shown(job.resume_from or 'auto')}",
            next="install all of paceline, or leave --resume out: then a restart begins at the start of the script",
        )
    return Beginning()


@dataclass(frozen=True, slots=True)
class _RunResources:
    """The resources of a run on this host, besides its recording."""

    mark: str
    """The value of PACELINE_MARK in every process of the job on this host."""
    scratch: Scratch
    """The agent's directories outside the recording."""
    pump: Pump
    """Copies the ranks' output to their logs and to the terminal."""
    processes: JobProcesses
    """Every process of the job on this host."""
    begins: Beginning = field(default_factory=Beginning)
    """What the job begins with."""
    ports: ReservedPorts = field(default_factory=lambda: ReservedPorts(()))
    """Ports for servers of the ranks."""


async def _run(job: Job, config: LaunchConfig, reporter: Reporter, own: _RunResources) -> JobResult:
    if job.agents_port is None:
        if job.store_port is not None:
            require_free(job.master_addr, job.store_port, "--set store_port")
        return await _run_first(job, config, reporter, own)
    if job.is_first:
        try:
            return await _run_first(job, config, reporter, own)
        except OSError as error:
            # If hosts are placed by arrival, the process that has the port is the first host. If they are placed by node rank, the port
            # should be ours, and another process has it.
            if error.errno != errno.EADDRINUSE or job.node_rank is not None:
                option = "--rdzv-endpoint" if job.node_rank is None else "--master-port"
                refused = why_not_listening(error, job.master_addr, job.agents_port, option)
                if refused is None:
                    raise
                raise refused from error
    return await _run_peer(job, config, reporter, own)


async def _run_first(job: Job, config: LaunchConfig, reporter: Reporter, own: _RunResources) -> JobResult:
    agent: Coordinator | None = None

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert agent is not None
        # Connections that are still open when the job has ended are cancelled with the loop.
        with suppress(asyncio.CancelledError):
            await agent.accept(reader, writer)

    server = None
    if job.agents_port is not None:
        # An address that does not belong to this machine may still lead to it (a public address, a forwarded port).
        bound = job.master_addr if is_local_address(job.master_addr) else None
        server = await asyncio.start_server(accept, bound, job.agents_port, backlog=ACCEPTED_AT_ONCE)
    name = job.host_name or (SINGLE_HOST_NAME if job.max_hosts == 1 else job.master_addr)

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        assert agent is not None
        return await _answer(agent, request)

    def ask_stop(stop: Stop, *, now: bool = False) -> None:
        assert agent is not None
        agent.ask_stop(stop, now=now)

    # Whoever finds the recording may ask. Nothing is answered before this loop goes on, and then there is an agent.
    control = await serve_control(own.scratch.control_socket, answer)
    _listen_for_ends(job, config, ask_stop)
    run = _new_run(job, config, own, name)
    directory = RunDirectory(Path(run.directory))
    agent = _first_agent(job, config, reporter, own, run, name)
    agent.record(
        "run_started",
        host=name,
        run=run.id,
        name=job.name,
        hosts_wanted=[job.min_hosts, job.max_hosts],
        ranks_per_host=job.ranks_per_host,
        program=job.program.target,
        directory=str(directory.path),
        max_run_seconds=job.max_run_seconds,
    )
    for event in config.setup.events:
        agent.record(event["event"], **{name: value for name, value in event.items() if name != "event"})
    for text in own.begins.notices:
        agent.record("notice", host=name, text=text)
    progress = asyncio.get_running_loop().create_task(_tell_progress(agent, reporter))
    if job.resume:
        _listen_for_notices(job, agent.local)
    try:
        outcome = await agent.run(server)
    finally:
        progress.cancel()
        control.close()
    agent.record(
        "run_finished",
        exit_code=outcome.exit_code,
        status=str(outcome.status),
        secondary_status=str(outcome.secondary_status),
        reason=outcome.reason,
        exits=[_exit_fields(exit) for exit in outcome.exits],
    )
    agent.flush()
    return JobResult(outcome, directory, first=True)


def _new_run(job: Job, config: LaunchConfig, own: _RunResources, name: str) -> Run:
    run_id = config.run_id or new_run_id()
    with refused_by_disk("the recording of this run", "paceline run --run-dir /a/directory/with/room ..."):
        directory = create_run(config.runs_root, run_id, config.run_dir_mode)
        run = _run_facts(job, config, own, name, run_id, directory)
        write_run(run)
        if config.plan is not None:
            write_json(directory.plan_file, config.plan)
    register(run_id, directory.path)
    return run


def _run_facts(
    job: Job, config: LaunchConfig, own: _RunResources, name: str, run_id: str, directory: RunDirectory
) -> Run:
    return Run(
        id=run_id,
        name=job.name,
        directory=str(directory.path.resolve()),
        command=config.command,
        started_ns=time.time_ns(),
        first_host=name,
        agent_pid=os.getpid(),
        hosts_wanted=(job.min_hosts, job.max_hosts),
        version=__version__,
        control_socket=str(own.scratch.control_socket),
    )


def _first_agent(
    job: Job, config: LaunchConfig, reporter: Reporter, own: _RunResources, run: Run, name: str
) -> Coordinator:
    directory = RunDirectory(Path(run.directory))
    agent: Coordinator
    local = _host_agent(
        job, config, own, directory, run.id, job.name, name, lambda message: agent.from_host(name, message)
    )
    now, seed = asyncio.get_running_loop().time(), own.begins.hash_seed
    if seed is None and job.resume:
        seed = 1 + secrets.randbelow(2**32 - 1)
    agent = Coordinator(
        job=job,
        run_facts=run,
        directory=directory,
        local=local,
        token=config.token,
        token_source=config.token_source,
        token_file=config.token_file,
        report=reporter.event,
        events=EventLog(directory.events_file),
        state=begin(
            job,
            now,
            own.begins.step,
            is_named=own.begins.is_named,
            hash_seed=seed,
            agent_store=local.torch_directory is not None,
        ),
    )
    return agent


async def _run_peer(job: Job, config: LaunchConfig, reporter: Reporter, own: _RunResources) -> JobResult:
    joining = asyncio.get_running_loop().create_task(
        peer.join(job, config.token, config.token_source, reporter.event, own.ports.numbers)
    )
    requests: list[Stop] = []

    def give_up(stop: Stop, *, now: bool = False) -> None:
        requests.append(stop)
        joining.cancel()

    _listen_for_ends(job, config, give_up)
    try:
        link, welcome = await joining
    except asyncio.CancelledError:
        raise SystemExit(stopped(requests[0]).exit_code) from None
    directory = RunDirectory(config.runs_root / welcome.run_id)
    config.runs_root.mkdir(parents=True, exist_ok=True)
    make_run_directory(directory.path, config.run_dir_mode)
    reporter.event({"event": "joined", "t_ns": time.time_ns(), "run": welcome.run_id, "host": welcome.name})
    agent: PeerAgent
    tails = LogTails()
    local = _host_agent(
        job,
        config,
        own,
        directory,
        welcome.run_id,
        welcome.job_name,
        welcome.name,
        lambda message: agent.send(message),
        tails,
    )
    own.pump.stream_to(tails)
    agent = PeerAgent(job=job, link=link, first_name=job.master_addr, local=local, report=reporter.event)
    _listen_for_ends(job, config, agent.ask_stop)
    # A stop request that came while this host was being admitted was too late to cancel the admission.
    for request in requests:
        agent.ask_stop(request)
    return JobResult(await agent.run(), directory, first=False)


def _host_agent(
    job: Job,
    config: LaunchConfig,
    own: _RunResources,
    directory: RunDirectory,
    run_id: str,
    job_name: str,
    name: str,
    uplink: Any,
    tails: LogTails | None = None,
) -> HostAgent:
    identity = HostIdentity(
        run_id=run_id,
        job_name=job_name,
        name=name,
        mark=own.mark,
        environ=config.environ,
        shares_machine=bool(config.setup.addresses),
        own_mounts=config.setup.own_mounts,
        network_interface=config.setup.network_interface,
        addresses=config.setup.addresses if config.setup.translated else {},
        extra_environment=config.setup.environment,
        command=config.command,
    )
    write_json(directory.host_file(name), host_document(name))
    return HostAgent(
        job=replace(job, host_name=name),
        identity=identity,
        directory=directory,
        scratch=own.scratch,
        pump=own.pump,
        processes=own.processes,
        uplink=uplink,
        torch_directory=torch_directory(identity.python),
        gpu_count=config.gpu_count,
        tails=tails,
        ports=own.ports,
        begins=own.begins,
        cpus_by_local_rank=config.cpus_by_local_rank,
    )


def host_document(name: str) -> dict[str, Any]:
    """The content of host.json. `name`: the host's name in the job."""
    uname = os.uname()
    return {
        "schema": "paceline.host/2",
        "host": name,
        "machine": uname.nodename,
        "kernel": uname.release,
        "cpu_count": os.cpu_count(),
        "agent_pid": os.getpid(),
        "paceline_version": __version__,
        "python_version": sys.version.split()[0],
    }


def _listen_for_ends(job: Job, config: LaunchConfig, ask_stop: Callable[..., None]) -> None:
    """Turn signals, and the death of the program that started this agent, into stop requests. A second Ctrl-C means a stop at once."""
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    def on_signal(name: str) -> None:
        seen.append(name)
        who = "Ctrl-C" if name == "SIGINT" else name
        ask_stop(Stop(StopKind.SIGNAL, name, f"{who} at the agent"), now=seen.count("SIGINT") > 1)

    for name in job.signals:
        loop.add_signal_handler(signal.Signals[name], on_signal, name)

    def on_lifeline() -> None:
        assert config.setup.leash is not None
        loop.remove_reader(config.setup.leash)
        ask_stop(Stop(StopKind.LIFELINE, "SIGTERM", "the process that started this agent is gone"), now=True)

    if config.setup.leash is not None:
        loop.add_reader(config.setup.leash, on_lifeline)


def _listen_for_notices(job: Job, agent: HostAgent) -> None:
    """Slurm and others can send these signals some time before they end a job. Without a handler they would end the agent."""
    for name in ("SIGUSR1", "SIGUSR2"):
        if name not in job.signals:
            asyncio.get_running_loop().add_signal_handler(signal.Signals[name], agent.save_now, name)


async def _tell_progress(agent: Coordinator, reporter: Reporter) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        reporter.progress(agent.progress)


async def _answer(agent: Coordinator, request: dict[str, Any]) -> dict[str, Any]:
    match request.get("command"):
        case "stop":
            agent.ask_stop(Stop(StopKind.USER, "SIGTERM", "paceline stop"), now=bool(request.get("now")))
            return {"ok": True}
        case "status":
            return {
                "ok": True,
                "phase": str(agent.state.phase),
                "attempt": agent.state.attempt,
                "progress": agent.progress,
            }
        case "look":
            snapshots, hosts = await agent.hang_monitor.take_snapshots(
                _ranks_asked(request, agent), deep=request.get("deep") is True
            )
            return {"ok": True, "looks": snapshots, "hosts": hosts}
        case other:
            return {"ok": False, "error": f"unknown command {other!r}"}


def _ranks_asked(request: dict[str, Any], agent: Coordinator) -> list[int]:
    asked = request.get("ranks")
    if asked is not None and not isinstance(asked, list):
        raise ValueError("ranks is a list of numbers")
    every = sorted(agent.hang_monitor.placed)
    return every if asked is None else [rank for rank in every if rank in asked]


def _exit_fields(exit: Any) -> dict[str, Any]:
    return {"host": exit.host, "rank": exit.rank, "attempt": exit.attempt, "code": exit.code}
