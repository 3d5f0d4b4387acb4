"""Looks at the hosts of a job before it runs: the facts of each host, its clock, and the connections between the hosts.

All engines do this in the same way. Only how a program is started on a host is the engine's own: `HostStarter.start_on_hosts`.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import msgspec

from paceline.clone import CLONE
from paceline.errors import PacelineError, UsageError
from paceline.findings import Unknown
from paceline.parts.engines.remote_program import ConnectionLost
from paceline.parts.engines.ssh import remote
from paceline.parts.engines.submission import Submission
from paceline.rules.host_facts import HostFacts, TriedLink

# With more hosts, only some pairs are tried.
ALL_PAIRS_HOSTS = 16
WAIT_SECONDS = 30.0
"""How long a check waits for hosts that are in use by other jobs."""
_SAMPLED_PAIRS = 3
_RATE_BYTES = 8 << 20
_CONNECT_SECONDS = 5.0
# On a loaded host, a Python takes many seconds to start.
_ANSWER_SECONDS = 60.0


class Answers(Protocol):
    """The remote program (ssh/remote.py) on one host."""

    async def ask(self, do: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The program's answer to one request.

        Raises:  ConnectionLost: there is no answer
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedHost:
    """One host of the job, on which the engine has started the remote program."""

    name: str
    """The host as messages name it."""
    program: Answers
    """The program there."""
    address: str
    """Where the other hosts of the job look for this host."""
    directory: str
    """The directory of recordings on that host; empty: below its temporary directory."""
    ports: Sequence[int] = ()
    """The ports of that host on which the job will listen."""
    why_lost: Callable[[ConnectionLost], PacelineError]
    """The engine's words for a program that does not answer."""


