"""Collectives among the ranks of one host, on CPU tensors, through shared memory.

A tensor is processed in chunks that stay in a core's cache (`collectives`). The work is torch's own copy_ and add, which release the
GIL. Waiting polls for a short time and then sleeps (`sync`). The memory has no name that could remain
(`segment`). It needs Linux.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

from ..base import ELEMENTWISE
from .arrays import Arrays, Function
from .collectives import PARTS, gather_pieces, scatter_pieces
from .host_ranks import HostRanks, announcement_of

OPS: dict[str, Function] = {"sum": torch.add, "avg": torch.add, **ELEMENTWISE}

# Below this size a collective is faster over gloo. bench/exchange_host.py on 2 and 4 ranks found no such size, from 8 bytes on.
CROSSOVER_BYTES = 0


def tensor_over(memory: memoryview, dtype: torch.dtype, offset_bytes: int, count: int) -> torch.Tensor:
    """A flat tensor of `count` elements over these bytes. The tensor keeps the mapping alive."""
    # A tensor made in inference mode could not be written outside of inference mode.
    with torch.inference_mode(False):
        tensor: torch.Tensor = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset_bytes)
    return tensor


def cut(flat: torch.Tensor, length: int) -> Sequence[torch.Tensor]:
    """Pieces of this length; the last piece is shorter. Without elements: one empty piece."""
    if flat.numel() <= length:
        return (flat,)
    pieces: Sequence[torch.Tensor] = torch.split(flat, length)
    return pieces


def _part(tensor: torch.Tensor, first: int, count: int) -> torch.Tensor:
    return tensor.narrow(0, first, count)


TENSORS = Arrays(over=tensor_over, part=_part, cut=cut, copy=torch.Tensor.copy_, divide=torch.Tensor.div_)


class SharedMemory(HostRanks):
    """Every rank calls the same methods in the same order, one at a time, from any thread. A call returns when this rank has its result.

    Holds:   a reduction is op(...op(op(t0, t1), t2)..., tn) in rank order, in the tensors' dtype, rounded after each op; "avg" then divides
             by the number of ranks. So it is the same on every rank, bit for bit, and from run to run.
    Tensors: on the CPU, of any dtype that torch's function for the op takes; one that is not contiguous goes through a contiguous copy.
    Raises:  (every method) PeerLost; PeerLate: a rank made no progress for `timeout_seconds`; ValueError: a dtype or op that torch does not
             offer, sizes that do not fit, or ranks that call different things. After an error in the middle of an exchange, the others
             raise PeerLost when they miss this rank, and every later call here raises RuntimeError.
    """

    arrays = TENSORS

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """Replace every rank's tensor by the reduction of all tensors. Without elements it is a barrier."""
        flat, function, divisor = flattened(tensor), function_of(op, tensor.dtype), self._divisor(op)
        if self.size > 1:
            announcement = announcement_of("all_reduce", op, flat.numel(), flat.dtype)
            self._reduce_all(announcement, flat, flat, function, divisor)
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
            announcement = announcement_of("broadcast", f"from rank {self._numbers[root]}", flat.numel(), flat.dtype)
            self._broadcast(announcement, flat.view(torch.uint8), root)
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


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as one flat tensor: the tensor's own memory if possible, else a copy."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(f"shared memory carries dense CPU tensors; this one is {tensor.layout} on {tensor.device}")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor.view(-1)
    return tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg().view(-1)


def put_back(flat: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy the result into the tensor that `flattened` had to copy."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))


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
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"torch cannot {op} {dtype}: {error}") from error
    return OPS[op]
