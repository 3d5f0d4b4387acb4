"""Writes comm's exchanges into this rank's ring: the table in the header (recording/exchanges.py), and one record per exchange.

The table says how far the rank is in each group. The records say when the rank entered each exchange. Both are shared memory, so an agent
can also read them while this process is stopped, computes, or waits in C++.
"""

from collections.abc import Sequence
from threading import RLock
from time import time_ns

from ....recording.exchanges import DTYPES, FIRST_CELL, ROW_CELLS, ROWS, item_bytes
from ....recording.ring import CAPACITY, FIRST_RECORD_CELL, OPERATIONS, Cell, RecordKind, RingWriter
from ....worker.call_log import numbered
from ....worker.instrument import Patch, RankInstrument
from ....worker.rank_recorder import RankRecorder
from ..observer import observe

_EXCHANGE, _CURSOR, _GROUP_COUNT = int(RecordKind.EXCHANGE), int(Cell.CURSOR), int(Cell.GROUP_COUNT)
_OPERATIONS = {name: code for code, name in enumerate(OPERATIONS)}
_DTYPES = {name: code for code, name in enumerate(DTYPES)}
# Two ranks count these between themselves, under a name of their own. The call was counted where it was issued.
_TO_ONE_PEER = tuple(map(OPERATIONS.index, ("send", "recv", "recv_anysource")))
_MOST_INSIDE = 4096


class _Row:
    """One group: the position of its row, and its unfinished exchanges."""

    __slots__ = ("at", "inside", "name", "newest", "number")

    def __init__(self, at: int, number: int, name: str) -> None:
        self.at = at
        self.number = number
        self.name = name
        # Sequence number of each exchange -> its operation in one cell, in the order in which the exchanges were entered.
        self.inside: dict[int, int] = {}
        self.newest = 0

    def over(self) -> int:
        """The highest number up to which all exchanges are finished. Another thread may change this at any moment."""
        oldest = list(self.inside)[:1]
        return oldest[0] - 1 if oldest else self.newest


class ExchangeObserver(RankInstrument):
    """A comm.observer.Observer. Without a ring it records nothing. An exception drops the observer, and never reaches the exchange."""

    def __init__(self, rank: RankRecorder) -> None:
        super().__init__(rank)
        self._ring: RingWriter | None = None
        self._formed: dict[str, tuple[list[int], str]] = {}
        self._next_row = 0
        self.begin()

    def begin(self) -> None:
        # The lock is for a group's first exchange only. The handler of a signal that arrives then may exchange something too.
        self._turn = RLock()
        self._rows: dict[str, _Row] = {}

    def patches(self) -> dict[str, Patch]:
        return {"torch.distributed.distributed_c10d": lambda _: observe(self)}

    def formed(self, group: str, ranks: Sequence[int], backend: str = "") -> None:
        """Keep the members of a group until its first exchange. If the group has begun exchanges, write the members now."""
        try:
            self._formed[group] = ([int(rank) for rank in ranks], backend)
            ring, row = self.rank.ring, self._rows.get(group)
            if ring is not None and ring is self._ring and row is not None:
                self.rank.calls.describe_group(ring, row.name, row.number, *self._formed[group])
        except Exception as error:
            self.rank.drop("exchanges", error)

    def enqueued(self, group: str, seq: int, op: str, dtype: str, numel: int) -> None:
        """Between two steps the caches are cold. So this function has few names and few calls."""
        rank = self.rank
        ring = rank.ring
        if ring is None or "exchanges" in rank.silent:
            return
        try:
            row = self._rows.get(group)
            if row is None or seq == 1 or ring is not self._ring:
                row = self._meet(ring, group, seq)
            operation, element = _OPERATIONS.get(op, 0), _DTYPES.get(dtype, 0)
            inside, cells, at = row.inside, ring.cells, row.at
            if len(inside) >= _MOST_INSIDE:
                inside.clear()
            # This is `exchanges.packed` inlined.
            what = operation | element << 8 | numel << 16
            if not inside:
                cells[at + 3] = what
            # Write this before the count: a reader of the row must not take an exchange for finished because it was not yet entered.
            inside[seq] = what
            row.newest = cells[at + 1] = seq
            # This is `RingWriter.write` inlined.
            index = ring.next_index()
            at = FIRST_RECORD_CELL + index % CAPACITY * 8
            cells[at + 1] = seq
            cells[at + 2] = time_ns()
            cells[at + 3] = row.number
            cells[at + 4] = numel
            cells[at + 5] = element
            cells[at] = _EXCHANGE | (index & 0xFFFF) << 16 | operation << 32
            cells[_CURSOR] = index + 1
            if operation not in _TO_ONE_PEER:
                rank.collective_count += 1
                rank.collective_bytes += numel * item_bytes(element)
        except Exception as error:
            rank.drop("exchanges", error)

    def completed(self, group: str, seq: int) -> None:
        """Any thread may call this, and in any order."""
        rank = self.rank
        ring = rank.ring
        if ring is None or "exchanges" in rank.silent:
            return
        try:
            row = self._rows.get(group)
            if row is None or ring is not self._ring:
                return
            inside, cells, at = row.inside, ring.cells, row.at
            inside.pop(seq, None)
            # Another thread may write between these two lines, so the thread that wrote last checks again.
            while cells[at + 2] != (over := row.over()):
                cells[at + 2] = over
            if inside:
                for what in list(inside.values())[:1]:
                    cells[at + 3] = what
        except Exception as error:
            rank.drop("exchanges", error)

    # -- among whom

    def _meet(self, ring: RingWriter, group: str, seq: int) -> _Row:
        """A group's first exchange in this ring: the group takes the next row. If no row is free, it replaces the oldest group's row."""
        with self._turn:
            if ring is not self._ring:
                # The process was forked, and the child has become a rank itself.
                self._ring, self._rows, self._next_row = ring, {}, 0
            known = self._rows.get(group)
            at = known.at if known is not None else FIRST_CELL + self._next_row % ROWS * ROW_CELLS
            self._next_row += known is None
            calls, cells = self.rank.calls, ring.cells
            name, number = numbered(group, int(cells[_GROUP_COUNT]))
            row = _Row(at, number, name)
            cells[at] = 0
            cells[at + 1] = cells[at + 2] = seq - 1
            if group in self._formed or not calls.knows(name):
                calls.describe_group(ring, name, number, *self._formed.get(group, ([], "")))
            cells[at] = number
            self._rows = {**{other: kept for other, kept in self._rows.items() if kept.at != at}, group: row}
            return row
