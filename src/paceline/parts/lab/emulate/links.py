"""The link between one emulated host and the switch: its rate, and whether it is connected."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import UsageError

INTERFACE = "eth0"
# A bucket smaller than the largest frame lets nothing pass. A bucket of about two milliseconds' worth lets a slow timer serve a fast link.
_LEAST_BURST_BYTES = 70_000
_BURST_SECONDS = 0.002
_QUEUE_MILLISECONDS = 50


def in_network(pid: int, *argv: str) -> str:
    """The output of a command that runs in the network of process `pid`, and otherwise in this process's environment.

    Raises:  UsageError U23: the command is missing or failed
    """
    try:
        done = subprocess.run(
            ["nsenter", "-t", str(pid), "-n", *argv], capture_output=True, text=True, check=False, timeout=30
        )
    except OSError as error:
        raise cannot_emulate(f"nsenter: {error.strerror}") from error
    if done.returncode != 0:
        raise cannot_emulate(f"{' '.join(argv)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout


def cannot_emulate(saw: str) -> UsageError:
    """The error if this machine refuses a part of an emulated network."""
    return UsageError(
        "U23",
        "hosts with networks of their own cannot be made here",
        saw=saw,
        next="run it as root, with iproute2 and util-linux installed (apt-get install iproute2 util-linux)",
    )


@dataclass
class VirtualLink:
    """The cable of one host, with its configured values. Its end in the host is `eth0`."""

    host_pid: int
    """Process id of a process in the host. It identifies the host's network."""
    switch_pid: int
    """Process id of a process in the switch's network."""
    port: str
    """Name of the cable's other end, which is in the switch's network."""
    rate_mbit: float | None = None
    """Rate of each direction, in 10^6 bits per second; None: no limit."""
    delay_ms: float = 0.0
    """Delay that the switch adds in each direction. A round trip through this link takes twice as long."""
    loss_fraction: float = 0.0
    """Fraction of the frames that the switch loses in each direction."""

    def plug_in(self, address: str) -> None:
        """Create the cable and give the host's end its address."""
        self._switch(
            "ip", "link", "add", self.port, "type", "veth", "peer", "name", INTERFACE, "netns", str(self.host_pid)
        )
        self._host("ip", "addr", "add", f"{address}/16", "dev", INTERFACE)
        for device in ("lo", INTERFACE):
            self._host("ip", "link", "set", device, "up")

    def set_rate(self, rate_mbit: float) -> None:
        """Limit the rate of each direction; 0 removes the limit.

        Raises:  UsageError U23: tc failed
        """
        for run, device in ((self._host, INTERFACE), (self._switch, self.port)):
            if rate_mbit:
                run("tc", "qdisc", "replace", "dev", device, "root", "tbf", *bucket(rate_mbit))
            elif self.rate_mbit:
                run("tc", "qdisc", "del", "dev", device, "root")
        self.rate_mbit = rate_mbit or None

    def set_frames(self, *, whole: bool) -> None:
        """Whether the host may pass on 64 KiB in one piece. With loss it must not: loss drops frames of the size that a wire has."""
        self._host("ip", "link", "set", INTERFACE, "gso_max_segs", "65535" if whole else "1")

    def cut(self) -> None:
        """Disconnect the cable: no direction passes anything, and the host's end has no carrier."""
        self._switch("ip", "link", "set", self.port, "down")

    def mend(self) -> None:
        """Connect the cable again; rate, delay and loss are as before."""
        self._switch("ip", "link", "set", self.port, "up")

    def _host(self, *argv: str) -> str:
        return in_network(self.host_pid, *argv)

    def _switch(self, *argv: str) -> str:
        return in_network(self.switch_pid, *argv)


def bucket(rate_mbit: float) -> Sequence[str]:
    """tc's arguments for a token bucket of this rate.

    Holds:   the burst is never smaller than one frame of segmentation offload (64 KiB)
    Source:  tc-tbf(8)
    """
    burst_bytes = max(_LEAST_BURST_BYTES, round(rate_mbit * 1e6 / 8 * _BURST_SECONDS))
    return ("rate", f"{rate_mbit}mbit", "burst", str(burst_bytes), "latency", f"{_QUEUE_MILLISECONDS}ms")
