"""Runs a job over SSH, for the engine's `hold`: from the inspection of the hosts to the job's end, with all attempts."""

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.errors import HostLost, PacelineError, UsageError
from paceline.launch.agent.output import Pump
from paceline.parts.engines.attempts import attempts_of, note_retry, say, tell_of_lost_steps
from paceline.parts.engines.base import Request
from paceline.parts.engines.detached import TAKEN_FILE
from paceline.parts.engines.remote_program import ConnectionLost
from paceline.parts.engines.ssh import preflight
from paceline.parts.engines.ssh.agent_command import agent_command, agent_job
from paceline.parts.engines.ssh.agents import Agents
from paceline.parts.engines.ssh.connection import SshConnection, host_of
from paceline.parts.engines.ssh.mirror import Copy
from paceline.parts.engines.ssh.options import AGENTS_PORT, Settings, typed
from paceline.parts.engines.ssh.remote import CODE, RUNS
from paceline.parts.engines.submission import Submission
from paceline.recording.runs import make_next_try

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A UNIX socket's path has at most 107 bytes, and ssh appends 17 bytes while it makes the socket.
_LONGEST_FOLDER = 60
_FOLDER = "paceline-ssh-"


def hold_job(request: Request, settings: Settings, run_dir: Path, environ: Mapping[str, str]) -> int:
    """Run the job to its end and return its exit code. The attempts' recordings are copied to `run_dir` and to directories beside it.

    Raises:  UsageError E10, E11, U22: refused before any process was started; HostLost E17: a host was lost, and no attempt is left
    """
    token = request.job.environment.get("PACELINE_TOKEN") or secrets.token_hex(16)
    job = replace(request.job, environment={**request.job.environment, "PACELINE_TOKEN": token})
    return asyncio.run(_SshJob(job, settings, run_dir, environ).run())


@dataclass(slots=True)
class _SshJob:
    """The state of a job over all its attempts: the signals that have arrived and the hosts that were lost."""

    job: Submission
    settings: Settings
    run_dir: Path
    environ: Mapping[str, str]
    asked: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    on_signal: Callable[[str], None] = lambda name: None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(self._attempts())
        self.on_signal = lambda name: _cancel(task)
        for number in _SIGNALS:
            # Only a main thread can handle signals. In another thread, the caller stops the job through its recording.
            with suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, self._hear, signal.Signals(number).name)
        lost = False
        try:
            code = await task
        except asyncio.CancelledError:
            if not self.asked:
                raise
            code, lost = HostLost.exit_code, True
        if self.asked and (lost or self.lost) and code != 0:
            return 128 + int(signal.Signals[self.asked[0]])
        return code

    def _hear(self, name: str) -> None:
        self.asked.append(name)
        self.on_signal(name)

    async def _attempts(self) -> int:
        cancelling = self.on_signal
        tell_of_lost_steps(self.job)
        for attempt in attempts_of(self.job, self.run_dir):
            self.on_signal = cancelling
            try:
                code, lost = await _Attempt(self, attempt.job, attempt.directory).run()
            except UsageError as refused:
                if not self.lost:
                    raise
                raise self._given_up(attempt.number - 1, refused) from refused
            self.lost.update(lost)
            if not lost or code == 0 or self.asked:
                return code
            if not attempt.is_last:
                note_retry(attempt, f"{attempt.job.run_id} lost {', '.join(lost)}")
        raise self._given_up(self.job.retries + 1, None)

    def _given_up(self, tries: int, refused: PacelineError | None) -> HostLost:
        names = ", ".join(self.lost)
        left = f"; then {refused.what}" if refused is not None else ""
        how_often = f" in {tries} tries" if tries > 1 else ""
        return HostLost(
            "E17",
            f"{'hosts' if len(self.lost) > 1 else 'host'} {names} of this job lost{how_often}{left}",
            saw="\n".join(f"{host}: {why}" for host, why in self.lost.items()),
            next=typed(self.settings, next(iter(self.lost))),
        )


