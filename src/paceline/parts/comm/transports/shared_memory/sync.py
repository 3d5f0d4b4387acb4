"""Waits for another rank of this host: polls its counter for a short time, then sleeps until the other rank wakes it.

Each rank has two counters in the shared memory. Only this rank writes them, and they only grow (`Counter`). Each rank also has a bell: an
eventfd, which, unlike a socket, does not move the sleeper to the waker's core. `post` raises a counter and wakes every rank that sleeps for
that value. `wait` returns when another rank's counter has reached a value. The line between each two ranks (a UNIX socket) carries no data:
its end of file shows at once that the other rank has ended.

The algorithm relies on these properties, on x86 and on arm64:

  * A cell of 8 bytes at a multiple of 8 is written and read atomically.
  * `release` of a lock followed by `acquire` of it orders everything before against everything after (`_fence`). On x86 both are locked
    instructions, which are full barriers. On arm64 the first is a store-release and the second a load-acquire, which the architecture never
    lets pass the first: what came before the release is visible before anything that comes after the acquire happens.

So data is never older than its counter: the writer writes data, fences, raises the counter; the reader sees the counter, fences, reads.
No wake-up is lost either. The sleeper writes the awaited value, fences, reads the counter. The other rank raises the counter, fences, reads
the awaited value. The second of the two sees what the first wrote. If a machine broke this promise, it would cost the first sleep, which
is short, and not a hang: at its end, everything written before has long arrived.
"""

import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from enum import IntEnum

from ..peers import PeerLate, PeerLost
from .segment import Segment

_NOBODY_WAITS = 2**64 - 1
_RANK_CELLS = 16  # two cache lines per rank, because processors also fetch the adjacent line
_PAIR_CELLS = 2
_LAST_WORDS_BYTES = 256
_FIRST_SLEEP_MS = 2.0
_SLEEP_MS = 1000.0
_CLOSED = "this exchange among the ranks of a host was closed"


class Counter(IntEnum):
    """What a rank counts: chunks since the beginning. READ is the last counter that it raises for a chunk."""

    WRITTEN = 0  # the rank has written its data
    READ = 1  # the rank has read all its data, so the other ranks may write there again


WRITTEN, READ = (int(counter) for counter in Counter)