@runtime_checkable
class HostStarter(Protocol):
    """An engine that can start a program on the hosts which a job would get."""

    def start_on_hosts(
        self, job: Submission, wait_seconds: float
    ) -> AbstractAsyncContextManager[Sequence[StartedHost]]:
        """The hosts, in order of node rank. The programs end with the block, and nothing of them is left on the engine.

        `wait_seconds`: how long to wait for hosts that other jobs use.

        Raises:  Unknown: no program can be started there now; PacelineError: the engine would refuse the job too
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHosts:
    """What a look at the hosts of a job has shown."""

    hosts: tuple[HostFacts, ...] = ()
    """The hosts that answered."""
    links: tuple[TriedLink, ...] = ()
    """The connections that were tried between these hosts."""
    refused: tuple[PacelineError, ...] = ()
    """Why other hosts did not answer, one error per host; or why the engine would not start this job."""
    unknown: str = ""
    """Why no host could be looked at; empty: the engine started the programs, or refused to."""


def look_at(engine: object, job: Submission, wait_seconds: float = WAIT_SECONDS) -> SeenHosts:
    """Look at all hosts of the job at the same time, then let them connect to each other. Nothing is left on the hosts."""
    if not isinstance(engine, HostStarter):
        return SeenHosts(unknown="the hosts of the job: the engine starts no program there before the job")
    return asyncio.run(_look_at(engine, job, wait_seconds))


async def _look_at(engine: HostStarter, job: Submission, wait_seconds: float) -> SeenHosts:
    try:
        async with engine.start_on_hosts(job, wait_seconds) as started:
            return await _look_at_started(started)
    except Unknown as unknown:
        return SeenHosts(unknown=str(unknown))
    except PacelineError as refused:
        return SeenHosts(refused=(refused,))


async def _look_at_started(started: Sequence[StartedHost]) -> SeenHosts:
    survey = _HostSurvey()
    facts = await asyncio.gather(*(survey.facts_of(host) for host in started))
    seen = {host.name: fact for host, fact in zip(started, facts, strict=True) if fact is not None}
    links = await survey.links_of([host for host in started if host.name in seen], seen)
    return SeenHosts(hosts=tuple(seen.values()), links=links, refused=tuple(survey.refused.values()))


@dataclass(slots=True)
class _HostSurvey:
    """One survey of the hosts of a job; `refused` has the hosts that stopped answering."""

    refused: dict[str, PacelineError] = field(default_factory=dict)

    async def facts_of(self, host: StartedHost) -> HostFacts | None:
        answer = await self._ask(
            host, "host", {"name": host.name, "workdir": host.directory, "ports": list(host.ports)}
        )
        began = time.time_ns()
        clock = await self._ask(host, "clock", {}) if answer is not None else None
        ended = time.time_ns()
        if answer is None or clock is None:
            return None
        if "error" in answer:
            self.refused[host.name] = _no_paceline(host.name, str(answer["error"]))
            return None
        offset = (clock["time_ns"] - (began + ended) / 2) / 1e9
        facts = msgspec.convert(answer, HostFacts, str_keys=True)
        return replace(facts, clock_offset_seconds=offset, clock_error_seconds=(ended - began) / 2e9)

    async def links_of(self, hosts: Sequence[StartedHost], seen: Mapping[str, HostFacts]) -> tuple[TriedLink, ...]:
        """Try a connection for each pair in each direction, or for some pairs of many hosts. One rate per host, to the next host."""
        listening = await asyncio.gather(*(self._ask(host, "listen", {}) for host in hosts)) if len(hosts) > 1 else []
        ports = {
            host.name: answer["port"] for host, answer in zip(hosts, listening, strict=False) if answer is not None
        }
        ready = [host for host in hosts if host.name in ports]
        if len(ready) < 2:
            return ()
        targets = [
            {"name": host.name, "addresses": addresses_of(host.address, seen[host.name]), "port": ports[host.name]}
            for host in ready
        ]
        tried: list[TriedLink] = []
        # The hosts measure one after the other, so that no measurement disturbs another.
        for place, (source, others) in enumerate(zip(ready, chosen_pairs(len(ready)), strict=True)):
            following = (place + 1) % len(ready)
            wanted = [{**targets[other], "size_bytes": _RATE_BYTES if other == following else 0} for other in others]
            longest = _CONNECT_SECONDS * sum(
                len(addresses_of(ready[other].address, seen[ready[other].name])) for other in others
            )
            question = {"targets": wanted, "timeout_seconds": _CONNECT_SECONDS}
            answer = await self._ask(source, "connect", question, _ANSWER_SECONDS + longest)
            if answer is not None:
                tried += (msgspec.convert({"source": source.name, **link}, TriedLink) for link in answer["links"])
        return tuple(tried)

    async def _ask(
        self, host: StartedHost, do: str, question: Mapping[str, Any], seconds: float = _ANSWER_SECONDS
    ) -> dict[str, Any] | None:
        """The answer; None: there is none, and `refused` has the reason."""
        try:
            return await asyncio.wait_for(host.program.ask(do, question), seconds)
        except ConnectionLost as lost:
            self.refused[host.name] = host.why_lost(lost)
        except TimeoutError:
            self.refused[host.name] = host.why_lost(ConnectionLost("", f"no answer within {seconds:.0f} s", None))
        return None


@dataclass(frozen=True, slots=True)
class ThisHost:
    """The remote program's answers for this machine, from this process itself."""

    async def ask(self, do: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of this machine."""
        return remote.answer({"do": do, **question})


@asynccontextmanager
async def this_machine(name: str, directory: str, ports: Sequence[int] = ()) -> AsyncIterator[Sequence[StartedHost]]:
    """This machine as the only host, for engines that start ranks here."""
    yield (
        StartedHost(
            name=name,
            program=ThisHost(),
            address=name,
            directory=directory,
            ports=ports,
            why_lost=lambda lost: _no_paceline(name, str(lost)),
        ),
    )


def nodes_in_use(hosts: int, wait_seconds: float, free: str = "") -> Unknown:
    """Why nothing is known about the hosts: other jobs use the nodes. `free`: what of the cluster is free, in words."""
    many = f"{hosts} nodes were" if hosts > 1 else "node was"
    return Unknown(f"the nodes of the job: no {many} free within {wait_seconds:g} s{free}")


def addresses_of(looked_for: str, host: HostFacts) -> list[str]:
    """Where the other hosts may reach a host: at the engine's address, or at its own. ssh may come through a public address or a proxy."""
    own = host.own_address
    return [looked_for] if own is None or own.startswith(("127.", "::1")) else list(dict.fromkeys((looked_for, own)))


def chosen_pairs(count: int) -> list[list[int]]:
    """Host -> the hosts to which it connects: all hosts. With many hosts: the next host and a few more, the same each time.

    Holds:   no host connects to itself, and every host connects to the next host
    """
    chance = random.Random(count)
    pairs = []
    for place in range(count):
        others = [other for other in range(count) if other != place]
        if count > ALL_PAIRS_HOSTS:
            following = (place + 1) % count
            others = [following, *chance.sample([other for other in others if other != following], _SAMPLED_PAIRS)]
        pairs.append(others)
    return pairs


def _no_paceline(host: str, why: str) -> UsageError:
    return UsageError(
        "E11",
        f"{host} has no paceline that can look at it",
        saw=why,
        next=f"on {host}: python3 -m pip install {CLONE}",
    )
