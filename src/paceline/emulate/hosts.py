"""Several hosts on this machine with networks of their own, joined by a switch: for faults that a loopback address cannot have.

    with Hosts(2) as hosts:
        hosts.shape(1, rate_mbit=200, delay_ms=5)
        hosts.limit(1, cpus=0.5)
        agents = [hosts.run_in(i, ["paceline", "run", "--nnodes", "2", "--node-rank", str(i), "--master-addr", "algo-1", "train.py"])
                  for i in range(2)]

Each host has its own interfaces, addresses, ports, host name and /etc/hosts. It shares the machine's disks, process ids, clock, memory and
CPUs, unless limited. Needs root, iproute2 and util-linux; nothing of it can be seen in the machine's own network, so any number
of processes may do this at once. Hosts end with the block, with everything that runs in them, and also when this process dies.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paceline.emulate.keeper import READY, program
from paceline.emulate.limits import cpu_limit, memory_limit
from paceline.emulate.links import BRIDGE, Link, cannot_emulate, in_network
from paceline.emulate.sweep import creators_mark
from paceline.errors import UsageError

_MOST_HOSTS = 250


class Hosts:
    """`count` hosts, named algo-1, algo-2, ... and counted from 0, that live for a `with` block."""

    def __init__(self, count: int) -> None:
        if not 1 <= count <= _MOST_HOSTS:
            raise UsageError(
                "U03", f"{count} hosts cannot be made", saw=f"1 to {_MOST_HOSTS} fit", next="ask for fewer"
            )
        self.count = count
        self.names = tuple(f"algo-{number}" for number in range(1, count + 1))
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, 1)}
        self.links: list[Link] = []
        self._keepers: list[int] = []
        self._groups: list[list[Path]] = [[] for _ in self.names]
        self._limits = ExitStack()
        self._hosts = ExitStack()

    def address(self, index: int) -> str:
        return self.addresses[self.names[index]]

    def prefix(self, index: int) -> tuple[str, ...]:
        """The words to put before a command so that it runs in a host, below its limits, with the same pid all along."""
        groups = json.dumps([str(group) for group in self._groups[index]])
        return (*program("enter"), str(self._keepers[index]), groups)

    def run_in(self, index: int, words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in a host. `options` are those of subprocess.Popen."""
        return subprocess.Popen([*self.prefix(index), *words], **options)

    def shape(
        self,
        index: int,
        *,
        rate_mbit: float | None = None,
        delay_ms: float | None = None,
        loss_fraction: float | None = None,
    ) -> None:
        """Set the rate, delay or loss of a host's link, in each direction; what is not given stays as it is, 0 takes it away."""
        self.links[index].shape(rate_mbit=rate_mbit, delay_ms=delay_ms, loss_fraction=loss_fraction)

    def cut(self, index: int) -> None:
        self.links[index].cut()

    def mend(self, index: int) -> None:
        self.links[index].mend()

    def limit(self, index: int, *, cpus: float | None = None, memory_bytes: int | None = None) -> None:
        """Limit what is started in a host from now on, all of it together."""
        if cpus is not None:
            self._groups[index].append(self._limits.enter_context(cpu_limit(cpus)).directory)
        if memory_bytes is not None:
            self._groups[index].append(self._limits.enter_context(memory_limit(memory_bytes)).directory)

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise cannot_emulate(f"this is user {os.geteuid()}, not root")
        mark = creators_mark()
        try:
            switch = self._keep(mark, BRIDGE)
            in_network(switch, "ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0", "stp_state", "0")
            in_network(switch, "ip", "link", "set", BRIDGE, "up")
            self._keepers = [self._keep(mark, name) for name in self.names]
            for number, (name, keeper) in enumerate(zip(self.names, self._keepers, strict=True), 1):
                link = Link(host_pid=keeper, switch_pid=switch, port=f"port{number}")
                link.plug_in(self.addresses[name])
                self._hosts.callback(link.close)
                self.links.append(link)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything that runs in the hosts, then the hosts. A second call does nothing."""
        self._hosts.close()
        self._limits.close()

    def _keep(self, mark: str, name: str) -> int:
        """Start the process that holds one host's namespaces, and wait until they are there."""
        keeper = subprocess.Popen(
            [*program("main"), mark, name, json.dumps(self.addresses)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._hosts.callback(_dismiss, keeper)
        assert keeper.stdout is not None
        said = keeper.stdout.readline()
        if said != READY:
            raise cannot_emulate(f"{name}: {said.decode().strip() or 'its keeper ended at once'}")
        return keeper.pid


def _dismiss(keeper: subprocess.Popen[bytes]) -> None:
    with keeper:
        assert keeper.stdin is not None
        keeper.stdin.close()
