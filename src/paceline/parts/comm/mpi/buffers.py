"""Tensors as MPI takes them: an address, a count and a datatype. It uses no numpy, because torch may lack it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..arguments import factor_of

# Of one reduction. MPI counts with a C int, and a library works on a whole reduction's buffer at a time.
PIECE_ELEMENTS = 1 << 26
MOST_ELEMENTS = (1 << 31) - 1

_DATATYPES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.int8: "INT8_T",
    torch.int16: "INT16_T",
    torch.int32: "INT32_T",
    torch.int64: "INT64_T",
    torch.uint8: "UINT8_T",
    torch.uint16: "UINT16_T",
    torch.uint32: "UINT32_T",
    torch.uint64: "UINT64_T",
    torch.complex64: "C_FLOAT_COMPLEX",
    torch.complex128: "C_DOUBLE_COMPLEX",
    torch.bool: "UINT8_T",
}
_OPERATIONS = {
    dist.ReduceOp.SUM: "SUM",
    dist.ReduceOp.AVG: "SUM",
    dist.ReduceOp.PREMUL_SUM: "SUM",
    dist.ReduceOp.PRODUCT: "PROD",
    dist.ReduceOp.MIN: "MIN",
    dist.ReduceOp.MAX: "MAX",
    dist.ReduceOp.BAND: "BAND",
    dist.ReduceOp.BOR: "BOR",
    dist.ReduceOp.BXOR: "BXOR",
}
# A bool is a byte of 0 or 1 to MPI, and stays one under these.
_OF_BOOLS = {"SUM": "MAX", "PROD": "MIN", "MIN": "MIN", "MAX": "MAX", "BAND": "MIN", "BOR": "MAX", "BXOR": "BXOR"}
_BITWISE = ("BAND", "BOR", "BXOR")
_OF_FLOATS = (dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM)


class Buffers:
    """Makes the specifications that mpi4py takes. `mpi`: the module mpi4py.MPI."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._by_size: dict[int, Any] = {}

    def numbers(self, tensor: torch.Tensor, first: int = 0, count: int | None = None) -> list[Any]:
        """Elements that MPI reduces: [memory, count, datatype] of a contiguous tensor, or of `count` elements of it from `first` on."""
        size = tensor.numel() - first if count is None else count
        return [self._memory(tensor, first, size), size, getattr(self._mpi, _DATATYPES[tensor.dtype])]

    def bytes_of(self, tensor: torch.Tensor) -> list[Any]:
        """Elements that are only moved: their datatype is a run of bytes, so every dtype is possible."""
        return [self._memory(tensor, 0, tensor.numel()), tensor.numel(), self._run(tensor.element_size())]

    def parts_of(self, tensor: torch.Tensor, counts: list[int]) -> list[Any]:
        """The same, in consecutive parts of these numbers of elements."""
        starts = [sum(counts[:index]) for index in range(len(counts))]
        kind = self._run(tensor.element_size())
        return [self._memory(tensor, 0, tensor.numel()), counts, starts, kind]

    def pieces(self, tensor: torch.Tensor) -> Iterator[list[Any]]:
        """`numbers` of a large tensor, piece by piece."""
        for first in range(0, tensor.numel(), PIECE_ELEMENTS):
            yield self.numbers(tensor, first, min(PIECE_ELEMENTS, tensor.numel() - first))

    def operation(self, op: Any, dtype: torch.dtype) -> Any:
        """The MPI operation of a torch reduce operation."""
        name = _OPERATIONS[_plain(op)]
        return getattr(self._mpi, _OF_BOOLS[name] if dtype is torch.bool else name)

    def _memory(self, tensor: torch.Tensor, first: int, count: int) -> Any:
        width = tensor.element_size()
        return self._mpi.memory.fromaddress(tensor.data_ptr() + first * width if count else 0, count * width)

    def _run(self, size_bytes: int) -> Any:
        kind = self._by_size.get(size_bytes)
        if kind is None:
            kind = self._by_size[size_bytes] = self._mpi.BYTE.Create_contiguous(size_bytes).Commit()
        return kind


