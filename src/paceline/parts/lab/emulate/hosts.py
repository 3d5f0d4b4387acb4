"""Several hosts on this machine with their own networks, joined by a switch: they can have faults that a loopback address cannot have.

    with Hosts(2) as hosts:
        hosts.shape(1, rate_mbit=200, delay_ms=5)
        hosts.limit(1, cpus=0.5)
        agents = [hosts.run_in(i, ["paceline", "run", "--nnodes", "2", "--node-rank", str(i), "--master-addr", "algo-1", "train.py"])
                  for i in range(2)]

    with Hosts(4, Network(rate_mbit=100, delay_ms=10, zone_count=2, zone_delay_ms=1)) as hosts:
        delivered = measure_network(hosts)

Each host has its own interfaces, addresses, ports, host name and /etc/hosts. It shares the machine's disks, process ids, clock, memory and
CPUs, unless they are limited. The hosts need root, iproute2 and util-linux. They are invisible in the machine's own network, so any number
of processes may have hosts at the same time. The hosts and everything in them end with the block, and also when this process dies.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paceline.errors import UsageError
from paceline.parts.lab.emulate.cleanup import creators_mark
from paceline.parts.lab.emulate.limits import Limited, cpu_limit, memory_limit
from paceline.parts.lab.emulate.links import VirtualLink, cannot_emulate
from paceline.parts.lab.emulate.namespace_holder import READY, end_neighbours, program
from paceline.parts.lab.emulate.network import Network
from paceline.parts.lab.emulate.switch import BRIDGE, RelayUse, Switch

__all__ = ["Hosts"]

_MOST_HOSTS = 250


class Hosts:
    """`count` hosts, named algo-1, algo-2, ... and counted from 0. They exist for a `with` block, and `network` joins them.

    A process with `last_words` in its command line cleans up after other processes. When the hosts end, it gets a few seconds to
    end by itself after all the others have ended.
    """

    def __init__(self, count: int, network: Network | None = None, *, last_words: str = "") -> None:
        if not 1 <= count <= _MOST_HOSTS:
            raise UsageError(
                "U03", f"{count} hosts cannot be made", saw=f"1 to {_MOST_HOSTS} fit", next="ask for fewer"
            )
        self.count = count
        self.names = tuple(f"algo-{number}" for number in range(1, count + 1))
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, 1)}
        self.network = network or Network()
        self.links: list[VirtualLink] = []
        self._last_words = last_words
        self._switch: Switch | None = None
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._groups: list[list[Path]] = [[] for _ in self.names]
        self._limits = ExitStack()
        self._hosts = ExitStack()
        self._whole_frames = True

    def address(self, index: int) -> str:
        """The address of this host for the other hosts."""
        return self.addresses[self.names[index]]

    def prefix(self, index: int) -> tuple[str, ...]:
        """The words to put before a command so that it runs in a host, below the host's limits. The command keeps its pid."""
        groups = json.dumps([str(group) for group in self._groups[index]])
        return (*program("enter"), str(self._keepers[index].pid), groups)

    def run_in(self, index: int, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in a host. `options` are those of subprocess.Popen."""
        return subprocess.Popen([*self.prefix(index), *argv], **options)

    def shape(
        self,
        index: int,
        *,
        rate_mbit: float | None = None,
        delay_ms: float | None = None,
        loss_fraction: float | None = None,
    ) -> None:
        """Set the rate, delay or loss of a host's link, in each direction. None leaves a value unchanged; 0 removes it.

        Delay and loss are added to those of the network.
        """
        link = self.links[index]
        if rate_mbit is not None:
            link.set_rate(rate_mbit)
        if delay_ms is not None or loss_fraction is not None:
            link.delay_ms = link.delay_ms if delay_ms is None else delay_ms
            link.loss_fraction = link.loss_fraction if loss_fraction is None else loss_fraction
            self._route()

    def one_way_ms(self, source: int, target: int) -> float:
        """The configured delay from one host to another."""
        own = self.links[source].delay_ms + self.links[target].delay_ms
        return self.network.one_way_ms(self.count)[source][target] + own

    def relay_use(self) -> RelayUse | None:
        """What the relay between the hosts has used so far; None if no relay runs and the kernel's bridge forwards all frames."""
        return None if self._switch is None else self._switch.relay_use()

    def cut(self, index: int) -> None:
        """Disconnect a host's cable."""
        self.links[index].cut()

    def mend(self, index: int) -> None:
        """Connect a host's cable again."""
        self.links[index].mend()

    def keeper_pid(self, index: int) -> int:
        """The process that holds a host's network. Every process in the host is in the same network."""
        return self._keepers[index].pid

    def power_off(self, index: int) -> None:
        """Cut the host's power: disconnect the cable first, so that no connection closes properly, then kill every process in the host."""
        self.cut(index)
        end_neighbours(self.keeper_pid(index))

    def limit(self, index: int, *, cpus: float | None = None, memory_bytes: int | None = None) -> None:
        """Limit the processes that start in a host from now on, all of them together."""
        if cpus is not None:
            self._limit(index, cpu_limit(cpus))
        if memory_bytes is not None:
            self._limit(index, memory_limit(memory_bytes))

    def limit_all(self) -> None:
        """Apply the network's limits to every host. This is separate from entering the block, so that a measurement can come first."""
        for index in range(self.count):
            self.limit(index, cpus=self.network.host_cpus, memory_bytes=self.network.host_memory_bytes)

    def _limit(self, index: int, group: AbstractContextManager[Limited]) -> None:
        directory = self._limits.enter_context(group).directory
        self._groups[index].append(directory)
        # If this process dies, the host's holder process removes the group.
        keeper = self._keepers[index]
        assert keeper.stdin is not None
        keeper.stdin.write(f"{directory}\n".encode())
        keeper.stdin.flush()

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise cannot_emulate(f"this is user {os.geteuid()}, not root")
        mark = creators_mark()
        try:
            self._switch = Switch(self._keep(mark, BRIDGE).pid)
            self._hosts.callback(self._switch.close)
            self._switch.open()
            self._keepers = [self._keep(mark, name) for name in self.names]
            for number, (name, keeper) in enumerate(zip(self.names, self._keepers, strict=True), 1):
                link = VirtualLink(host_pid=keeper.pid, switch_pid=self._switch.pid, port=f"port{number}")
                link.plug_in(self.addresses[name])
                self._switch.connect(link.port)
                self.links.append(link)
                if self.network.rate_mbit:
                    link.set_rate(self.network.rate_mbit)
            self._route()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process in the hosts, then the hosts. A second call does nothing."""
        self._hosts.close()
        self._limits.close()

    def _route(self) -> None:
        """Send the delay and loss between each two hosts to the switch."""
        assert self._switch is not None
        kept = [
            [(1 - self.network.loss_fraction) * (1 - a.loss_fraction) * (1 - b.loss_fraction) for b in self.links]
            for a in self.links
        ]
        indexes = range(self.count)
        loss = [[0.0 if i == j else 1 - kept[i][j] for j in indexes] for i in indexes]
        delay = [[0.0 if i == j else self.one_way_ms(i, j) for j in indexes] for i in indexes]
        whole = not any(map(any, loss))
        if whole != self._whole_frames:
            for link in self.links:
                link.set_frames(whole=whole)
            self._whole_frames = whole
        self._switch.route(delay, loss)

    def _keep(self, mark: str, name: str) -> subprocess.Popen[bytes]:
        """Start the process that holds one host's namespaces, and wait until the namespaces exist."""
        keeper = subprocess.Popen(
            [*program("main"), mark, name, json.dumps(self.addresses), self._last_words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._hosts.callback(_dismiss, keeper)
        assert keeper.stdout is not None
        said = keeper.stdout.readline()
        if said != READY:
            raise cannot_emulate(f"{name}: {said.decode().strip() or 'its keeper ended at once'}")
        return keeper


def _dismiss(keeper: subprocess.Popen[bytes]) -> None:
    with keeper:
        assert keeper.stdin is not None
        keeper.stdin.close()
