"""Delays and drops Ethernet frames between a port of the switch and a TAP device that takes its place on the bridge.

A program of its own in the switch's network: `main(PORT TAP)`. Each line on standard input is JSON, {"delay_ms", "loss_fraction"}, and
is answered with "ready"; end of file ends it, and its TAP device with it. It stands in for the kernel's netem, which many
machines do not have. Both sides carry the kernel's virtio header, so that a frame of 64 KiB passes in one piece and a
Python loop keeps up with a fast link.
"""

import fcntl
import json
import os
import random
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence

from paceline.emulate.keeper import READY

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_TAP, _NO_PACKET_INFORMATION, _VIRTIO_HEADER = 0x0002, 0x1000, 0x4000
_CHECKSUM, _SEGMENT_4, _SEGMENT_6 = 1, 2, 4
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_EVERY_PROTOCOL = 0x0003
_FRAME_BYTES = 70_000
_BUFFER_BYTES = 16 << 20
_MOST_WAITING_BYTES = 64 << 20
_FRAMES_AT_A_TIME = 64


class Direction:
    """Frames on their way from one descriptor to the other, in order, each with the moment at which it is due."""

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.waiting_bytes = 0

    def take(self, delay_seconds: float, loss_fraction: float) -> None:
        """Read what is there, up to a limit so that the other direction gets its turn."""
        for _ in range(_FRAMES_AT_A_TIME):
            try:
                frame = os.read(self.source, _FRAME_BYTES)
            except BlockingIOError:
                return
            except OSError:
                # The cable is cut: reported once, and nothing to read until it is mended.
                return
            lost = loss_fraction and random.random() < loss_fraction
            if not lost and self.waiting_bytes < _MOST_WAITING_BYTES:
                self.waiting.append((time.monotonic() + delay_seconds, frame))
                self.waiting_bytes += len(frame)

    def give(self, now: float) -> None:
        """Write what is due. A target that takes no more loses the frame, as a full queue of a real switch would."""
        while self.waiting and self.waiting[0][0] <= now:
            _, frame = self.waiting.popleft()
            self.waiting_bytes -= len(frame)
            try:
                os.write(self.target, frame)
            except OSError:
                continue

    def due(self) -> float:
        return self.waiting[0][0] if self.waiting else float("inf")


def main(words: Sequence[str]) -> int:
    """Relay until standard input ends. `words`: the port, and the name of the TAP device to make."""
    port_name, tap_name = words
    try:
        tap, port = open_tap(tap_name), open_port(port_name)
    except OSError as error:
        os.write(1, f"{error.strerror}\n".encode())
        return 1
    os.write(1, READY)
    relay(tap, port.fileno())
    return 0


def relay(tap: int, port: int) -> None:
    """Pass frames between two descriptors until standard input ends."""
    delay_seconds, loss_fraction = 0.0, 0.0
    directions = (Direction(port, tap), Direction(tap, port))
    while True:
        first = min(direction.due() for direction in directions)
        timeout = None if first == float("inf") else max(0.0, first - time.monotonic())
        readable, _, _ = select.select([0, port, tap], [], [], timeout)
        if 0 in readable:
            asked = os.read(0, 4096)
            if not asked:
                return
            settings = json.loads(asked.splitlines()[-1])
            delay_seconds, loss_fraction = settings["delay_ms"] / 1000, settings["loss_fraction"]
            offload(tap, whole_segments=not loss_fraction)
            os.write(1, READY)
        for direction in directions:
            if direction.source in readable:
                direction.take(delay_seconds, loss_fraction)
            direction.give(time.monotonic())


def open_tap(name: str) -> int:
    """A new TAP device in this process's network; it goes when the descriptor is closed.

    Source:  kernel Documentation/networking/tuntap.rst
    """
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = _TAP | _NO_PACKET_INFORMATION | _VIRTIO_HEADER
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    return tap


def offload(tap: int, *, whole_segments: bool) -> None:
    """Whether the kernel may hand over frames of up to 64 KiB; if not, it cuts them to the size of the link first."""
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _CHECKSUM | (_SEGMENT_4 | _SEGMENT_6 if whole_segments else 0))


def open_port(name: str) -> socket.socket:
    """Every frame that comes in at a device, and a way to send frames out of it.

    Source:  packet(7)
    """
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    port.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    port.bind((name, _EVERY_PROTOCOL))
    return port
