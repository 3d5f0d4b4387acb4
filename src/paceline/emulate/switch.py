"""Where the cables of all emulated hosts end: the kernel's bridge, or a relay in its place while frames are to be late or lost."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.emulate.links import cannot_emulate, in_network
from paceline.emulate.namespace_holder import READY, program
from paceline.errors import UsageError

BRIDGE = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayUse:
    """What the relay has used and moved since it began."""

    cpu_seconds: float
    """CPU time that it has used."""
    frame_count: int
    """Frames that it has handed on."""
    lost_count: int
    """Frames that were to be lost."""
    overflow_count: int
    """Frames that found a full queue."""


class Switch:
    """The switch in the network of process `pid`, with one port for each host, in order."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ports: list[str] = []
        self._relay: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Make the bridge.

        Raises:  UsageError U23: refused
        """
        self._run("ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0", "stp_state", "0")
        self._run("ip", "link", "set", BRIDGE, "up")

    def connect(self, port: str) -> None:
        """Take a cable's end in; before anything is late or lost."""
        self._run("ip", "link", "set", port, "master", BRIDGE, "up")
        self._ports.append(port)

    def route(self, delay_ms: Sequence[Sequence[float]], loss_fraction: Sequence[Sequence[float]]) -> None:
        """Delay and loss from each port (row) to each other one (column). All 0: the kernel's bridge does it alone.

        Raises:  UsageError U23: the relay is refused
        """
        if not any(map(any, delay_ms)) and not any(map(any, loss_fraction)):
            self._end_relay()
            return
        if self._relay is None:
            self._start_relay()
        self._ask({"delay_ms": delay_ms, "loss_fraction": loss_fraction})

    def relay_use(self) -> RelayUse | None:
        """None where the kernel's bridge does it alone."""
        return None if self._relay is None else RelayUse(**self._ask({}))

    def close(self) -> None:
        """End the relay, where there is one. The bridge goes with the network it is in."""
        self._end_relay(back_to_bridge=False)

    def _start_relay(self) -> None:
        self._relay = subprocess.Popen(
            ["nsenter", "-t", str(self.pid), "-n", *program("main", "relay"), *self._ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._hear(READY)
        # It throws away what it hears until it is told the delays, so that no frame arrives twice.
        for port in self._ports:
            self._run("ip", "link", "set", port, "nomaster")

    def _ask(self, settings: dict[str, Any]) -> dict[str, Any]:
        assert self._relay is not None and self._relay.stdin is not None
        try:
            self._relay.stdin.write(json.dumps(settings).encode() + b"\n")
            self._relay.stdin.flush()
        except BrokenPipeError as error:
            raise cannot_emulate("the relay between the hosts has ended") from error
        answer: dict[str, Any] = json.loads(self._hear())
        return answer

    def _hear(self, wanted: bytes | None = None) -> bytes:
        assert self._relay is not None and self._relay.stdout is not None
        said = self._relay.stdout.readline()
        if not said or (wanted is not None and said != wanted):
            raise cannot_emulate(f"the relay between the hosts: {said.decode().strip() or 'ended at once'}")
        return said

    def _end_relay(self, *, back_to_bridge: bool = True) -> None:
        relay, self._relay = self._relay, None
        if relay is None:
            return
        with relay:
            assert relay.stdin is not None
            relay.stdin.close()
        if back_to_bridge:
            for port in self._ports:
                try:
                    self._run("ip", "link", "set", port, "master", BRIDGE)
                except UsageError:
                    # The switch may be gone already.
                    return

    def _run(self, *argv: str) -> str:
        return in_network(self.pid, *argv)
