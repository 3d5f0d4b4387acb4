"""`powersgd`: sends two narrow matrices instead of each wide one, with error feedback and warm start.

A gradient of n x m is averaged as P Q' with P of n x r and Q of m x r: one step of power iteration, which starts from the last Q. The
difference between this rank's gradient and the product is kept and added before the next step. Vectors, and matrices for which two narrow
ones would save less than half, are averaged unchanged, in the same message as P.

torch's own hook chains its all-reduces in callbacks. It fails on CPU backends if a model has several buckets, because the order of
callbacks differs between ranks. Here both all-reduces of a bucket run in one lane. The strategy decides which all-reduce moves P and Q.

Convergence: a student network on 4 ranks, 120 steps of SGD with momentum (tests/parts/comm/strategy_convergence.py), held-out loss relative
to plain DDP, mean of 2 seeds: 1.08 with rank 4, 3.7 with rank 1; the test's limits are 1.2 and 5.
Source: Vogels, Karimireddy, Jaggi 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .flat_buffer import FlatBuffer

_MUST_SAVE = 2


@dataclass
class _Matrix:
    """One compressed gradient in a bucket: flat[start:start + rows * columns]."""

    start: int
    """Offset in the buffer."""
    rows: int
    """Number of rows."""
    columns: int
    """Number of columns."""
    rank: int
    """Rank of its two factors."""
    p_at: int
    """Offset of its P in the first message."""
    q_at: int
    """Offset of its Q in the second message."""


@dataclass
class _Plan:
    """The compressed parts of one bucket, and the state that is kept from step to step."""

    matrices: list[_Matrix]
    """The compressed gradients."""
    whole: list[tuple[int, int]]
    """Spans of the buffer that are sent unchanged, in the first message after all P."""
    first_numel: int
    """Number of elements of the first message."""
    error: torch.Tensor
    """Error feedback: (numel of the bucket,), float32."""
    q: torch.Tensor
    """All Q, concatenated."""


class PowerSgd:
    """The wrapper. Its state per bucket is the error, as large as the bucket in float32, and Q.

    Bytes:   for n x m: 4 r (n + m) instead of 4 n m
    Holds:   a gradient of rank <= r that is the same at every step is averaged exactly from the second step on, within 1e-4 of its norm;
             over k steps of equal gradients the sum of the results differs from that of the plain averages by no more than what the error
             holds, which stays bounded as k grows
    All ranks get bitwise the same result if their processors compute alike: P and Q are bitwise the same everywhere, and each rank
    computes their product.
    """

    def __init__(self, rank: int = 4) -> None:
        self.rank = rank
        self._plans: dict[Any, _Plan] = {}
        # Key of a bucket that has not come yet -> its error and its Q, of an earlier process.
        self._loaded: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def average(self, flat_buffer: FlatBuffer, exchange: Callable[[FlatBuffer], None]) -> None:
        """Average in place. `exchange` averages a flat float32 buffer over all ranks, in place and in the same order everywhere."""
        flat, plan = flat_buffer.flat, self._plan(flat_buffer)
        error = plan.error
        # From here on, `error` is the value to average.
        error.add_(flat)
        first = flat.new_empty(plan.first_numel)
        for matrix in plan.matrices:
            torch.mm(_of(matrix, error), self._q(plan.q, matrix), out=self._p(first, matrix))
        at = plan.first_numel - sum(end - start for start, end in plan.whole)
        for start, end in plan.whole:
            first[at : at + end - start].copy_(error[start:end])
            at += end - start
        exchange(FlatBuffer(first, key=(flat_buffer.key, "p")))
        if not bool(torch.isfinite(first).all()):
            self._give_up(flat_buffer, plan)
            return
        for matrix in plan.matrices:
            p = self._p(first, matrix)
            _orthogonalise(p)
            torch.mm(_of(matrix, error).t(), p, out=self._q(plan.q, matrix))
        if plan.matrices:
            exchange(FlatBuffer(plan.q, key=(flat_buffer.key, "q")))
        if not bool(torch.isfinite(plan.q).all()):
            self._give_up(flat_buffer, plan)
            return
        self._rebuild(flat, first, plan)

    def state_dict(self) -> dict[Any, tuple[torch.Tensor, torch.Tensor]]:
        """Error and Q by the key of the bucket; not copies."""
        return self._loaded | {key: (plan.error, plan.q) for key, plan in self._plans.items()}

    def load_state_dict(self, states: Mapping[Any, tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Go on with the errors and Q of `state_dict`; not copies. They are for buckets of the same tensors."""
        self._plans.clear()
        self._loaded = dict(states)

    def clear(self) -> None:
        """Start again: no error, new Q."""
        self._plans.clear()
        self._loaded.clear()

    def extra_bytes(self) -> int:
        """Memory of the errors and of Q."""
        return sum(plan.error.nbytes + plan.q.nbytes for plan in list(self._plans.values()))

    def _rebuild(self, flat: torch.Tensor, first: torch.Tensor, plan: _Plan) -> None:
        error = plan.error
        for matrix in plan.matrices:
            local = _of(matrix, error)
            approximation = torch.mm(self._p(first, matrix), self._q(plan.q, matrix).t())
            _of(matrix, flat).copy_(approximation)
            local.sub_(approximation)
        at = plan.first_numel - sum(end - start for start, end in plan.whole)
        for start, end in plan.whole:
            flat[start:end].copy_(first[at : at + end - start])
            error[start:end].zero_()
            at += end - start

    def _give_up(self, flat_buffer: FlatBuffer, plan: _Plan) -> None:
        # An infinity on any rank makes every rank's message infinite: all ranks come here, and a loss scaler sees it.
        flat_buffer.flat.fill_(float("nan"))
        plan.error.zero_()
        plan.q.copy_(_first_q(plan.q.numel(), "cpu"))

    def _plan(self, flat_buffer: FlatBuffer) -> _Plan:
        plan = self._plans.get(flat_buffer.key)
        if plan is None or plan.error.numel() != flat_buffer.flat.numel():
            plan = self._plans[flat_buffer.key] = _make_plan(flat_buffer, self.rank)
            error, q = self._loaded.pop(flat_buffer.key, (plan.error, plan.q))
            if error.shape == plan.error.shape and q.shape == plan.q.shape:
                plan.error, plan.q = error, q
        return plan

    @staticmethod
    def _p(message: torch.Tensor, matrix: _Matrix) -> torch.Tensor:
        return message[matrix.p_at : matrix.p_at + matrix.rows * matrix.rank].view(matrix.rows, matrix.rank)

    @staticmethod
    def _q(message: torch.Tensor, matrix: _Matrix) -> torch.Tensor:
        return message[matrix.q_at : matrix.q_at + matrix.columns * matrix.rank].view(matrix.columns, matrix.rank)


