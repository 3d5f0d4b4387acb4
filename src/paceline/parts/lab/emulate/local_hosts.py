"""Runs several hosts on this machine, with one agent each: on loopback addresses, or in their own networks."""

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
from dataclasses import dataclass, replace
from types import FrameType

from paceline.errors import UsageError
from paceline.job_file import HostSetup, JobFile, job_descriptor
from paceline.namespaces import refusal
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.lab.emulate.links import INTERFACE
from paceline.parts.lab.emulate.measure import measure_network
from paceline.parts.lab.emulate.network import Network, network_events
from paceline.probes.ports import free_port
from paceline.terminal_text import write_line

LOOPBACK = "lo"
FIRST_ADDRESS = 2
_OWN_END_SECONDS = 2.0
_LOST = 200
_AGENTS_PORT = 29500
# The process that cleans up after an agent that was killed; see launch/agent/guardian.py.
_GUARDIAN = "job-guardian"


@dataclass(frozen=True, slots=True)
class _Ends:
    """The file descriptors of one agent."""

    lifeline: int
    """This pipe closes when the process that started the agent has ended."""
    relays: Sequence[tuple[int, int]] = ()
    """Pipes with the output of other agents, each with the descriptor to write the output to."""
    output: tuple[int, int] | None = None
    """The agent's stdout and stderr; None: those of this process."""


def local_addresses(count: int) -> dict[str, str]:
    """algo-1 -> 127.0.0.2, algo-2 -> 127.0.0.3, ... in host order.

    Holds: len == count; no two addresses are equal
    """
    return {
        f"algo-{number}": f"127.0.{(number - 1 + FIRST_ADDRESS) // 256}.{(number - 1 + FIRST_ADDRESS) % 256}"
        for number in range(1, count + 1)
    }


def run_local_hosts(count: int, file: JobFile, *, environ: Mapping[str, str], network: Network | None = None) -> int:
    """Start one agent per host, forward signals to the first agent, and return its exit code.

    Raises:  UsageError U23: this machine refuses loopback addresses; it refuses hosts with their own networks
    """
    if network is not None:
        return _in_own_networks(network, count, file, environ)
    addresses = local_addresses(count)
    refused = refusal()
    if refused is not None:
        write_line(f"paceline  no private /etc/hosts here ({refused}); addresses of algo-N are translated in the ranks")
    port = file.job.agents_port or _free_port(addresses["algo-1"])
    environment = _with_token(environ)
    # The interface on which the ranks' libraries connect, whatever the machine's own name resolves to.
    meets_on = {} if "GLOO_SOCKET_IFNAME" in environ else {"GLOO_SOCKET_IFNAME": LOOPBACK}
    setup = HostSetup(
        urls_are_checked=True,
        addresses=addresses,
        translated=refused is not None,
        environment=meets_on,
        network_interface=LOOPBACK,
        own_mounts=refused is None,
    )
    # A host without its own network gets its own /etc/hosts before its agent starts.
    program = ["paceline.parts.lab.emulate.own_hosts_file", json.dumps(addresses)] if refused is None else ["paceline"]

    def start(node_rank: int, ends: _Ends) -> subprocess.Popen[bytes]:
        told = _on_host(file, setup, node_rank, port, "algo-1" if refused is None else addresses["algo-1"])
        return _start_agent(told, ends, environment, [sys.executable, "-P", "-m", *program])

    return _run_agents(count, start)


def _in_own_networks(network: Network, count: int, file: JobFile, environ: Mapping[str, str]) -> int:
    with _refusals_told(), Hosts(count, network, last_words=_GUARDIAN) as hosts:
        delivered = measure_network(hosts) if network.shapes_links else None
        # The measurement comes before the limits: it measures the network, and the limits belong to the job.
        hosts.limit_all()
        events = (*file.setup.events, *network_events(network, hosts.names, delivered, os.cpu_count()))
        environment = _with_token(environ)
        # A host with its own network has only this interface. The user's variable names an interface of the machine.
        setup = HostSetup(
            urls_are_checked=True,
            addresses=hosts.addresses,
            environment={"GLOO_SOCKET_IFNAME": INTERFACE, "NCCL_SOCKET_IFNAME": INTERFACE},
            network_interface=INTERFACE,
            own_mounts=True,
        )

        def start(node_rank: int, ends: _Ends) -> subprocess.Popen[bytes]:
            own = replace(setup, events=events if node_rank == 0 else ())
            told = _on_host(file, own, node_rank, file.job.agents_port or _AGENTS_PORT, hosts.names[0])
            command = [*hosts.prefix(node_rank), sys.executable, "-P", "-m", "paceline"]
            return _start_agent(told, ends, environment, command)

        return _run_agents(count, start)