def check_movable(op: str, *tensors: torch.Tensor) -> None:
    """
    Raises:  ValueError: a tensor that MPI cannot take: sparse, on a device, or with more elements than MPI can count
    """
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise ValueError(
                f"{op}: paceline_mpi takes dense tensors; this one is {tensor.layout}. Use .to_dense(), or the backend gloo"
            )
        if tensor.device.type != "cpu":
            raise ValueError(
                f"{op}: paceline_mpi moves CPU tensors; this one is on {tensor.device}. Use .cpu(), or the backend paceline or nccl"
            )
        if tensor.numel() > MOST_ELEMENTS:
            raise ValueError(
                f"{op}: MPI counts to {MOST_ELEMENTS} elements, this tensor has {tensor.numel()}; exchange it in parts"
            )


def check_reducible(op: str, reduce_op: Any, *tensors: torch.Tensor) -> None:
    """
    Raises:  ValueError: a reduce operation that MPI does not have, or not for this dtype
    """
    kind = _plain(reduce_op)
    if kind not in _OPERATIONS:
        raise ValueError(f"{op}: paceline_mpi has no {reduce_op}")
    for tensor in tensors:
        is_float = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        if _OPERATIONS[kind] in _BITWISE and is_float:
            raise ValueError(f"{op}: {kind} needs a dtype of integers, this tensor is {tensor.dtype}")
        if kind in _OF_FLOATS and not is_float:
            raise ValueError(f"{op}: {kind} needs a floating point dtype, this tensor is {tensor.dtype}")
        if _OPERATIONS[kind] in ("MIN", "MAX") and tensor.dtype.is_complex:
            raise ValueError(f"{op}: complex numbers have no order, so no {kind}")


def as_numbers(tensor: torch.Tensor, reduce_op: Any) -> torch.Tensor:
    """The tensor that MPI reduces: contiguous, in a dtype of MPI (half, bfloat16, float8 become float32), multiplied if the op says so.

    It is the tensor itself if nothing has to change.
    """
    numbers: torch.Tensor = (tensor if tensor.dtype in _DATATYPES else tensor.float()).contiguous()
    if _plain(reduce_op) == dist.ReduceOp.PREMUL_SUM:
        numbers = numbers * factor_of(reduce_op)
    return numbers


def averaged(tensor: torch.Tensor, reduce_op: Any, ranks: int) -> None:
    """Divide the sum in place, if the operation is an average."""
    if _plain(reduce_op) == dist.ReduceOp.AVG:
        tensor.div_(ranks)


def _plain(op: Any) -> Any:
    # Without what torch wraps around it.
    return getattr(op, "op", op)


def put(result: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy a result to its destination, unless it is there already."""
    if result is not tensor:
        tensor.copy_(result.view(tensor.shape))


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """A flat copy of the tensors, one after another."""
    whole: torch.Tensor = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    return whole


def check_count(op: str, what: str, tensors: Sequence[Any], size: int) -> None:
    """
    Raises:  ValueError: not one for every rank
    """
    if len(tensors) != size:
        raise ValueError(f"{op}: {len(tensors)} {what} for {size} ranks")


def check_root(op: str, root: int, size: int) -> None:
    """
    Raises:  ValueError: no rank of the group
    """
    if not 0 <= root < size:
        raise ValueError(f"{op}: invalid root rank {root} in a group of {size}")


def check_times(op: str, what: str, large: torch.Tensor, small: torch.Tensor, size: int) -> None:
    """
    Raises:  ValueError: dtypes differ, or `large` does not have the elements of `size` times `small`
    """
    if large.dtype != small.dtype:
        raise ValueError(f"{op}: dtypes differ: {large.dtype} and {small.dtype}")
    if large.numel() != size * small.numel():
        raise ValueError(f"{op}: the {what} has {large.numel()} elements, not {size} x {small.numel()}")
