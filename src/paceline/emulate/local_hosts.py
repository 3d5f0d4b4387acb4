"""Several hosts on this machine, one agent each: with loopback addresses, or in networks of their own."""

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from paceline.emulate.hosts import Hosts
from paceline.emulate.links import INTERFACE
from paceline.emulate.measure import measure_network
from paceline.emulate.namespace import refusal
from paceline.emulate.network import Network, network_events
from paceline.errors import UsageError
from paceline.facts import Job
from paceline.probes.ports import free_port
from paceline.terminal_text import write_line

LOOPBACK = "lo"
FIRST_ADDRESS = 2
_OWN_END_SECONDS = 2.0
_LOST = 200
_AGENTS_PORT = 29500
# What clears up behind an agent that was killed; see launch/agent/guardian.py.
_GUARDIAN = "job-guardian"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHost:
    """What one agent of a local cluster is told by whoever starts it.

    `private_hosts` False: names are translated in the ranks. `interface`: the one that leads to the other hosts. `events`: what happened
    before there was a recording; for the first host to put there. `relays`: for the first host, the pipes that the other agents' output
    comes from, each with the descriptor that it is to be written to: the terminal has one writer.
    """

    node_rank: int
    name: str
    addresses: dict[str, str]
    port: int
    leash: int
    private_hosts: bool
    interface: str = LOOPBACK
    events: list[dict[str, Any]] = field(default_factory=list)
    relays: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class _Ends:
    """The descriptors that one agent is started with. `output`: its stdout and stderr; None for those of this process."""

    leash: int
    relays: Sequence[tuple[int, int]] = ()
    output: tuple[int, int] | None = None


def local_addresses(count: int) -> dict[str, str]:
    """algo-1 -> 127.0.0.2, algo-2 -> 127.0.0.3, ... in host order.

    Holds: len == count; no two addresses are equal
    """
    return {
        f"algo-{number}": f"127.0.{(number - 1 + FIRST_ADDRESS) // 256}.{(number - 1 + FIRST_ADDRESS) % 256}"
        for number in range(1, count + 1)
    }


def run_local_hosts(
    count: int, job: Job, argv: Sequence[str], *, environ: Mapping[str, str], network: Network | None = None
) -> int:
    """Start one agent per host, pass signals on to the first, and return the first agent's exit code.

    Raises:  UsageError U14: loopback addresses are refused; X33: networks of their own are
    """
    if network is not None:
        return _in_own_networks(network, count, job, argv, environ)
    addresses = local_addresses(count)
    refused = refusal()
    if refused is not None:
        write_line(f"paceline  no private /etc/hosts here ({refused}); addresses of algo-N are translated in the ranks")

    def start(node_rank: int, ends: _Ends) -> subprocess.Popen[bytes]:
        host = LocalHost(
            node_rank=node_rank,
            name=f"algo-{node_rank + 1}",
            addresses=addresses,
            port=port,
            leash=ends.leash,
            private_hosts=refused is None,
            relays=ends.relays,
        )
        return _start_agent(host, ends, argv, environment)

    port = job.agents_port or _free_port(addresses["algo-1"])
    environment = _with_token(environ)
    return _run_agents(count, start)


