"""The areas of one host's ranks in their shared segment, and the algorithms that move an array through the areas in chunks.

Each rank has one area, and only this rank writes it. An exchange divides the areas into parts, and its chunks use part after part in
turn. A rank writes a part again only when every rank has counted READ for the part's last chunk. An exchange starts to write when
all ranks have read all of the previous exchange, and continues with the next part. Writing memory that another core has just read is two to
three times as slow as writing memory that has left that core's cache. So an area is larger than such a cache, and all of it is used in
turn. Larger chunks need fewer synchronisations. All ranks call a function here with arrays of the same size, and use
the same number of chunks. What an array is, `arrays` says.
"""

from collections.abc import Callable, Sequence
from typing import Any

from .arrays import Array, Arrays, Function
from .segment import Segment
from .sync import READ, WRITTEN, Doorbell

ANNOUNCEMENT_BYTES = 128
PARTS = 4
# How many chunks one rank of a chain may be ahead of the next rank. This gives fewer context switches if there are more ranks than cores.
CHAIN_LEAD = 2

Check = Callable[[int], None]


class Areas:
    """Layout of the segment. From `announcements_at`: one text per rank; from `data_at`: rank 0's area, rank 1's area, and so on."""

    def __init__(
        self,
        segment: Segment,
        doorbell: Doorbell,
        rank: int,
        size: int,
        arrays: Arrays,
        *,
        announcements_at: int,
        data_at: int,
        area_bytes: int,
    ) -> None:
        self.doorbell, self.rank, self.size, self.arrays = doorbell, rank, size, arrays
        self.others = (*range(rank + 1, size), *range(rank))  # so that the ranks do not all start with the same peer
        self.first = 0
        self.area_bytes = area_bytes
        self._segment, self._announcements_at, self._data_at = segment, announcements_at, data_at
        self._parts: dict[tuple[Any, int], list[list[Array]]] = {}

    def parts(self, dtype: Any, count: int) -> list[list[Array]]:
        """[rank][part], each (chunk_elements,)."""
        if (dtype, count) not in self._parts:
            elements, part_bytes = self.chunk_elements(dtype, count), self.area_bytes // count
            self._parts[dtype, count] = [
                [
                    self.arrays.over(
                        self._segment.map, dtype, self._data_at + rank * self.area_bytes + part * part_bytes, elements
                    )
                    for part in range(count)
                ]
                for rank in range(self.size)
            ]
        return self._parts[dtype, count]

    def chunk_elements(self, dtype: Any, count: int) -> int:
        """Number of elements per chunk if the area has this many parts."""
        return self.area_bytes // count // dtype.itemsize

    def announce(self, announcement: bytes) -> None:
        """When all ranks have finished the previous exchange, write what this rank will do. Ask `announced` after a rank's first chunk."""
        self.doorbell.wait_all(READ, self.first)
        start = self._announcements_at + self.rank * ANNOUNCEMENT_BYTES
        self._segment.map[start : start + ANNOUNCEMENT_BYTES] = announcement.ljust(ANNOUNCEMENT_BYTES)

    def announced(self, rank: int) -> bytes:
        """What `rank` will do in this exchange."""
        start = self._announcements_at + rank * ANNOUNCEMENT_BYTES
        return bytes(self._segment.map[start : start + ANNOUNCEMENT_BYTES]).rstrip()

    def free(self, index: int, parts: int) -> None:
        """Wait until this rank may write chunk number `index` of this exchange."""
        if index >= parts:
            self.doorbell.wait_all(READ, self.first + index + 1 - parts)


def reduce_together(
    areas: Areas, inputs: Sequence[Array], outputs: Sequence[Array], function: Function, check: Check, divisor: int
) -> None:
    """All-reduce, in place where `outputs` are the `inputs`: each rank writes its chunk and sums all.

    One synchronisation per chunk, but every rank does all additions.
    """
    bell, rank, size, arrays = areas.doorbell, areas.rank, areas.size, areas.arrays
    views = areas.parts(inputs[0].dtype, PARTS)
    for index, (piece, output) in enumerate(zip(inputs, outputs, strict=True)):
        count = areas.first + index + 1
        part = count % PARTS
        areas.free(index, PARTS)
        sources = [beginning(arrays, views[other][part], piece) for other in range(size)]
        arrays.copy(sources[rank], piece)
        bell.post(WRITTEN, count)
        bell.wait_all(WRITTEN, count)
        if not index:
            for other in areas.others:
                check(other)
        # The first addition writes the total over the rank's own numbers. A later addition reads these numbers from the area.
        if rank < 2:
            sources[rank] = piece
        reduce_in_order(arrays, function, sources, output, output, divisor)
        bell.post(READ, count)


