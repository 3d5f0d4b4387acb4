"""Starts the calling script once per host, on hosts with networks of their own on this machine. Needs root."""

import subprocess
import sys
from collections.abc import Callable

from paceline.parts.lab.emulate.hosts import Hosts


def start(count: int, prepare: Callable[[Hosts], None]) -> int:
    """`paceline run` of this script and its arguments on `count` hosts, after `prepare` has spoiled them; the first host's exit code."""
    with Hosts(count) as hosts:
        prepare(hosts)
        run = [sys.executable, "-m", "paceline", "run", "--nnodes", str(count), "--master-addr", "algo-1"]
        agents = [
            hosts.run_in(
                index,
                [*run, "--node-rank", str(index), *sys.argv],
                stdout=None if index == 0 else subprocess.DEVNULL,
                stderr=None if index == 0 else subprocess.DEVNULL,
            )
            for index in range(count)
        ]
        codes = [agent.wait() for agent in agents]
    return codes[0]
