"""Collectives among the ranks of one host, on CPU tensors, through shared memory.

A tensor is processed in chunks that stay in a core's cache (`collectives`). The work is torch's own copy_ and add, which release the
GIL. Waiting polls for a short time and then sleeps (`sync`). The memory has no name that could remain
(`segment`). It needs Linux.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..base import ELEMENTWISE
from .collectives import (
    ANNOUNCEMENT_BYTES,
    PARTS,
    Areas,
    Function,
    broadcast_pieces,
    chain_parts,
    gather_pieces,
    reduce_chain,
    reduce_together,
    scatter_pieces,
)
from .connect import SharedMemoryUnavailable, meet
from .segment import Segment, unnamed_file, whole_pages
from .sync import Doorbell, PeerLate, PeerLost

__all__ = [
    "CROSSOVER_BYTES",
    "OPS",
    "PeerLate",
    "PeerLost",
    "SharedMemory",
    "SharedMemoryUnavailable",
    "area_bytes_for",
]

OPS: dict[str, Function] = {"sum": torch.add, "avg": torch.add, **ELEMENTWISE}

# Below this size a collective is faster over gloo. bench/exchange_host.py on 2 and 4 ranks found no such size, from 8 bytes on.
CROSSOVER_BYTES = 0
_WIDEST_BYTES = 64  # of an element, and more
_MIB = 1 << 20
# Up to this size, one synchronisation with all additions on every rank is faster than a chain of more than two ranks.
_TOGETHER_BYTES = 1 << 20


def area_bytes_for(size: int) -> int:
    """Memory that each of `size` ranks adds to the segment: more than a core's own cache, and for many ranks their part of 32 MiB.

    Source: bench/exchange_host.py on 2 and 4 ranks and 2 cores; for more ranks it is a guess.
    """
    return max(min(4 * _MIB, 32 * _MIB // size), _MIB // 2)


class SharedMemory:
    """Every rank calls the same methods in the same order, one at a time, from any thread. A call returns when this rank has its result.

    Holds:   a reduction is op(...op(op(t0, t1), t2)..., tn) in rank order, in the tensors' dtype, rounded after each op; "avg" then divides
             by the number of ranks. So it is the same on every rank, bit for bit, and from run to run.
    Tensors: on the CPU, of any dtype that torch's function for the op takes; one that is not contiguous goes through a contiguous copy.
    Raises:  (every method) PeerLost; PeerLate: a rank made no progress for `timeout_seconds`; ValueError: a dtype or op that torch does not
             offer, sizes that do not fit, or ranks that call different things. After an error in the middle of an exchange, the others
             raise PeerLost when they miss this rank, and every later call here raises RuntimeError.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        *,
        timeout_seconds: float,
        area_bytes: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """Connect to the other ranks of this host, 0 to size - 1.

        store:      a torch Store whose keys nothing else uses: its own PrefixStore
        area_bytes: of each rank in the shared memory, the same on all; default `area_bytes_for`
        numbers:    the number of each rank in messages, such as its rank in the job; default 0 to size - 1
        Raises:     SharedMemoryUnavailable: on every rank, if these ranks cannot share memory
        """
        self.rank, self.size, self.timeout_seconds = rank, size, timeout_seconds
        self._numbers = list(range(size)) if numbers is None else list(numbers)
        self._over = ""
        self._segment_bytes = 0
        if size > 1:
            self._meet(store, area_bytes)

    def _meet(self, store: Any, area_bytes: int | None) -> None:
        announcements_at = Doorbell.bytes_needed(self.size)
        data_at = whole_pages(announcements_at + self.size * ANNOUNCEMENT_BYTES)
        area_bytes = whole_pages(max(area_bytes or area_bytes_for(self.size), _WIDEST_BYTES * self.size))
        self._segment_bytes = data_at + self.size * area_bytes
        met = meet(store, self.rank, self.size, self.timeout_seconds, lambda: unnamed_file(self._segment_bytes))
        segment = Segment(met.memory, self._segment_bytes)
        self._doorbell = Doorbell(
            segment, self.rank, met.bells, met.lines, numbers=self._numbers, spare_cores=met.cores >= self.size
        )
        self._areas = Areas(
            segment,
            self._doorbell,
            self.rank,
            self.size,
            announcements_at=announcements_at,
            data_at=data_at,
            area_bytes=area_bytes,
        )

    def extra_bytes(self) -> int:
        """Memory in addition to the tensors, per rank: its share of the segment, for any size of the tensors."""
        return -(-self._segment_bytes // self.size)

    def close(self) -> None:
        """Leave. A call that waits in another thread raises RuntimeError. The other ranks notice it only when they wait for this rank."""
        self._over = self._over or "it was closed"
        if self.size > 1:
            self._doorbell.close()

    # -- collectives

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """Replace every rank's tensor by the reduction of all tensors. Without elements it is a barrier."""
        flat, function, divisor = flattened(tensor), function_of(op, tensor.dtype), self._divisor(op)
        if self.size > 1:
            chained = self.size > 2 and flat.nbytes > min(_TOGETHER_BYTES, self._areas.area_bytes)
            if chained:
                # Every rank of the chain should have work at the same time.
                length = self._areas.chunk_elements(flat.dtype, chain_parts(self.size))
                length = min(length, -(-flat.numel() // self.size))
            else:
                length = self._areas.chunk_elements(flat.dtype, PARTS)
            pieces = cut(flat, length)
            announcement = announcement_of("all_reduce", op, flat.numel(), flat.dtype)
            steps = reduce_chain if chained else reduce_together
            self._run(announcement, len(pieces), steps, pieces, function, divisor=divisor)
        put_back(flat, tensor)

    def reduce_scatter(self, output: torch.Tensor, input: torch.Tensor, op: str) -> None:
        """Set `output` to this rank's part of the reduction of all `input` tensors. An input has `size` such parts and is not changed."""
        source, target = flattened(input), flattened(output)
        function, divisor = function_of(op, input.dtype), self._divisor(op)
        self._fit("reduce_scatter", target, source)
        if self.size == 1:
            target.copy_(source)
        else:
            length = self._areas.chunk_elements(source.dtype, PARTS * self.size)
            outputs = cut(target, length)
            parts = [cut(part, length) for part in source.view(self.size, target.numel()).unbind()]
            announcement = announcement_of("reduce_scatter", op, source.numel(), source.dtype)
            self._run(announcement, len(outputs), scatter_pieces, outputs, parts, function, divisor=divisor)
        put_back(target, output)

    def all_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """Set `output` to all ranks' `input`, concatenated in the order of ranks. `input` may be this rank's part of `output`."""
        source, target = flattened(input), flattened(output)
        self._fit("all_gather", source, target)
        octets = source.view(torch.uint8)
        parts = target.view(torch.uint8).view(self.size, octets.numel()).unbind()
        if self.size > 1:
            length = self._areas.chunk_elements(torch.uint8, PARTS)
            pieces, outputs = cut(octets, length), [cut(part, length) for part in parts]
            announcement = announcement_of("all_gather", "", source.numel(), source.dtype)
            self._run(announcement, len(pieces), gather_pieces, outputs, pieces)
        parts[self.rank].copy_(octets)
        put_back(target, output)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Replace every rank's tensor by that of rank `root` of this host."""
        if not 0 <= root < self.size:
            raise ValueError(f"broadcast from rank {root} of this host, which has ranks 0 to {self.size - 1}")
        flat = flattened(tensor)
        if self.size > 1:
            pieces = cut(flat.view(torch.uint8), self._areas.chunk_elements(torch.uint8, PARTS))
            announcement = announcement_of("broadcast", f"from rank {self._numbers[root]}", flat.numel(), flat.dtype)
            self._run(announcement, len(pieces), broadcast_pieces, pieces, root)
        if self.rank != root:
            put_back(flat, tensor)

    def _fit(self, name: str, part: torch.Tensor, whole: torch.Tensor) -> None:
        if part.dtype != whole.dtype:
            raise ValueError(f"{name} with input and output of different dtypes: {part.dtype} and {whole.dtype}")
        if part.numel() * self.size != whole.numel():
            raise ValueError(
                f"{name} among {self.size} ranks with {part.numel()} elements on one side and {whole.numel()} on the other"
            )

    def _divisor(self, op: str) -> int:
        return self.size if op == "avg" else 1

    def _run(
        self, announcement: bytes, chunks: int, steps: Callable[..., None], *arguments: Any, **options: Any
    ) -> None:
        """Run one exchange. An error in it leaves the ranks in different states, from which they cannot continue."""
        if self._over:
            raise RuntimeError(f"this exchange among the ranks of a host is over: {self._over}")

        def check(peer: int) -> None:
            if (theirs := self._areas.announced(peer)) != announcement:
                raise ValueError(
                    f"the ranks of this host call different things: rank {self._numbers[self.rank]} {announcement.decode()}, "
                    f"rank {self._numbers[peer]} {theirs.decode(errors='replace')}"
                )

        end = self._areas.first + chunks
        self._doorbell.timeout_seconds = self.timeout_seconds
        self._doorbell.begin(end)
        try:
            self._areas.announce(announcement)
            steps(self._areas, *arguments, check=check, **options)
            self._areas.first = end
        except BaseException as error:
            self._over = self._over or f"{type(error).__name__}: {error}"
            self._doorbell.leave(getattr(error, "rank", self._numbers[self.rank]), str(error) or type(error).__name__)
            raise
        finally:
            self._doorbell.end()


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as one flat tensor: the tensor's own memory if possible, else a copy."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(f"shared memory carries dense CPU tensors; this one is {tensor.layout} on {tensor.device}")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor.view(-1)
    return tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg().view(-1)


def cut(flat: torch.Tensor, length: int) -> Sequence[torch.Tensor]:
    """Pieces of this length; the last piece is shorter. Without elements: one empty piece."""
    if flat.numel() <= length:
        return (flat,)
    pieces: Sequence[torch.Tensor] = torch.split(flat, length)
    return pieces


def put_back(flat: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy the result into the tensor that `flattened` had to copy."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))


@lru_cache(maxsize=1024)
def announcement_of(name: str, op: str, numel: int, dtype: torch.dtype) -> bytes:
    """The text that a rank announces. A message shows it if another rank announces something else."""
    return f"calls {' '.join(filter(None, (name, op)))} of {numel} {str(dtype).removeprefix('torch.')}".encode()


@lru_cache(maxsize=1024)
def function_of(op: str, dtype: torch.dtype) -> Function:
    """torch's function for the op. It is tried on this dtype, so that torch refuses before anything is exchanged."""
    if op not in OPS:
        raise ValueError(f"shared memory has no op {op!r}; it has {', '.join(OPS)}")
    if op == "avg" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"avg of {dtype} is no {dtype}: use sum, and divide as the program needs it")
    one = torch.zeros(1).to(dtype)
    try:
        OPS[op](one, one, out=one)
    except RuntimeError as error:
        raise ValueError(f"torch cannot {op} {dtype}: {error}") from error
    return OPS[op]
