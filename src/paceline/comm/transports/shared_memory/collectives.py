"""The areas of one host's ranks in their shared segment, and the algorithms that move a tensor through the areas in chunks.

Each rank has one area, and only this rank writes it. An exchange divides the areas into parts, and its chunks use part after part in
turn. A rank writes a part again only when every rank has counted READ for the part's last chunk. An exchange starts to write when
all ranks have read all of the previous exchange, and continues with the next part. Writing memory that another core has just read is two to
three times as slow as writing memory that has left that core's cache. So an area is larger than such a cache, and all of it is used in
turn. Larger chunks need fewer synchronisations. All ranks call a function here with tensors of the same size, and use
the same number of chunks.
"""

from collections.abc import Callable, Sequence

import torch

from .segment import Segment
from .sync import READ, WRITTEN, Doorbell

ANNOUNCEMENT_BYTES = 128
PARTS = 4
# How many chunks one rank of a chain may be ahead of the next rank. This gives fewer context switches if there are more ranks than cores.
CHAIN_LEAD = 2

Function = Callable[..., torch.Tensor]
Check = Callable[[int], None]


class Areas:
    """Layout of the segment. From `announcements_at`: one text per rank; from `data_at`: rank 0's area, rank 1's area, and so on."""

    def __init__(
        self,
        segment: Segment,
        doorbell: Doorbell,
        rank: int,
        size: int,
        *,
        announcements_at: int,
        data_at: int,
        area_bytes: int,
    ) -> None:
        self.doorbell, self.rank, self.size = doorbell, rank, size
        self.others = (*range(rank + 1, size), *range(rank))  # so that the ranks do not all start with the same peer
        self.first = 0
        self.area_bytes = area_bytes
        self._segment, self._announcements_at, self._data_at = segment, announcements_at, data_at
        self._parts: dict[tuple[torch.dtype, int], list[list[torch.Tensor]]] = {}

    def parts(self, dtype: torch.dtype, count: int) -> list[list[torch.Tensor]]:
        """[rank][part], each (chunk_elements,)."""
        if (dtype, count) not in self._parts:
            elements, part_bytes = self.chunk_elements(dtype, count), self.area_bytes // count
            self._parts[dtype, count] = [
                [
                    self._segment.tensor(dtype, self._data_at + rank * self.area_bytes + part * part_bytes, elements)
                    for part in range(count)
                ]
                for rank in range(self.size)
            ]
        return self._parts[dtype, count]

    def chunk_elements(self, dtype: torch.dtype, count: int) -> int:
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
        return self._segment.map[start : start + ANNOUNCEMENT_BYTES].rstrip()

    def free(self, index: int, parts: int) -> None:
        """Wait until this rank may write chunk number `index` of this exchange."""
        if index >= parts:
            self.doorbell.wait_all(READ, self.first + index + 1 - parts)


def reduce_together(
    areas: Areas, pieces: Sequence[torch.Tensor], function: Function, check: Check, divisor: int
) -> None:
    """All-reduce in place: each rank writes its chunk and sums all. One synchronisation per chunk, but every rank does all additions."""
    bell, rank, size = areas.doorbell, areas.rank, areas.size
    views = areas.parts(pieces[0].dtype, PARTS)
    for index, piece in enumerate(pieces):
        count = areas.first + index + 1
        part = count % PARTS
        areas.free(index, PARTS)
        sources = [beginning(views[other][part], piece) for other in range(size)]
        sources[rank].copy_(piece)
        bell.post(WRITTEN, count)
        bell.wait_all(WRITTEN, count)
        if not index:
            for other in areas.others:
                check(other)
        # The first addition writes the total over the rank's own numbers. A later addition reads these numbers from the area.
        if rank < 2:
            sources[rank] = piece
        reduce_in_order(function, sources, piece, piece, divisor)
        bell.post(READ, count)


