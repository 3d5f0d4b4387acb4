"""The link between one emulated host and the switch: how fast it is, how long it takes, what it loses, whether it is there at all."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.emulate.keeper import READY, program
from paceline.errors import UsageError

BRIDGE = "switch"
# A bucket below one largest frame passes nothing; one of about two milliseconds' worth lets a slow timer keep up with a fast link.
_LEAST_BURST_BYTES = 70_000
_BURST_SECONDS = 0.002
_QUEUE_MILLISECONDS = 50


def in_network(pid: int, *words: str) -> str:
    """The output of a command that runs in the network of process `pid`, everything else as here.

    Raises:  UsageError U23: the command is missing or failed
    """
    try:
        done = subprocess.run(
            ["nsenter", "-t", str(pid), "-n", *words], capture_output=True, text=True, check=False, timeout=30
        )
    except OSError as error:
        raise cannot_emulate(f"nsenter: {error.strerror}") from error
    if done.returncode != 0:
        raise cannot_emulate(f"{' '.join(words)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout


def cannot_emulate(saw: str) -> UsageError:
    """What is raised wherever this machine refuses a part of an emulated network."""
    return UsageError(
        "U23",
        "hosts with networks of their own cannot be made here",
        saw=saw,
        next="run it as root, with iproute2 and util-linux installed (apt-get install iproute2 util-linux)",
    )


@dataclass
class Link:
    """One host's cable. `eth0` is its end in the host (process `host_pid`), `port` the other end in the switch (`switch_pid`).

    What was asked for stays in `rate_mbit` (10^6 bits per second, each direction; None: as fast as it goes), `delay_ms` (added in each
    direction, so a round trip through this link takes twice as long) and `loss_fraction` (of frames, in each direction).
    """

    host_pid: int
    switch_pid: int
    port: str
    rate_mbit: float | None = None
    delay_ms: float = 0.0
    loss_fraction: float = 0.0
    _relay: subprocess.Popen[bytes] | None = None

    def plug_in(self, address: str) -> None:
        """Lay the cable and give the host's end its address."""
        self._switch(
            "ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.host_pid)
        )
        self._host("ip", "addr", "add", f"{address}/16", "dev", "eth0")
        for device in ("lo", "eth0"):
            self._host("ip", "link", "set", device, "up")
        self._switch("ip", "link", "set", self.port, "master", BRIDGE, "up")

    def shape(
        self, *, rate_mbit: float | None = None, delay_ms: float | None = None, loss_fraction: float | None = None
    ) -> None:
        """Change what is given and keep the rest; a rate, delay or loss of 0 takes that part away again.

        Raises:  UsageError U23: tc or the relay is refused
        """
        if rate_mbit is not None:
            self._set_rate(rate_mbit)
        if delay_ms is not None or loss_fraction is not None:
            self.delay_ms = self.delay_ms if delay_ms is None else delay_ms
            self.loss_fraction = self.loss_fraction if loss_fraction is None else loss_fraction
            self._set_relay()

    def cut(self) -> None:
        """Pull the cable: neither direction passes anything, and the host's end sees no carrier."""
        self._switch("ip", "link", "set", self.port, "down")

    def mend(self) -> None:
        """Plug it in again; rate, delay and loss are as before."""
        self._switch("ip", "link", "set", self.port, "up")

    def close(self) -> None:
        """End the relay, where there is one. The cable goes with its host."""
        self._end_relay()

    def _set_rate(self, rate_mbit: float) -> None:
        for run, device in ((self._host, "eth0"), (self._switch, self.port)):
            if rate_mbit:
                run("tc", "qdisc", "replace", "dev", device, "root", "tbf", *bucket(rate_mbit))
            elif self.rate_mbit:
                run("tc", "qdisc", "del", "dev", device, "root")
        self.rate_mbit = rate_mbit or None

    def _set_relay(self) -> None:
        if not self.delay_ms and not self.loss_fraction:
            self._end_relay()
            return
        # Loss is of frames as they would be on a wire, so the host must not hand on 64 KiB in one piece.
        pieces = "1" if self.loss_fraction else "65535"
        self._host("ip", "link", "set", "eth0", "gso_max_segs", pieces)
        settings = {"delay_ms": self.delay_ms, "loss_fraction": self.loss_fraction}
        if self._relay is None:
            self._start_relay()
        assert self._relay is not None and self._relay.stdin is not None and self._relay.stdout is not None
        self._relay.stdin.write(json.dumps(settings).encode() + b"\n")
        self._relay.stdin.flush()
        said = self._relay.stdout.readline()
        if said != READY:
            raise cannot_emulate(f"the relay of {self.port}: {said.decode().strip() or 'ended at once'}")

    def _start_relay(self) -> None:
        tap = f"{self.port}r"
        self._relay = subprocess.Popen(
            ["nsenter", "-t", str(self.switch_pid), "-n", *program("main", "relay"), self.port, tap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._relay.stdout is not None
        said = self._relay.stdout.readline()
        if said != READY:
            raise cannot_emulate(f"the relay of {self.port}: {said.decode().strip() or 'ended at once'}")
        self._switch("ip", "link", "set", self.port, "nomaster")
        self._switch("ip", "link", "set", tap, "master", BRIDGE, "up")

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is None:
            return
        with relay:
            assert relay.stdin is not None
            relay.stdin.close()
        try:
            self._switch("ip", "link", "set", self.port, "master", BRIDGE)
        except UsageError:
            # The switch may be gone already.
            return

    def _host(self, *words: str) -> str:
        return in_network(self.host_pid, *words)

    def _switch(self, *words: str) -> str:
        return in_network(self.switch_pid, *words)


def bucket(rate_mbit: float) -> Sequence[str]:
    """tc's words for a token bucket of this rate.

    Holds:   the burst is never smaller than one frame of segmentation offload (64 KiB)
    Source:  tc-tbf(8)
    """
    burst_bytes = max(_LEAST_BURST_BYTES, round(rate_mbit * 1e6 / 8 * _BURST_SECONDS))
    return ("rate", f"{rate_mbit}mbit", "burst", str(burst_bytes), "latency", f"{_QUEUE_MILLISECONDS}ms")
