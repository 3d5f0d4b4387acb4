"""The areas of one host's ranks in their segment, and the ways a tensor goes through them, chunk by chunk.

Each rank has one area, which only it writes. An exchange cuts the areas into parts, and chunk after chunk goes through part after
part; a part is written again only when every rank has counted READ for the chunk that was there. An exchange starts to write when
all have read everything of the one before, and goes on with the next part: where memory was just read by another core, writing it is two to
three times as slow as writing what has left that core's cache, so an area is larger than such a cache and all of it is used in
turn. The larger a chunk, the fewer meetings. All ranks call a function here with tensors of the same size, and take
the same number of chunks.
"""

from collections.abc import Callable, Sequence

import torch

from .segment import Segment
from .sync import READ, WRITTEN, Doorbell

ANNOUNCEMENT_BYTES = 128
PARTS = 4
# How far one rank of a chain may be ahead of the next, in chunks: fewer changes of process where the ranks are more than the cores.
CHAIN_LEAD = 2

Function = Callable[..., torch.Tensor]
Check = Callable[[int], None]


class Areas:
    """Layout of the segment from `announcements_at`: one text for each rank; from `data_at`: rank 0's area, rank 1's, and so on."""

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
        self.others = (*range(rank + 1, size), *range(rank))  # so that not all turn to the same rank first
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
        """How many elements go at once where the area has so many parts."""
        return self.area_bytes // count // dtype.itemsize

    def announce(self, announcement: bytes) -> None:
        """When all are through the exchange before, say what this rank is about to do; `announced` is asked after a rank's first chunk."""
        self.doorbell.wait_all(READ, self.first)
        start = self._announcements_at + self.rank * ANNOUNCEMENT_BYTES
        self._segment.map[start : start + ANNOUNCEMENT_BYTES] = announcement.ljust(ANNOUNCEMENT_BYTES)

    def announced(self, rank: int) -> bytes:
        """What `rank` is about to do in this exchange."""
        start = self._announcements_at + rank * ANNOUNCEMENT_BYTES
        return self._segment.map[start : start + ANNOUNCEMENT_BYTES].rstrip()

    def free(self, index: int, parts: int) -> None:
        """Wait until this rank may write the chunk number `index` of this exchange."""
        if index >= parts:
            self.doorbell.wait_all(READ, self.first + index + 1 - parts)


def reduce_together(
    areas: Areas, pieces: Sequence[torch.Tensor], function: Function, check: Check, divisor: int
) -> None:
    """All-reduce in place: each writes its chunk and adds up what all wrote. One meeting a chunk, but every rank does all the additions."""
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
        # The first addition puts the total where the rank's own numbers are; one that comes later takes them from the area.
        if rank < 2:
            sources[rank] = piece
        reduce_in_order(function, sources, piece, piece, divisor)
        bell.post(READ, count)


def reduce_chain(areas: Areas, pieces: Sequence[torch.Tensor], function: Function, check: Check, divisor: int) -> None:
    """All-reduce in place: rank 0 writes a chunk, each rank adds its own to what the one before wrote, and all copy what the last
    one wrote.

    The ranks work on different chunks at a time. Five passes over the bytes for a rank, whatever the number of ranks; the first chunk takes
    as many steps as there are ranks.
    """
    bell, rank, last = areas.doorbell, areas.rank, areas.size - 1
    parts = chain_parts(areas.size)
    views = areas.parts(pieces[0].dtype, parts)
    # Earlier ranks look for the result so many chunks later, when it has come through the chain.
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
    """Parts of an area in a chain: as many as let every rank be CHAIN_LEAD chunks ahead of the next while the last one's result is read."""
    return CHAIN_LEAD * (size - 1) + 1


def scatter_pieces(
    areas: Areas,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[Sequence[torch.Tensor]],
    function: Function,
    check: Check,
    divisor: int,
) -> None:
    """Reduce-scatter. `inputs[r]`: the pieces of what goes to rank r, as long as those of `outputs`; an output may be part of the input."""
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
    """All-gather of the others' inputs. `outputs[r]`: the pieces of what comes from rank r, as long as those of `inputs`."""
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
    """The root writes, the others read."""
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

    Holds:   `scratch` may be one of the first two sources, `result` any of them, if it is not `scratch` as well
    """
    total = sources[0]
    for source in sources[1:-1]:
        total = function(total, source, out=scratch)
    function(total, sources[-1], out=result)
    if divisor > 1:
        result.div_(divisor)


def beginning(part: torch.Tensor, piece: torch.Tensor) -> torch.Tensor:
    """As much of a part as the piece needs."""
    return part if len(part) == len(piece) else part.narrow(0, 0, len(piece))