def reduce_chain(areas: Areas, pieces: Sequence[torch.Tensor], function: Function, check: Check, divisor: int) -> None:
    """All-reduce in place: rank 0 writes a chunk, each rank adds its own chunk to the previous rank's sum, and all ranks copy the last
    rank's sum.

    The ranks work on different chunks at the same time. Each rank makes five passes over the bytes, for any number of ranks. The first
    chunk takes as many steps as there are ranks.
    """
    bell, rank, last = areas.doorbell, areas.rank, areas.size - 1
    parts = chain_parts(areas.size)
    views = areas.parts(pieces[0].dtype, parts)
    # Earlier ranks look for the result this many chunks later, when it has passed through the chain.
    lag = (last - rank) * CHAIN_LEAD
    for index in range(len(pieces) + lag):
        if index < len(pieces):
            piece, count = pieces[index], areas.first + index + 1
            mine = beginning(views[rank][count % parts], piece)
            areas.free(index, parts)
            if rank == 0:
                mine.copy_(piece)
            else:
                bell.wait(rank - 1, WRITTEN, count)
                if not index:
                    check(rank - 1)
                function(beginning(views[rank - 1][count % parts], piece), piece, out=mine)
                if rank == last and divisor > 1:
                    mine.div_(divisor)
            bell.post(WRITTEN, count)
        if (done := index - lag) >= 0:
            piece, count = pieces[done], areas.first + done + 1
            if rank < last:
                bell.wait(last, WRITTEN, count)
                if not done:
                    check(last)
            piece.copy_(beginning(views[last][count % parts], piece))
            bell.post(READ, count)


def chain_parts(size: int) -> int:
    """Parts of an area in a chain: enough for every rank to be CHAIN_LEAD chunks ahead of the next while the last rank's result is read."""
    return CHAIN_LEAD * (size - 1) + 1


def scatter_pieces(
    areas: Areas,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[Sequence[torch.Tensor]],
    function: Function,
    check: Check,
    divisor: int,
) -> None:
    """Reduce-scatter. `inputs[r]`: the pieces for rank r, with the lengths of `outputs`. An output may be part of the input."""
    bell, rank, size = areas.doorbell, areas.rank, areas.size
    views = areas.parts(outputs[0].dtype, PARTS)
    place = len(views[0][0]) // size
    for index, output in enumerate(outputs):
        count, length = areas.first + index + 1, len(output)
        part = count % PARTS
        areas.free(index, PARTS)
        for other in areas.others:
            views[rank][part].narrow(0, other * place, length).copy_(inputs[other][index])
        bell.post(WRITTEN, count)
        bell.wait_all(WRITTEN, count)
        if not index:
            for other in areas.others:
                check(other)
        sources = [views[other][part].narrow(0, rank * place, length) for other in range(size)]
        scratch, sources[rank] = sources[rank], inputs[rank][index]
        reduce_in_order(function, sources, scratch, output, divisor)
        bell.post(READ, count)


def gather_pieces(
    areas: Areas, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], check: Check
) -> None:
    """All-gather of the other ranks' inputs. `outputs[r]`: the pieces from rank r, with the lengths of `inputs`."""
    bell, rank = areas.doorbell, areas.rank
    views = areas.parts(inputs[0].dtype, PARTS)
    for index, piece in enumerate(inputs):
        count = areas.first + index + 1
        part = count % PARTS
        areas.free(index, PARTS)
        beginning(views[rank][part], piece).copy_(piece)
        bell.post(WRITTEN, count)
        for other in areas.others:
            bell.wait(other, WRITTEN, count)
            if not index:
                check(other)
            outputs[other][index].copy_(beginning(views[other][part], piece))
        bell.post(READ, count)


def broadcast_pieces(areas: Areas, pieces: Sequence[torch.Tensor], root: int, check: Check) -> None:
    """The root writes, and the other ranks read."""
    bell = areas.doorbell
    views = areas.parts(pieces[0].dtype, PARTS)[root]
    for index, piece in enumerate(pieces):
        count = areas.first + index + 1
        place = beginning(views[count % PARTS], piece)
        if areas.rank == root:
            areas.free(index, PARTS)
            place.copy_(piece)
            bell.post(WRITTEN, count)
        else:
            bell.wait(root, WRITTEN, count)
            if not index:
                check(root)
            piece.copy_(place)
        bell.post(READ, count)


def reduce_in_order(
    function: Function, sources: Sequence[torch.Tensor], scratch: torch.Tensor, result: torch.Tensor, divisor: int
) -> None:
    """result = f(...f(f(s0, s1), s2)..., sn), divided by `divisor` unless that is 1.

    Holds:   `scratch` may be one of the first two sources; `result` may be any source that is not also `scratch`
    """
    total = sources[0]
    for source in sources[1:-1]:
        total = function(total, source, out=scratch)
    function(total, sources[-1], out=result)
    if divisor > 1:
        result.div_(divisor)


def beginning(part: torch.Tensor, piece: torch.Tensor) -> torch.Tensor:
    """The first elements of a part, as many as the piece has."""
    return part if len(part) == len(piece) else part.narrow(0, 0, len(piece))