def reduce_chain(
    areas: Areas, inputs: Sequence[Array], outputs: Sequence[Array], function: Function, check: Check, divisor: int
) -> None:
    """All-reduce, in place where `outputs` are the `inputs`: rank 0 writes a chunk, each rank adds its own chunk to the previous rank's
    sum, and all ranks copy the last rank's sum.

    The ranks work on different chunks at the same time. Each rank makes five passes over the bytes, for any number of ranks. The first
    chunk takes as many steps as there are ranks.
    """
    bell, rank, last, arrays = areas.doorbell, areas.rank, areas.size - 1, areas.arrays
    parts = chain_parts(areas.size)
    views = areas.parts(inputs[0].dtype, parts)
    # Earlier ranks look for the result this many chunks later, when it has passed through the chain.
    lag = (last - rank) * CHAIN_LEAD
    for index in range(len(inputs) + lag):
        if index < len(inputs):
            piece, count = inputs[index], areas.first + index + 1
            mine = beginning(arrays, views[rank][count % parts], piece)
            areas.free(index, parts)
            if rank == 0:
                arrays.copy(mine, piece)
            else:
                bell.wait(rank - 1, WRITTEN, count)
                if not index:
                    check(rank - 1)
                function(beginning(arrays, views[rank - 1][count % parts], piece), piece, out=mine)
                if rank == last and divisor > 1:
                    arrays.divide(mine, divisor)
            bell.post(WRITTEN, count)
        if (done := index - lag) >= 0:
            output, count = outputs[done], areas.first + done + 1
            if rank < last:
                bell.wait(last, WRITTEN, count)
                if not done:
                    check(last)
            arrays.copy(output, beginning(arrays, views[last][count % parts], output))
            bell.post(READ, count)


def chain_parts(size: int) -> int:
    """Parts of an area in a chain: enough for every rank to be CHAIN_LEAD chunks ahead of the next while the last rank's result is read."""
    return CHAIN_LEAD * (size - 1) + 1


def scatter_pieces(
    areas: Areas,
    outputs: Sequence[Array],
    inputs: Sequence[Sequence[Array]],
    function: Function,
    check: Check,
    divisor: int,
) -> None:
    """Reduce-scatter. `inputs[r]`: the pieces for rank r, with the lengths of `outputs`. An output may be part of the input."""
    bell, rank, size, arrays = areas.doorbell, areas.rank, areas.size, areas.arrays
    views = areas.parts(outputs[0].dtype, PARTS)
    place = len(views[0][0]) // size
    for index, output in enumerate(outputs):
        count, length = areas.first + index + 1, len(output)
        part = count % PARTS
        areas.free(index, PARTS)
        for other in areas.others:
            arrays.copy(arrays.part(views[rank][part], other * place, length), inputs[other][index])
        bell.post(WRITTEN, count)
        bell.wait_all(WRITTEN, count)
        if not index:
            for other in areas.others:
                check(other)
        sources = [arrays.part(views[other][part], rank * place, length) for other in range(size)]
        scratch, sources[rank] = sources[rank], inputs[rank][index]
        reduce_in_order(arrays, function, sources, scratch, output, divisor)
        bell.post(READ, count)


def gather_pieces(areas: Areas, outputs: Sequence[Sequence[Array]], inputs: Sequence[Array], check: Check) -> None:
    """All-gather of the other ranks' inputs. `outputs[r]`: the pieces from rank r, with the lengths of `inputs`."""
    bell, rank, arrays = areas.doorbell, areas.rank, areas.arrays
    views = areas.parts(inputs[0].dtype, PARTS)
    for index, piece in enumerate(inputs):
        count = areas.first + index + 1
        part = count % PARTS
        areas.free(index, PARTS)
        arrays.copy(beginning(arrays, views[rank][part], piece), piece)
        bell.post(WRITTEN, count)
        for other in areas.others:
            bell.wait(other, WRITTEN, count)
            if not index:
                check(other)
            arrays.copy(outputs[other][index], beginning(arrays, views[other][part], piece))
        bell.post(READ, count)


def broadcast_pieces(areas: Areas, pieces: Sequence[Array], root: int, check: Check) -> None:
    """The root writes, and the other ranks read."""
    bell, arrays = areas.doorbell, areas.arrays
    views = areas.parts(pieces[0].dtype, PARTS)[root]
    for index, piece in enumerate(pieces):
        count = areas.first + index + 1
        place = beginning(arrays, views[count % PARTS], piece)
        if areas.rank == root:
            areas.free(index, PARTS)
            arrays.copy(place, piece)
            bell.post(WRITTEN, count)
        else:
            bell.wait(root, WRITTEN, count)
            if not index:
                check(root)
            arrays.copy(piece, place)
        bell.post(READ, count)


def reduce_in_order(
    arrays: Arrays, function: Function, sources: Sequence[Array], scratch: Array, result: Array, divisor: int
) -> None:
    """result = f(...f(f(s0, s1), s2)..., sn), divided by `divisor` unless that is 1.

    Holds:   `scratch` may be one of the first two sources; `result` may be any source that is not also `scratch`
    """
    total = sources[0]
    for source in sources[1:-1]:
        total = function(total, source, out=scratch)
    function(total, sources[-1], out=result)
    if divisor > 1:
        arrays.divide(result, divisor)


def beginning(arrays: Arrays, part: Array, piece: Array) -> Array:
    """The first elements of a part, as many as the piece has."""
    return part if len(part) == len(piece) else arrays.part(part, 0, len(piece))