def _make_plan(flat_buffer: FlatBuffer, rank: int) -> _Plan:
    matrices: list[_Matrix] = []
    whole: list[tuple[int, int]] = []
    start = p_at = q_at = 0
    for shape in flat_buffer.shapes or (torch.Size([flat_buffer.flat.numel()]),):
        numel = shape.numel()
        rows = shape[0] if len(shape) > 1 else 1
        columns = numel // rows if rows else 0
        columns_of_p = min(rank, rows, columns)
        if columns_of_p and (rows + columns) * columns_of_p * _MUST_SAVE < numel:
            matrices.append(_Matrix(start, rows, columns, columns_of_p, p_at, q_at))
            p_at += rows * columns_of_p
            q_at += columns * columns_of_p
        elif numel:
            whole.append((start, start + numel))
        start += numel
    first_numel = p_at + sum(end - begin for begin, end in whole)
    return _Plan(
        matrices, whole, first_numel, torch.zeros_like(flat_buffer.flat), _first_q(q_at, flat_buffer.flat.device)
    )


def _first_q(numel: int, device: torch.device | str) -> torch.Tensor:
    # It is the same on every rank, and does not use the script's own random numbers.
    return torch.randn(numel, generator=torch.Generator().manual_seed(numel)).to(device)


def _of(matrix: _Matrix, buffer: torch.Tensor) -> torch.Tensor:
    return buffer[matrix.start : matrix.start + matrix.rows * matrix.columns].view(matrix.rows, matrix.columns)


def _orthogonalise(matrix: torch.Tensor) -> None:
    """Gram-Schmidt over the columns, in place. A column that depends on the others becomes zero."""
    for index in range(matrix.shape[1]):
        column = matrix[:, index]
        length = torch.linalg.vector_norm(column)
        if index:
            before = matrix[:, :index]
            # Do it twice: the second pass removes what rounding added.
            column.addmv_(before, before.t().mv(column), alpha=-1)
            column.addmv_(before, before.t().mv(column), alpha=-1)
        left = torch.linalg.vector_norm(column)
        if float(left) > 1e-6 * float(length) and float(left) > 0.0:
            column.div_(left)
        else:
            column.zero_()