def _in_own_networks(network: Network, count: int, job: Job, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    with _refusals_told(), Hosts(count, network, last_words=_GUARDIAN) as hosts:
        delivered = measure_network(hosts) if network.shapes_links else None
        # What was measured is the network; what a limited host makes of it is the job's.
        hosts.limit_all()
        events = network_events(network, hosts.names, delivered, os.cpu_count())
        environment = _with_token(environ)

        def start(node_rank: int, ends: _Ends) -> subprocess.Popen[bytes]:
            host = LocalHost(
                node_rank=node_rank,
                name=hosts.names[node_rank],
                addresses=hosts.addresses,
                port=job.agents_port or _AGENTS_PORT,
                leash=ends.leash,
                relays=ends.relays,
                private_hosts=True,
                interface=INTERFACE,
                events=events if node_rank == 0 else [],
            )
            return _start_agent(host, ends, argv, environment, hosts.prefix(node_rank))

        return _run_agents(count, start)


@contextmanager
def _refusals_told() -> Iterator[None]:
    """What the machine refuses, with the ways that are left.

    Raises:  UsageError X33
    """
    try:
        yield
    except UsageError as refused:
        raise UsageError(
            "X33",
            "local hosts cannot have networks or limits of their own here",
            saw=refused.saw,
            next="sudo paceline run ..., or leave --link-*, --zones, --zone-delay and --host-* out",
        ) from refused


def _with_token(environ: Mapping[str, str]) -> Mapping[str, str]:
    return {**environ, "PACELINE_TOKEN": environ.get("PACELINE_TOKEN") or secrets.token_hex(16)}


def _run_agents(count: int, start: Callable[[int, _Ends], subprocess.Popen[bytes]]) -> int:
    """Start an agent for each host with one end of a leash, and stay until all have ended; the first one's exit code."""
    leash, held = os.pipe()
    pipes = [(os.pipe(), os.pipe()) for _ in range(count - 1)]
    relays = [(pipe[0], fd) for pair in pipes for pipe, fd in zip(pair, (1, 2), strict=True)]
    agents: list[subprocess.Popen[bytes]] = []
    try:
        agents.append(start(0, _Ends(leash, relays=relays)))
        agents += [start(place, _Ends(leash, output=(out[1], err[1]))) for place, (out, err) in enumerate(pipes, 1)]
        for fd in (leash, *(pipe[1] for pair in pipes for pipe in pair)):
            os.close(fd)
        return _wait(agents)
    finally:
        if len(agents) == count:
            _let_end(agents)
        os.close(held)
        if len(agents) == count:
            _bring_the_rest(relays)
        for agent in agents:
            agent.wait()


def _let_end(agents: Sequence[subprocess.Popen[bytes]]) -> None:
    """Those that had reached the first agent know of its end, and say why they end; a leash let go at once would be all they know of."""
    ends_at = time.monotonic() + _OWN_END_SECONDS
    while any(agent.poll() is None for agent in agents) and time.monotonic() < ends_at:
        time.sleep(0.02)


def _bring_the_rest(relays: Sequence[tuple[int, int]]) -> None:
    """What the other agents print once the first one, which had the terminal, has ended: whole lines, until all have ended."""
    with selectors.DefaultSelector() as selector:
        for reading, fd in relays:
            selector.register(reading, selectors.EVENT_READ, fd)
        rests = dict.fromkeys((reading for reading, _ in relays), b"")
        while selector.get_map():
            for key, _ in selector.select():
                chunk = os.read(key.fd, 1 << 16)
                lines, newline, rest = (rests[key.fd] + chunk).rpartition(b"\n")
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    lines, newline, rest = rests[key.fd], b"\n" if rests[key.fd] else b"", b""
                rests[key.fd] = rest
                # A reader that left (`| head`) ends no job.
                with suppress(OSError):
                    os.write(key.data, lines + newline)


def _free_port(address: str) -> int:
    try:
        return free_port(address)
    except OSError as error:
        raise UsageError(
            "U14",
            "hosts on this machine cannot be made: their loopback addresses are refused",
            saw=f"{address}: {error.strerror}",
            next="paceline run --nproc-per-node N ...",
        ) from error


def _start_agent(
    host: LocalHost, ends: _Ends, argv: Sequence[str], environment: Mapping[str, str], prefix: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    out, err = ends.output or (None, None)
    # A session of its own, so that Ctrl-C reaches the agents once, through us, and not a second time from the terminal.
    return subprocess.Popen(
        [*prefix, sys.executable, "-P", "-m", "paceline.cli.programs.local_host", json.dumps(asdict(host)), *argv],
        env=environment,
        stdout=out,
        stderr=err,
        pass_fds=[ends.leash, *(reading for reading, _ in ends.relays)],
        start_new_session=True,
    )


def _wait(agents: Sequence[subprocess.Popen[bytes]]) -> int:
    """Pass signals on until the first agent has ended; its code, or 200 where it did not live to give one.

    Without it there is no job: those that never reached it are then ended by their leash, and must not wait for it.
    """
    passed_on: set[int] = set()

    def forward(number: int, frame: FrameType | None) -> None:
        passed_on.add(number)
        alive = [agent for agent in agents if agent.poll() is None]
        # The first agent tells the others; where it is gone, each is told.
        for agent in [alive[0]] if alive and alive[0] is agents[0] else alive:
            agent.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, forward)
    code = agents[0].wait()
    if -code in passed_on:
        return 128 - code
    return code if code >= 0 else _LOST
