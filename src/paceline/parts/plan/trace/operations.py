"""The operations of a step: their number, arithmetic and bytes, at the aten level before any compiler fuses them."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten

# A word in an operation's name -> its kind; the first that is in the name decides.
_KINDS = (
    ("conv", "convolution"),
    ("attention", "attention"),
    ("norm", "normalization"),
    ("embedding", "embedding"),
    ("index", "embedding"),
    ("gather", "embedding"),
    ("scatter", "embedding"),
    ("copy", "copy"),
    ("clone", "copy"),
    ("cat", "copy"),
    ("stack", "copy"),
    ("fill", "copy"),
    ("zero", "copy"),
    ("sum", "reduction"),
    ("mean", "reduction"),
    ("max", "reduction"),
    ("softmax", "reduction"),
    ("nll_loss", "reduction"),
    ("pool", "reduction"),
    ("argm", "reduction"),
)
_MATMULS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "linear", "_scaled_mm"})
_RECURRENT = frozenset({"mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"})
_PRECISIONS = {
    torch.float32: "fp32",
    torch.float64: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
# torch has no formula for the CPU's flash attention; it computes what CUDA's computes.
_SAME_ARITHMETIC = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
}


def kind_of(name: str) -> str:
    """matmul, convolution, attention, normalization, elementwise, reduction, embedding, copy or other, by aten's name."""
    if name in _MATMULS or name in _RECURRENT:
        return "matmul"
    return next((kind for word, kind in _KINDS if word in name), "elementwise")


class OperationCounter:
    """The table of the step: (operation, precision) -> calls, flops, bytes."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[float]] = {}

    def clear(self) -> None:
        """Forget all operations so far: those before the step do not belong to it."""
        self._rows.clear()

    def add(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Count one call. A view moves no bytes and is left out.

        Units:   a multiply-add is two; every input is read once and every output written once
        """
        if (
            func.is_view
            or func.namespace == "prim"
            or func.overloadpacket in (aten.detach, aten.empty, aten.empty_like)
        ):
            return
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if not func._schema.is_mutable and outputs and _same_storage(outputs, inputs):
            return
        moved = sum(size_bytes(tensor) for tensor in inputs) + sum(size_bytes(tensor) for tensor in outputs)
        precision = next(
            (_PRECISIONS[tensor.dtype] for tensor in (*inputs, *outputs) if tensor.dtype in _PRECISIONS), ""
        )
        row = self._rows.setdefault((func.overloadpacket.__name__, precision), [0, 0.0, 0.0])
        row[0] += 1
        row[1] += _flops(func, args, kwargs, out, outputs)
        row[2] += _moved(func, inputs, moved)

    def rows(self) -> list[dict[str, Any]]:
        """Every line as plain data, the most arithmetic first."""
        ordered = sorted(self._rows.items(), key=lambda item: (-item[1][1], -item[1][2], item[0]))
        return [
            {
                "name": name,
                "kind": kind_of(name),
                "precision": precision,
                "count": int(count),
                "flops": flops,
                "moved_bytes": moved,
            }
            for (name, precision), (count, flops, moved) in ordered
        ]

    def flops(self) -> float:
        """Of the whole step."""
        return sum(row[1] for row in self._rows.values())

    def precision(self) -> str | None:
        """The precision of most of the arithmetic; None if there was none."""
        flops: dict[str, float] = {}
        for (_, precision), row in self._rows.items():
            if precision:
                flops[precision] = flops.get(precision, 0.0) + row[1]
        return max(flops, key=lambda name: flops[name]) if flops else None


def _same_storage(outputs: list[Tensor], inputs: list[Tensor]) -> bool:
    if any(tensor.layout is not torch.strided for tensor in (*inputs, *outputs)):
        return False
    storages = {id(tensor.untyped_storage()) for tensor in inputs}
    return all(id(tensor.untyped_storage()) in storages for tensor in outputs)


def size_bytes(tensor: Tensor) -> int:
    """Bytes of its elements; of a sparse tensor, those of its rows and their positions."""
    if tensor.layout is torch.sparse_coo:
        return int(
            tensor._nnz()
            * (tensor.element_size() * math.prod(tensor.shape[tensor.sparse_dim() :]) + 8 * tensor.sparse_dim())
        )
    return tensor.numel() * tensor.element_size()


def _moved(func: Any, inputs: list[Tensor], moved: int) -> float:
    """Bytes that an operation moves. A look-up reads the requested rows only, not the table."""
    if func.overloadpacket in (aten.embedding, aten.index, aten.gather, aten.index_select) and inputs:
        return float(max(moved - size_bytes(inputs[0]), 0))
    return float(moved)


def _flops(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, outputs: list[Tensor]) -> float:
    packet = func.overloadpacket
    formula = flop_registry.get(_SAME_ARITHMETIC.get(packet, packet))
    if formula is not None:
        return float(formula(*args, **kwargs, out_val=out))
    if packet.__name__ in _RECURRENT:
        return _recurrent_flops(packet.__name__, args)
    # An elementwise operation does about one operation for each element it makes.
    return 0.0 if kind_of(packet.__name__) in ("copy", "embedding") else float(sum(t.numel() for t in outputs))


def _recurrent_flops(name: str, args: Sequence[Any]) -> float:
    """A layer of a recurrent network: both weight matrices for every element of the sequence, twice as much backward."""
    sequence, of_input, of_hidden = args[0], args[1], args[2]
    elements = sequence.shape[0] * sequence.shape[1]
    once = 2.0 * elements * (of_input.numel() + of_hidden.numel())
    return float(2 * once if name.endswith("backward") else once)