class Doorbell:
    """The counters and bells of all ranks. One thread at a time uses it; only `close` may come from another thread.

    bells: one eventfd per rank, this rank's own at its index. lines: the socket to each other rank. The doorbell closes all of them.
    """

    def __init__(
        self,
        segment: Segment,
        rank: int,
        bells: Sequence[int],
        lines: dict[int, socket.socket],
        *,
        numbers: Sequence[int],
        spare_cores: bool,
    ) -> None:
        self.timeout_seconds = 0.0
        self._segment, self._cells = segment, segment.cells
        self._rank, self._size, self._numbers = rank, len(bells), numbers
        self._bells, self._lines = list(bells), dict(lines)
        self._spin_seconds = 20e-6 if spare_cores else 5e-6
        self._end = 0
        self._gone: list[int] = []
        self._busy = self._closed = False
        self._state = threading.Lock()
        self._barrier = threading.Lock()
        self._barrier.acquire()
        self._own = rank * _RANK_CELLS
        # For each counter: (cell of the value that a peer awaits, that peer).
        self._awaited = [[(self._awaited_cell(peer, rank, counter), peer) for peer in lines] for counter in Counter]
        self._rung = [[0] * self._size for _ in Counter]
        self._peers = list(lines)
        self._poll = select.poll()
        self._poll.register(bells[rank], select.POLLIN)
        for line in lines.values():
            line.setblocking(False)
            self._poll.register(line, select.POLLIN)
        for peer in lines:
            for counter in Counter:
                self._cells[self._awaited_cell(rank, peer, counter)] = _NOBODY_WAITS
        _open_doorbells.add(self)

    @staticmethod
    def bytes_needed(size: int) -> int:
        """Bytes that it uses at the front of the segment."""
        return 8 * size * (_RANK_CELLS + size * _PAIR_CELLS) + size * _LAST_WORDS_BYTES

    def _awaited_cell(self, waiter: int, peer: int, counter: int) -> int:
        return self._size * _RANK_CELLS + (waiter * self._size + peer) * _PAIR_CELLS + counter

    def begin(self, end: int) -> None:
        """Start an exchange. A rank that has finished it has READ at `end`. Raises RuntimeError if another one runs, or after `close`."""
        with self._state:
            if self._closed or self._busy:
                raise RuntimeError(_CLOSED if self._closed else "two exchanges at once among the ranks of a host")
            self._busy = True
        self._end = end

    def end(self) -> None:
        """End the exchange, successful or not."""
        with self._state:
            self._busy = False
            if self._closed:
                self._release()

    def post(self, counter: int, value: int) -> None:
        """Raise the counter. A rank that sees this value also sees everything that this rank wrote before."""
        cells = self._cells
        self._fence()
        cells[self._own + counter] = value
        self._fence()
        for cell, peer in self._awaited[counter]:
            if (awaited := cells[cell]) <= value:
                self._ring(peer, counter, awaited)

    def _ring(self, peer: int, counter: int, awaited: int) -> None:
        # Values only grow, so one wake-up per value is enough: it stays in the bell until the sleeper reads it.
        if self._rung[counter][peer] != awaited:
            self._rung[counter][peer] = awaited
            os.eventfd_write(self._bells[peer], 1)

    def wait_all(self, counter: int, value: int) -> None:
        """Wait until that counter of every other rank is at least `value`."""
        for peer in self._peers:
            self.wait(peer, counter, value)

    def wait(self, peer: int, counter: int, value: int) -> None:
        """Wait until that counter of `peer` is at least `value`. Then everything that `peer` wrote before is visible.

        Raises:  PeerLost; PeerLate: no progress for `timeout_seconds`; RuntimeError: closed meanwhile
        """
        cells, cell = self._cells, peer * _RANK_CELLS + counter
        if cells[cell] < value:
            until = time.perf_counter() + self._spin_seconds
            while cells[cell] < value:
                if time.perf_counter() > until:
                    self._sleep(peer, counter, value)
                    break
        self._fence()

    def _sleep(self, peer: int, counter: int, value: int) -> None:
        cells, cell, awaited = self._cells, peer * _RANK_CELLS + counter, self._awaited_cell(self._rank, peer, counter)
        deadline = time.monotonic() + self.timeout_seconds
        longest_ms = _FIRST_SLEEP_MS
        cells[awaited] = value
        try:
            while True:
                self._fence()
                if cells[cell] >= value:
                    return
                self._check()
                left_ms = (deadline - time.monotonic()) * 1000
                if left_ms <= 0:
                    raise PeerLate(self._numbers[peer], self._late(peer))
                for descriptor, _ in self._poll.poll(min(longest_ms, left_ms)):
                    self._hear(descriptor)
                longest_ms = _SLEEP_MS
        finally:
            cells[awaited] = _NOBODY_WAITS

    def _hear(self, descriptor: int) -> None:
        if descriptor == self._bells[self._rank]:
            os.eventfd_read(descriptor)
            return
        peer = next(peer for peer, line in self._lines.items() if line.fileno() == descriptor)
        # No rank writes on a line, so an event there is its end.
        self._poll.unregister(descriptor)
        self._gone.append(peer)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)
        self._fence()
        for peer in self._gone:
            # A rank that has done its part of this exchange may leave.
            if self._cells[peer * _RANK_CELLS + READ] < self._end:
                raise self._lost(peer)

    def _lost(self, peer: int) -> PeerLost:
        number = self._numbers[peer]
        blamed, words = self._last_words(peer)
        if not words:
            why = "its own output, or whoever killed it, says why"
            return PeerLost(number, f"rank {number}, on this host, ended in the middle of an exchange: {why}")
        if blamed == number:
            return PeerLost(number, f"rank {number}, on this host, gave up an exchange: {words}")
        # The peer did not fail by itself: the error that the peer saw is the cause to report.
        return PeerLost(blamed, f"{words} (seen by rank {number})" if "(seen by" not in words else words)

    def _late(self, peer: int) -> str:
        return (
            f"rank {self._numbers[peer]}, on this host, did not come to an exchange within {self.timeout_seconds:g} s; "
            f"its process runs: look at what it does instead"
        )

    def _words_at(self, peer: int) -> int:
        return 8 * self._size * (_RANK_CELLS + self._size * _PAIR_CELLS) + peer * _LAST_WORDS_BYTES

    def _last_words(self, peer: int) -> tuple[int, str]:
        start = self._words_at(peer)
        blamed, _, words = (
            bytes(self._segment.map[start : start + _LAST_WORDS_BYTES])
            .rstrip(b"\0")
            .decode(errors="replace")
            .partition(" ")
        )
        return (int(blamed), words) if words else (-1, "")

    def leave(self, blamed: int, words: str) -> None:
        """Close the lines after an error, and leave a text that other ranks report when they miss this rank. `blamed`: as in messages."""
        text = f"{blamed} {words}".encode()[:_LAST_WORDS_BYTES]
        start = self._words_at(self._rank)
        self._segment.map[start : start + len(text)] = text
        self._fence()
        self.close()

    def close(self) -> None:
        """Close the lines: other ranks notice when they wait for this rank. A `wait` of this rank in another thread raises RuntimeError."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            if not self._busy:
                self._release()
                return
            # The end of a running exchange releases the rest.
            os.eventfd_write(self._bells[self._rank], 1)
            for line in self._lines.values():
                line.shutdown(socket.SHUT_RDWR)

    def _release(self) -> None:
        self.forget()
        while self._bells:
            os.close(self._bells.pop())

    def forget(self) -> None:
        """Close the copies in a forked child: a copy of a line would keep the line of a dead rank open."""
        for line in self._lines.values():
            line.close()

    def _fence(self) -> None:
        self._barrier.release()
        self._barrier.acquire()

    def __del__(self) -> None:
        if hasattr(self, "_state"):
            self._release()


_open_doorbells: "weakref.WeakSet[Doorbell]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for doorbell in list(_open_doorbells):
        doorbell.forget()


os.register_at_fork(after_in_child=_forget_in_child)