def _on_host(file: JobFile, setup: HostSetup, node_rank: int, port: int, first: str) -> JobFile:
    """The job file for this host's agent. `first`: the address of the first host."""
    name = list(setup.addresses)[node_rank]
    job = replace(
        file.job,
        node_rank=node_rank,
        host_name=name,
        master_addr=first,
        agents_port=port,
        is_first=node_rank == 0,
        local_address=setup.addresses[name],
    )
    return replace(file, job=job, setup=replace(setup, quiet=node_rank != 0))


@contextmanager
def _refusals_told() -> Iterator[None]:
    """Turn a refusal of this machine into an error that lists the remaining ways.

    Raises:  UsageError U23
    """
    try:
        yield
    except UsageError as refused:
        raise UsageError(
            "U23",
            "local hosts cannot have networks or limits of their own here",
            saw=refused.saw,
            next="sudo paceline run ...",
        ) from refused


def _with_token(environ: Mapping[str, str]) -> Mapping[str, str]:
    return {**environ, "PACELINE_TOKEN": environ.get("PACELINE_TOKEN") or secrets.token_hex(16)}


def _run_agents(count: int, start: Callable[[int, _Ends], subprocess.Popen[bytes]]) -> int:
    """Start an agent for each host, with one end of a lifeline pipe, and wait until all have ended. Returns the first agent's exit code."""
    lifeline, held = os.pipe()
    pipes = [(os.pipe(), os.pipe()) for _ in range(count - 1)]
    relays = [(pipe[0], fd) for pair in pipes for pipe, fd in zip(pair, (1, 2), strict=True)]
    agents: list[subprocess.Popen[bytes]] = []
    try:
        agents.append(start(0, _Ends(lifeline, relays=relays)))
        agents += [start(place, _Ends(lifeline, output=(out[1], err[1]))) for place, (out, err) in enumerate(pipes, 1)]
        for fd in (lifeline, *(pipe[1] for pair in pipes for pipe in pair)):
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
    """Give the agents time to end. An agent that reached the first agent learns from it that the job ended, and can say why.

    If the lifeline closed at once, the agent would only know that the lifeline closed.
    """
    ends_at = time.monotonic() + _OWN_END_SECONDS
    while any(agent.poll() is None for agent in agents) and time.monotonic() < ends_at:
        time.sleep(0.02)


def _bring_the_rest(relays: Sequence[tuple[int, int]]) -> None:
    """After the first agent has ended, print the output of the other agents, in whole lines, until all have ended."""
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
                # A reader that closes the pipe early (`| head`) must not end the job.
                with suppress(OSError):
                    os.write(key.data, lines + newline)


def _free_port(address: str) -> int:
    try:
        return free_port(address)
    except OSError as error:
        raise UsageError(
            "U23",
            "hosts on this machine cannot be made: their loopback addresses are refused",
            saw=f"{address}: {error.strerror}",
            next="leave --local-hosts out",
        ) from error


def _start_agent(
    file: JobFile, ends: _Ends, environment: Mapping[str, str], command: Sequence[str]
) -> subprocess.Popen[bytes]:
    file = replace(file, setup=replace(file.setup, leash=ends.lifeline, relays=tuple(ends.relays)))
    out, err = ends.output or (None, None)
    with job_descriptor(file) as (descriptor, argv):
        # The agent gets its own session. So Ctrl-C reaches it once, through this process, and not a second time from the terminal.
        return subprocess.Popen(
            [*command, *argv],
            env=environment,
            stdout=out,
            stderr=err,
            pass_fds=[descriptor, ends.lifeline, *(reading for reading, _ in ends.relays)],
            start_new_session=True,
        )


def _wait(agents: Sequence[subprocess.Popen[bytes]]) -> int:
    """Forward signals until the first agent has ended. Returns its exit code, or 200 if it was killed before it could give one.

    Without the first agent there is no job. Agents that never reached it are then ended by their lifeline, so they must not wait for it.
    """
    passed_on: set[int] = set()

    def forward(number: int, frame: FrameType | None) -> None:
        passed_on.add(number)
        alive = [agent for agent in agents if agent.poll() is None]
        # The first agent tells the other agents. If it has ended, this process tells each of them.
        for agent in [alive[0]] if alive and alive[0] is agents[0] else alive:
            agent.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, forward)
    code = agents[0].wait()
    if -code in passed_on:
        return 128 - code
    return code if code >= 0 else _LOST
