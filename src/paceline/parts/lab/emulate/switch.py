"""The switch at which the cables of all emulated hosts end: the kernel's bridge, or a relay while frames are delayed or lost."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import UsageError
from paceline.parts.lab.emulate.links import cannot_emulate, in_network
from paceline.parts.lab.emulate.namespace_holder import READY, program

BRIDGE = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayUse:
    """What the relay has used and moved since its start."""

    cpu_seconds: float
    """Seconds of CPU time."""
    frame_count: int
    """Frames that the relay has passed on."""
    lost_count: int
    """Frames that the relay lost as configured."""
    overflow_count: int
    """Frames that were lost because a queue was full."""


class Switch:
    """The switch in the network of process `pid`, with one port for each host, in order."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ports: list[str] = []
        self._relay: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Create the bridge.

        Raises:  UsageError U23: the machine refused it
        """
        self._run("ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0", "stp_state", "0")
        self._run("ip", "link", "set", BRIDGE, "up")

    def connect(self, port: str) -> None:
        """Connect a cable's end. Call this before `route`."""
        self._run("ip", "link", "set", port, "master", BRIDGE, "up")
        self._ports.append(port)

    def route(self, delay_ms: Sequence[Sequence[float]], loss_fraction: Sequence[Sequence[float]]) -> None:
        """Set delay and loss from each port (row) to each other port (column). If all are 0, the kernel's bridge forwards the frames.

        Raises:  UsageError U23: the relay cannot start
        """
        if not any(map(any, delay_ms)) and not any(map(any, loss_fraction)):
            self._end_relay()
            return
        if self._relay is None:
            self._start_relay()
        self._ask({"delay_ms": delay_ms, "loss_fraction": loss_fraction})

    def relay_use(self) -> RelayUse | None:
        """The relay's use; None if the kernel's bridge forwards the frames."""
        return None if self._relay is None else RelayUse(**self._ask({}))

    def close(self) -> None:
        """End the relay, if there is one. The bridge is removed with its network."""
        self._end_relay(back_to_bridge=False)

    def _start_relay(self) -> None:
        self._relay = subprocess.Popen(
            ["nsenter", "-t", str(self.pid), "-n", *program("main", "relay"), *self._ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._hear(READY)
        # The relay drops frames until it gets the delays, so that no frame arrives twice.
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
                    # The switch may already have ended.
                    return

    def _run(self, *argv: str) -> str:
        return in_network(self.pid, *argv)
