"""Checks the hosts of a job over SSH before it runs: the facts of each host, its clock, and the connections between the hosts."""

import asyncio
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from paceline.errors import UsageError
from paceline.launch.engines.ssh import preflight
from paceline.launch.engines.ssh.connection import ConnectionLost, SshConnection, host_of
from paceline.launch.engines.ssh.job import private_folder
from paceline.launch.engines.ssh.options import Settings
from paceline.rules.host_facts import HostFacts, TriedLink

# With more hosts, only some pairs are tried.
ALL_PAIRS_HOSTS = 16
_SAMPLED_PAIRS = 3
_RATE_BYTES = 8 << 20
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SeenHosts:
    """The facts of all hosts."""

    hosts: tuple[HostFacts, ...]
    """The hosts that answered."""
    links: tuple[TriedLink, ...]
    """The connections that were tried between these hosts."""
    refused: tuple[UsageError, ...]
    """Why the other hosts did not answer, one error per host."""


def look_at(settings: Settings, environ: Mapping[str, str]) -> SeenHosts:
    """Inspect all hosts at the same time, then let them connect to each other. Nothing is left on the hosts.

    Raises:  OSError: this machine has no ssh
    """
    return asyncio.run(_look_at(settings, environ))


async def _look_at(settings: Settings, environ: Mapping[str, str]) -> SeenHosts:
    folder = private_folder(environ)
    connections = [SshConnection(host, settings, folder, number) for number, host in enumerate(settings.hosts)]
    try:
        found = await asyncio.gather(*(_look(one, settings) for one in connections))
        hosts = {one: facts for one, facts in zip(connections, found, strict=True) if isinstance(facts, HostFacts)}
        refused = tuple(facts for facts in found if isinstance(facts, UsageError))
        return SeenHosts(tuple(hosts.values()), await _links(hosts, settings), refused)
    finally:
        await asyncio.gather(*(one.close() for one in connections))
        shutil.rmtree(folder, ignore_errors=True)


async def _look(connection: SshConnection, settings: Settings) -> HostFacts | UsageError:
    question = {"name": connection.host, "workdir": settings.workdir, "ports": []}
    try:
        await connection.open()
        answer = await connection.ask("host", question)
        began = time.time_ns()
        clock = await connection.ask("clock", {})
        ended = time.time_ns()
    except ConnectionLost as lost:
        return preflight.unreachable(settings, connection.host, lost)
    if "error" in answer:
        return UsageError(
            "E11",
            f"{connection.host} has no paceline that can look at it",
            saw=str(answer["error"]),
            next=f"ssh {connection.host} python3 -m pip install paceline",
        )
    facts = msgspec.convert(answer, HostFacts, str_keys=True)
    offset = (clock["time_ns"] - (began + ended) / 2) / 1e9
    return replace(facts, clock_offset_seconds=offset, clock_error_seconds=(ended - began) / 2e9)


async def _links(hosts: Mapping[SshConnection, HostFacts], settings: Settings) -> tuple[TriedLink, ...]:
    """Try a connection for each pair in each direction, or for some pairs of many hosts. Measure one rate per host, to the next host."""
    connections = list(hosts)
    if len(connections) < 2:
        return ()
    answers = await asyncio.gather(*(one.ask("listen", {}) for one in connections))
    addresses = await asyncio.gather(*(host_of(settings, one.host) for one in connections))
    targets = {
        one: {"name": one.host, "addresses": addresses_of(address, hosts[one]), "port": answer["port"]}
        for one, address, answer in zip(connections, addresses, answers, strict=True)
    }
    pairs = chosen_pairs(len(connections))
    tried: list[TriedLink] = []
    # The hosts measure one after the other, so that no measurement disturbs another.
    for place, source in enumerate(connections):
        following = (place + 1) % len(connections)
        wanted = [
            {**targets[connections[other]], "size_bytes": _RATE_BYTES if other == following else 0}
            for other in pairs[place]
        ]
        answer = await source.ask("connect", {"targets": wanted, "timeout_seconds": _CONNECT_SECONDS})
        tried += (msgspec.convert({"source": source.host, **link}, TriedLink) for link in answer["links"])
    return tuple(tried)


def addresses_of(ssh_address: str, host: HostFacts) -> list[str]:
    """Where the other hosts may reach a host: as SSH does, or at its own address. SSH may come through a public address or a proxy."""
    own = host.own_address
    return [ssh_address] if own is None or own.startswith(("127.", "::1")) else list(dict.fromkeys((ssh_address, own)))


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
