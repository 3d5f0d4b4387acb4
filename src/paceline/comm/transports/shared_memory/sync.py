"""Waiting for another rank of this host: a short look at its counter, then sleep until it rings.

Each rank has two counters in the shared memory that only it writes and that only grow (`Counter`), and a bell (an eventfd, which wakes
without drawing the sleeper to the ringer's core, as a socket would). `post` raises a counter and rings at whoever sleeps for that value;
`wait` returns when another rank's counter has arrived. The line between each two ranks (a UNIX socket) carries nothing: its end says at
once that the other rank is gone.

What is relied upon, on x86 and on arm64:

  * A cell of 8 bytes at a multiple of 8 is written and read in one piece.
  * `release` of a lock followed by `acquire` of it orders everything before against everything after (`_fence`). On x86 both are locked
    instructions, which are full barriers. On arm64 the first is a store-release and the second a load-acquire, which the architecture never
    lets pass the first: what came before the release is visible before anything that comes after the acquire happens.

So data is never older than its counter: data is written, fence, counter is raised; counter is seen, fence, data is read. And no ring is
lost: the sleeper writes what it awaits, fence, looks at the counter; the other raises the counter, fence, looks at what is awaited;
whichever comes second sees the word of the first. Should a machine break this promise, it costs the first sleep, which is short, and not a
hang: by its end what was written before has long arrived.
"""

import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from enum import IntEnum

from ..base import PeerLost
from .segment import Segment

_NOBODY_WAITS = 2**64 - 1
_RANK_CELLS = 16  # two cache lines a rank, since processors fetch the neighbour of a line as well
_PAIR_CELLS = 2
_LAST_WORDS_BYTES = 256
_FIRST_SLEEP_MS = 2.0
_SLEEP_MS = 1000.0
_CLOSED = "this exchange among the ranks of a host was closed"


class PeerLate(RuntimeError):
    """A rank of this host is there but did not take part in time. `rank`: which one, as the ranks are numbered in messages."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank


class Counter(IntEnum):
    """What a rank counts: chunks, since the beginning. READ is the last that it raises for a chunk."""

    WRITTEN = 0  # what it had to write lies in the memory
    READ = 1  # it has read all it wanted, so that the others may write there again


WRITTEN, READ = (int(counter) for counter in Counter)


class Doorbell:
    """The counters of all ranks and the bells. Used by one thread at a time; only `close` may come from another.

    bells: one eventfd for each rank, this rank's own at its index. lines: the socket to each other rank. The doorbell closes them all.
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
        # For each counter: (what a peer awaits of it, that peer).
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
        """What it uses at the front of the segment."""
        return 8 * size * (_RANK_CELLS + size * _PAIR_CELLS) + size * _LAST_WORDS_BYTES

    def _awaited_cell(self, waiter: int, peer: int, counter: int) -> int:
        return self._size * _RANK_CELLS + (waiter * self._size + peer) * _PAIR_CELLS + counter

    def begin(self, end: int) -> None:
        """An exchange starts; a rank that is through it has READ at `end`. Raises RuntimeError where another one runs, or it was closed."""
        with self._state:
            if self._closed or self._busy:
                raise RuntimeError(_CLOSED if self._closed else "two exchanges at once among the ranks of a host")
            self._busy = True
        self._end = end

    def end(self) -> None:
        """The exchange is over, well or not."""
        with self._state:
            self._busy = False
            if self._closed:
                self._release()

    def post(self, counter: int, value: int) -> None:
        """Whoever sees this value also sees everything that this rank wrote before."""
        cells = self._cells
        self._fence()
        cells[self._own + counter] = value
        self._fence()
        for cell, peer in self._awaited[counter]:
            if (awaited := cells[cell]) <= value:
                self._ring(peer, counter, awaited)

    def _ring(self, peer: int, counter: int, awaited: int) -> None:
        # Values only grow, so one ring for each is enough: it stays in the bell until the sleeper takes it out.
        if self._rung[counter][peer] != awaited:
            self._rung[counter][peer] = awaited
            os.eventfd_write(self._bells[peer], 1)

    def wait_all(self, counter: int, value: int) -> None:
        """Until that counter of every other rank stands at `value` or above."""
        for peer in self._peers:
            self.wait(peer, counter, value)

    def wait(self, peer: int, counter: int, value: int) -> None:
        """Until that counter of `peer` stands at `value` or above; then what `peer` wrote before is seen.

        Raises:  PeerLost; PeerLate: nothing for `timeout_seconds`; RuntimeError: closed meanwhile
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
        # Nobody writes on a line: whatever is heard there is its end.
        self._poll.unregister(descriptor)
        self._gone.append(peer)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)
        self._fence()
        for peer in self._gone:
            # Who has done its part of this exchange may go.
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
        # It did not fail by itself: what it saw is what there is to know.
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
        """Hang up because of an error, and say why: what the others are told when they miss this rank. `blamed`: as in messages."""
        text = f"{blamed} {words}".encode()[:_LAST_WORDS_BYTES]
        start = self._words_at(self._rank)
        self._segment.map[start : start + len(text)] = text
        self._fence()
        self.close()

    def close(self) -> None:
        """Hang up: the others notice when they miss this rank, and a `wait` of this rank in another thread ends with RuntimeError."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            if not self._busy:
                self._release()
                return
            # What an exchange still uses goes when that ends.
            os.eventfd_write(self._bells[self._rank], 1)
            for line in self._lines.values():
                line.shutdown(socket.SHUT_RDWR)

    def _release(self) -> None:
        self.forget()
        while self._bells:
            os.close(self._bells.pop())

    def forget(self) -> None:
        """In the child of a fork: its copy of a line would keep the line of a dead rank open."""
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
