"""Starts, keeps and stops the agents of one attempt, one per host, and judges their ends."""

import asyncio
import json
import math
import os
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paceline.errors import HostLost
from paceline.launch.agent.output import Pump
from paceline.parts.engines.remote_program import kill
from paceline.parts.engines.ssh.connection import SshConnection

SILENCE_SECONDS = 30.0
_BEAT_SECONDS = 5.0
# The coordinator notices a lost host by itself, and reports more about it than this program can see.
_NOTICE_SECONDS = 8.0
# The other agents end shortly after the coordinator, unless they still transfer results. The coordinator may still transfer results too.
_FOLLOW_SECONDS, _RESULTS_SECONDS, _BRINGING_SECONDS = 20.0, 120.0, 900.0
_REFUSED_SECONDS = 5.0
_GRACE_SECONDS, _KILLED_SECONDS, _REST_SECONDS = 30.0, 15.0, 1.0
# If a connection is cut, its sessions end too, but slightly later.
_CUT_SECONDS = 2.0
_SSH_FAILED, _REFUSED = 255, 2


@dataclass(slots=True)
class Agent:
    """One host's agent."""

    host: str
    """The host's name for ssh."""
    connection: SshConnection
    """The connection over which the agent was started."""
    process: Process
    """The ssh process that runs the agent. Its stdin is the agent's lifeline: the agent ends its ranks when it closes."""
    lost: str | None = None
    """Why the host counts as lost; None: the host is not lost."""

    def tell(self, line: str) -> None:
        """Write a line to the agent's lifeline. If the agent has ended, do nothing."""
        assert self.process.stdin is not None
        if self.process.returncode is None and not self.process.stdin.is_closing():
            self.process.stdin.write(f"{line}\n".encode())

    def let_go(self) -> None:
        """Close the lifeline: the agent ends its ranks at once."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        """End the local ssh process. The processes on the host then end by their lifeline."""
        if self.process.returncode is None:
            kill(self.process)

    async def end(self) -> int:
        """Wait for the agent's exit code. If the connection broke, set `lost`."""
        code = await self.process.wait()
        if code == _SSH_FAILED or code < 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.connection.ended(), _CUT_SECONDS)
            if not self.connection.alive:
                self.lost = self.connection.last_words()
        return code if code >= 0 else _SSH_FAILED


@dataclass(slots=True)
class Agents:
    """All agents of one attempt, with their output on one terminal."""

    pump: Pump
    """Copies the agents' output to the terminal."""
    agents: list[Agent] = field(default_factory=list)
    """The agents that were started, in order of node rank."""
    asked: list[str] = field(default_factory=list)
    """Names of the signals that requested the end, in order."""
    _asked_at: float = 0.0
    _told: set[str] = field(default_factory=set)
    _beating: asyncio.Task[None] | None = None

    async def start(
        self, connections: Sequence[SshConnection], commands: Sequence[str], told: Sequence[Mapping[str, object]]
    ) -> None:
        """Start one agent per connection with its command, and send each its job in one line."""
        for connection, command, argv in zip(connections, commands, told, strict=True):
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            self.pump.relay(out, 1)
            # The coordinator's messages are about the whole job, so they have no prefix.
            self.pump.relay(err, 2, f"{connection.host}: ".encode() if self.agents else b"")
            try:
                process = await connection.start(command, stdin=PIPE, stdout=out_end, stderr=err_end)
            finally:
                os.close(out_end)
                os.close(err_end)
            agent = Agent(connection.host, connection, process)
            agent.tell(json.dumps({**argv, "silence_seconds": SILENCE_SECONDS}))
            self.agents.append(agent)
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    def stop(self, name: str) -> None:
        """Ask the coordinator to stop the job; it tells the other agents. The second call closes every lifeline."""
        self.asked.append(name)
        self._asked_at = time.monotonic()
        if len(self.asked) > 1:
            self._let_all_go()
            return
        here = [agent for agent in self.agents if agent.process.returncode is None]
        for agent in here[:1] if here and here[0] is self.agents[0] else here:
            agent.tell(f"stop {name}")

    async def wait(self) -> int:
        """Wait until every agent has ended or was given up. Returns the job's exit code."""
        ends = {asyncio.get_running_loop().create_task(agent.end()): agent for agent in self.agents}
        try:
            code = await self._first_end(ends)
            await self._others_end(ends)
        finally:
            await self._close(list(ends))
        return HostLost.exit_code if self.lost and code != 0 else code

    @property
    def lost(self) -> dict[str, str]:
        """Host -> why the host counts as lost."""
        return {agent.host: agent.lost for agent in self.agents if agent.lost is not None}

    async def _first_end(self, ends: Mapping["asyncio.Task[int]", Agent]) -> int:
        """Wait for the coordinator; if another agent has ended, wait only for a limited time."""
        first, pending = next(iter(ends)), set(ends)
        code, deadline, ended_at = 0, math.inf, math.inf
        while not first.done():
            done, pending = await asyncio.wait(pending, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            now = time.monotonic()
            for end in done - {first}:
                self._tell_lost(ends[end])
                code, deadline = code or end.result(), min(deadline, now + _patience(ends[end], end.result()))
            if now > deadline and ended_at == math.inf:
                self.agents[0].tell("stop SIGTERM")
                ended_at = now
            if now > ended_at + _GRACE_SECONDS:
                self._let_all_go()
            if now > ended_at + 2 * _GRACE_SECONDS or (len(self.asked) > 1 and now > self._asked_at + _KILLED_SECONDS):
                kill(self.agents[0].process)
        self._tell_lost(self.agents[0])
        if self.agents[0].lost is not None:
            return HostLost.exit_code
        return code if code and ended_at < math.inf else first.result()

    async def _others_end(self, ends: Mapping["asyncio.Task[int]", Agent]) -> None:
        others = list(ends)[1:]
        if self.lost:
            self._let_all_go()
        follow = _FOLLOW_SECONDS if self.lost else _RESULTS_SECONDS
        for seconds, then in ((follow, Agent.let_go), (_KILLED_SECONDS, Agent.kill)):
            pending = [end for end in others if not end.done()]
            if pending:
                await asyncio.wait(pending, timeout=seconds)
            for end in pending:
                if not end.done():
                    then(ends[end])
        for end in others:
            if end.done():
                self._tell_lost(ends[end])

    def _tell_lost(self, agent: Agent) -> None:
        if agent.lost is not None and agent.host not in self._told:
            self._told.add(agent.host)
            self.pump.say(2, f"paceline  host {agent.host} is lost: {agent.lost}\n")

    def _let_all_go(self) -> None:
        for agent in self.agents:
            agent.let_go()

    async def _close(self, ends: Sequence["asyncio.Task[int]"]) -> None:
        self._let_all_go()
        for agent in self.agents:
            agent.kill()
        await asyncio.gather(*ends, return_exceptions=True)
        # The last output is still on its way.
        await asyncio.to_thread(self.pump.drain, _REST_SECONDS, relays=True)
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self) -> None:
        """Send signs of life to every agent, which may not notice otherwise that a connection is cut."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            for agent in self.agents:
                agent.tell("")


def _patience(agent: Agent, code: int) -> float:
    if agent.lost is not None:
        return _NOTICE_SECONDS
    if code == 0:
        return math.inf
    return _REFUSED_SECONDS if code == _REFUSED else _BRINGING_SECONDS
