"""A switch in a process: passes Ethernet frames between the ports of the emulated hosts, and delays or drops them as configured.

A separate program in the switch's network: `main(PORT...)`. Each line on standard input is JSON and gets one line as the answer. `delay_ms`
and `loss_fraction` have a row for each port that a frame comes from, and a column for each port that it goes to. An empty object only
asks for the answer. The answer has what the relay has used and moved so far. The program ends at end of file. It replaces the kernel's
bridge and netem, because many machines have no netem. The ports carry the kernel's virtio header, so a frame of 64 KiB passes in
one piece, and a Python loop is fast enough for a fast link.
"""

import heapq
import itertools
import json
import os
import random
import select
import socket
import time
from collections.abc import Sequence

from paceline.parts.lab.emulate.namespace_holder import READY
from paceline.prctl import Prctl, set_process

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_EVERY_PROTOCOL = 0x0003
# The virtio header, then the frame's target address and its source address.
_TO, _FROM = slice(10, 16), slice(16, 22)
_FRAME_BYTES = 70_000
_BUFFER_BYTES = 16 << 20
_MOST_WAITING_BYTES = 64 << 20
_FRAMES_AT_A_TIME = 64
_PRIORITY = -15
_SESSION_PRIORITY = "/proc/self/autogroup"
# The time to wake up, pass a frame on and wake the receiver, on a machine that is not busy. It is subtracted from the delay.
_OWN_SECONDS = 0.0001

Matrix = Sequence[Sequence[float]]


class Relay:
    """Frames between ports (descriptors, by index), each with its due time. Frames between the same two ports stay in order."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = ports
        self.delay_seconds: Matrix | None = None
        self.loss_fraction: Matrix = ()
        self.frame_count = self.lost_count = self.overflow_count = 0
        self._places: dict[bytes, int] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._waiting_bytes = [0] * len(ports)
        self._numbers = itertools.count()

    def set(self, delay_ms: Matrix, loss_fraction: Matrix) -> None:
        """Set the delays and losses. Until the first call, incoming frames are dropped."""
        self.delay_seconds = [[max(0.0, delay / 1000 - _OWN_SECONDS) for delay in row] for row in delay_ms]
        self.loss_fraction = loss_fraction

    def take(self, source: int) -> None:
        """Read the frames at one port, up to a limit, so that the other ports get their turn."""
        now = time.monotonic()
        for _ in range(_FRAMES_AT_A_TIME):
            try:
                frame = os.read(self.ports[source], _FRAME_BYTES)
            except OSError:
                # There is nothing more to read, or the cable is cut. A cut is reported once, and then nothing arrives while it lasts.
                return
            if self.delay_seconds is None:
                continue
            self._places[frame[_FROM]] = source
            known = self._places.get(frame[_TO])
            for target in range(len(self.ports)) if known is None else (known,):
                if target != source:
                    self._send(source, target, frame, now)

    def _send(self, source: int, target: int, frame: bytes, now: float) -> None:
        assert self.delay_seconds is not None
        loss = self.loss_fraction[source][target]
        if loss and random.random() < loss:
            self.lost_count += 1
        elif self._waiting_bytes[target] >= _MOST_WAITING_BYTES:
            self.overflow_count += 1
        else:
            due = now + self.delay_seconds[source][target]
            heapq.heappush(self._waiting, (due, next(self._numbers), target, frame))
            self._waiting_bytes[target] += len(frame)

    def give(self) -> None:
        """Write the frames that are due. If a port cannot take a frame, the frame is lost, as in a full queue of a real switch."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, target, frame = heapq.heappop(self._waiting)
            self._waiting_bytes[target] -= len(frame)
            self.frame_count += 1
            try:
                os.write(self.ports[target], frame)
            except OSError:
                self.overflow_count += 1

    def seconds_to_next(self) -> float | None:
        """Seconds until the next frame is due; None: no frame waits."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None


def main(argv: Sequence[str]) -> int:
    """Relay until standard input ends. `argv`: the names of the ports."""
    try:
        ports = [open_port(name) for name in argv]
    except OSError as error:
        os.write(1, f"{error.strerror}\n".encode())
        return 1
    be_punctual()
    os.write(1, READY)
    run(Relay([port.fileno() for port in ports]))
    return 0


def run(relay: Relay) -> None:
    """Forward frames until standard input ends."""
    index = {descriptor: number for number, descriptor in enumerate(relay.ports)}
    watched = [0, *relay.ports]
    while True:
        # This uses select and not epoll: its timeout is finer than a millisecond.
        for descriptor in select.select(watched, [], [], relay.seconds_to_next())[0]:
            if descriptor:
                relay.take(index[descriptor])
            elif not _obey(relay):
                return
        relay.give()


def _obey(relay: Relay) -> bool:
    """Handle one line of standard input; False at its end."""
    asked = b""
    while not asked.endswith(b"\n"):
        piece = os.read(0, 1 << 20)
        if not piece:
            return False
        asked += piece
    settings = json.loads(asked)
    if settings:
        relay.set(settings["delay_ms"], settings["loss_fraction"])
    answer = {
        "cpu_seconds": time.process_time(),
        "frame_count": relay.frame_count,
        "lost_count": relay.lost_count,
        "overflow_count": relay.overflow_count,
    }
    os.write(1, json.dumps(answer).encode() + b"\n")
    return True


def be_punctual(*, rests: bool = True) -> None:
    """Ask the kernel to wake this process on time, before processes that compute. Without root that is refused, and nothing changes.

    `rests`: this process waits most of the time, so it may run before all others. Other processes only get a larger share of CPU time.
    """
    set_process(Prctl.SET_TIMERSLACK, 1)
    try:
        if rests:
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            return
    except OSError:
        # Some containers have no real-time share. A priority may still be allowed.
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
        # If the kernel groups by session, a priority counts only inside the session. The session has its own priority.
        if os.getsid(0) == os.getpid() and os.path.exists(_SESSION_PRIORITY):
            with open(_SESSION_PRIORITY, "w") as file:
                file.write(str(_PRIORITY))
    except OSError:
        pass


def open_port(name: str) -> socket.socket:
    """A socket that receives every frame of a device and can send frames through it.

    Source:  packet(7)
    """
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    port.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    port.bind((name, _EVERY_PROTOCOL))
    return port
