"""Puts what comm tells of its exchanges into this rank's ring: the table in the header (recording/exchanges.py), and a record of each.

The table says how far the rank is in each group, the records when it came to each exchange. Both are shared memory, so an agent
reads them also while this process is stopped, computes, or waits in C++.
"""

from collections.abc import Sequence
from threading import RLock
from time import time_ns

from ...comm.observer import observe
from ...recording.exchanges import DTYPES, FIRST_CELL, ROW_CELLS, ROWS, item_bytes
from ...recording.ring import CAPACITY, FIRST_RECORD_CELL, OPERATIONS, Cell, RecordKind, RingWriter
from ..call_log import numbered
from ..instrument import Patch, RankInstrument
from ..rank_recorder import RankRecorder

_EXCHANGE, _CURSOR, _GROUP_COUNT = int(RecordKind.EXCHANGE), int(Cell.CURSOR), int(Cell.GROUP_COUNT)
_OPERATIONS = {name: code for code, name in enumerate(OPERATIONS)}
_DTYPES = {name: code for code, name in enumerate(DTYPES)}
# Two ranks count these between them, under a name of their own; the call itself was counted where it was issued.
_TO_ONE_PEER = tuple(map(OPERATIONS.index, ("send", "recv", "recv_anysource")))
_MOST_INSIDE = 4096


class _Row:
    """One group: where its row is, and the exchanges that are not over."""

    __slots__ = ("at", "inside", "name", "newest", "number")

    def __init__(self, at: int, number: int, name: str) -> None:
        self.at = at
        self.number = number
        self.name = name
        # Number of each -> what it is, in one cell; in the order in which they were entered.
        self.inside: dict[int, int] = {}
        self.newest = 0

    def over(self) -> int:
        """Up to which number all are over. Another thread may change this at any moment."""
        oldest = list(self.inside)[:1]
        return oldest[0] - 1 if oldest else self.newest


class ExchangeObserver(RankInstrument):
    """A comm.observer.Observer. Without a ring it keeps nothing; what goes wrong in here drops it, and the exchange never sees it."""

    def __init__(self, rank: RankRecorder) -> None:
        super().__init__(rank)
        self._ring: RingWriter | None = None
        self._formed: dict[str, tuple[list[int], str]] = {}
        self._next_row = 0
        self.begin()

    def begin(self) -> None:
        # For a group's first exchange only. A signal's handler that exchanges something may come in between.
        self._turn = RLock()
        self._rows: dict[str, _Row] = {}

    def patches(self) -> dict[str, Patch]:
        return {"torch.distributed.distributed_c10d": lambda _: observe(self)}

    def formed(self, group: str, ranks: Sequence[int], backend: str = "") -> None:
        """Keep who is in a group until its first exchange; of one that has begun, say it now."""
        try:
            self._formed[group] = ([int(rank) for rank in ranks], backend)
            ring, row = self.rank.ring, self._rows.get(group)
            if ring is not None and ring is self._ring and row is not None:
                self.rank.calls.describe_group(ring, row.name, row.number, *self._formed[group])
        except Exception as error:
            self.rank.drop("exchanges", error)

    def enqueued(self, group: str, seq: int, op: str, dtype: str, numel: int) -> None:
        """Between two steps the caches are cold, so there are few words and few calls in here."""
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
            # `exchanges.packed`, spelled out.
            what = operation | element << 8 | numel << 16
            if not inside:
                cells[at + 3] = what
            # Before the count: whoever reads the row must not see an exchange that is over because it was not yet entered.
            inside[seq] = what
            row.newest = cells[at + 1] = seq
            # `RingWriter.write`, spelled out.
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
        """From any thread, and in any order."""
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
            # Another thread may write between these two lines, so whoever wrote last looks again.
            while cells[at + 2] != (over := row.over()):
                cells[at + 2] = over
            if inside:
                for what in list(inside.values())[:1]:
                    cells[at + 3] = what
        except Exception as error:
            rank.drop("exchanges", error)

    # -- among whom

    def _meet(self, ring: RingWriter, group: str, seq: int) -> _Row:
        """A group's first exchange in this ring: it takes the next row, if need be that of the group that came longest ago."""
        with self._turn:
            if ring is not self._ring:
                # A process that was forked, and has become a rank of its own.
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
