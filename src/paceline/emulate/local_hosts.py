"""Several hosts on this machine: one agent each, with a name, a loopback address and a private /etc/hosts of its own."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import FrameType

from paceline.emulate.namespace import refusal
from paceline.errors import UsageError
from paceline.facts import Job
from paceline.probes.ports import free_port

FIRST_ADDRESS = 2
_LOST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHost:
    """What one agent of a local cluster is told by whoever starts it. `private_hosts` False: names are translated in the ranks."""

    node_rank: int
    name: str
    addresses: dict[str, str]
    port: int
    leash: int
    private_hosts: bool


def local_addresses(count: int) -> dict[str, str]:
    """algo-1 -> 127.0.0.2, algo-2 -> 127.0.0.3, ... in host order.

    Holds: len == count; no two addresses are equal
    """
    return {
        f"algo-{number}": f"127.0.{(number - 1 + FIRST_ADDRESS) // 256}.{(number - 1 + FIRST_ADDRESS) % 256}"
        for number in range(1, count + 1)
    }


def run_local_hosts(count: int, job: Job, words: Sequence[str], *, environ: Mapping[str, str]) -> int:
    """Start one agent per host, pass signals on to the first, and return the first agent's exit code."""
    addresses = local_addresses(count)
    refused = refusal()
    if refused is not None:
        text = f"paceline  no private /etc/hosts here ({refused}); addresses of algo-N are translated in the ranks\n"
        os.write(2, text.encode())
    port = job.agents_port or _free_port(addresses["algo-1"])
    environment = {**environ, "PACELINE_TOKEN": environ.get("PACELINE_TOKEN") or secrets.token_hex(16)}
    leash, held = os.pipe()
    agents = []
    for node_rank, name in enumerate(addresses):
        host = LocalHost(
            node_rank=node_rank,
            name=name,
            addresses=addresses,
            port=port,
            leash=leash,
            private_hosts=refused is None,
        )
        agents.append(_start_agent(host, words, environment))
    os.close(leash)
    try:
        return _wait(agents)
    finally:
        os.close(held)
        for agent in agents:
            agent.wait()


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


def _start_agent(host: LocalHost, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A session of its own, so that Ctrl-C reaches the agents once, through us, and not a second time from the terminal.
    return subprocess.Popen(
        [sys.executable, "-m", "paceline.cli.local_host", json.dumps(asdict(host)), *words],
        env=environment,
        pass_fds=[host.leash],
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