@dataclass(slots=True)
class _Attempt:
    """One start of the job, from its connections to the end of its agents."""

    held: _SshJob
    job: Submission
    run_dir: Path
    connections: list[SshConnection] = field(default_factory=list)

    async def run(self) -> tuple[int, Mapping[str, str]]:
        """Run the attempt. Returns the exit code, and host -> why it was lost."""
        folder = private_folder(self.held.environ)
        try:
            chosen, first_address = await self._choose(folder)
            await self._lay_code(chosen)
            (self.held.run_dir / TAKEN_FILE).touch()
            return await self._run_agents(chosen, first_address)
        finally:
            await asyncio.gather(*(connection.close() for connection in self.connections))
            shutil.rmtree(folder, ignore_errors=True)

    async def _choose(self, folder: Path) -> tuple[list[SshConnection], str]:
        """Inspect all hosts at the same time, and choose the first usable hosts, in order.

        Raises:  UsageError: too few hosts are usable; the error names every problem of every host
        """
        settings, known = self.held.settings, self.held.lost
        every = (*settings.hosts, *settings.spares)
        candidates = [*(host for host in every if host not in known), *(host for host in every if host in known)]
        self.connections = [SshConnection(host, settings, folder, number) for number, host in enumerate(candidates)]
        first_address = settings.first_address or await _from_ssh(settings, candidates[0])
        errors = await asyncio.gather(*(self._look(connection, first_address) for connection in self.connections))
        reached = {connection.host: connection.found for connection in self.connections if connection.found}
        package = self.job.package
        needed = package.size_bytes + package.archive_bytes if package is not None else 0
        wrong = preflight.findings(settings, reached, needed, first_address)
        for connection, error in zip(self.connections, errors, strict=True):
            if error is not None:
                wrong[connection.host] = [error]
        good = [connection for connection in self.connections if not wrong[connection.host]]
        if len(good) < self.job.hosts:
            raise preflight.all_at_once([error for connection in self.connections for error in wrong[connection.host]])
        for connection in self.connections[: self.job.hosts]:
            for error in wrong[connection.host]:
                say(f"{error.what}; a spare host takes its place")
        if good[0].host != candidates[0]:
            first_address = settings.first_address or await _from_ssh(settings, good[0].host)
        return good[: self.job.hosts], first_address

    async def _look(self, connection: SshConnection, first_address: str) -> UsageError | None:
        settings, is_first = self.held.settings, connection is self.connections[0]
        question = {
            "workdir": settings.workdir,
            "run_id": self.held.job.run_id,
            "digest": self.job.package.digest if self.job.package is not None else None,
            "port": settings.agents_port or AGENTS_PORT,
            "first_address": None if is_first or self.job.hosts == 1 else first_address,
        }
        try:
            await connection.open()
            connection.found = await connection.ask("look", question)
        except ConnectionLost as lost:
            return preflight.unreachable(settings, connection.host, lost)
        except OSError as error:
            raise preflight.no_ssh(settings, error) from error
        return None

    async def _lay_code(self, chosen: Sequence[SshConnection]) -> None:
        errors = await asyncio.gather(*(self._lay_code_on(connection) for connection in chosen))
        if problems := [error for error in errors if error is not None]:
            raise preflight.all_at_once(problems)

    async def _lay_code_on(self, connection: SshConnection) -> UsageError | None:
        package = self.job.package
        digest = package.digest if package is not None else None
        # All attempts have one directory on a host: what an attempt before has written and saved there is there still.
        where: dict[str, Any] = {
            "workdir": self.held.settings.workdir,
            "run_id": self.held.job.run_id,
            "digest": digest,
        }
        try:
            answer = await connection.ask("lay", where) if connection.found["has_code"] else {}
            if package is not None and digest != answer.get("digest"):
                # The archive is not on the host, or its content does not match its name.
                answer = await connection.ask("receive", where, Path(package.archive))
                answer = answer if "error" in answer else await connection.ask("lay", where)
        except ConnectionLost as lost:
            return preflight.unreachable(self.held.settings, connection.host, lost)
        if refused := preflight.refused_there(connection.host, answer):
            return refused
        return (
            None
            if answer["digest"] == digest
            else preflight.other_code(connection.host, str(digest), str(answer["digest"]))
        )

    async def _run_agents(self, chosen: Sequence[SshConnection], first_address: str) -> tuple[int, Mapping[str, str]]:
        pump = Pump()
        try:
            return await self._run_on(Agents(pump), chosen, first_address)
        finally:
            pump.close()

    async def _run_on(
        self, agents: Agents, chosen: Sequence[SshConnection], first_address: str
    ) -> tuple[int, Mapping[str, str]]:
        port = self.held.settings.agents_port or chosen[0].found["port"]
        told = [
            {"environment": dict(self.job.environment), "job": agent_job(self.job, rank, first_address, port)}
            for rank in range(len(chosen))
        ]
        commands = [agent_command(f"{other.found['directory']}/{CODE}", other.found["executable"]) for other in chosen]
        make_next_try(self.run_dir, self.held.run_dir)
        copies = [Copy(other, f"{other.found['directory']}/{RUNS}/{self.job.run_id}", self.run_dir) for other in chosen]
        await agents.start(chosen, commands, told)
        self.held.on_signal = agents.stop
        copying = asyncio.ensure_future(copies[0].follow())
        try:
            code = await agents.wait()
        finally:
            await copies[0].finish(copying)
        # The other hosts sent the first host only the ends of their logs. Their complete logs and their ranks' records are on these hosts.
        await asyncio.gather(*(copy.once() for copy in copies[1:]))
        return code, agents.lost


def _cancel(task: "asyncio.Future[int]") -> None:
    task.cancel()


async def _from_ssh(settings: Settings, host: str) -> str:
    try:
        return await host_of(settings, host)
    except OSError:
        return host.rpartition("@")[2]


def private_folder(environ: Mapping[str, str]) -> Path:
    """Make the folder for control sockets. The call also removes the folders that killed processes have left."""
    root = environ.get("TMPDIR") or "/tmp"
    root = root if len(root) <= _LONGEST_FOLDER - 30 and os.path.isdir(root) else "/tmp"
    for old in Path(root).glob(f"{_FOLDER}*-*"):
        pid = old.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and old.stat().st_uid == os.getuid() and not os.path.exists(f"/proc/{pid}"):
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=root))
