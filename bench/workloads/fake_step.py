"""One training step on fake tensors: what its operations are and what it holds at its peak. Needs torch, no accelerator."""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

KINDS = {
    "convolution": ("convolution",),
    "attention": ("scaled_dot_product", "flash_attention", "efficient_attention"),
    "matmul": ("mm", "addmm", "bmm", "baddbmm", "linear"),
    "normalization": ("batch_norm", "layer_norm", "group_norm"),
    "embedding": ("embedding", "index_select", "gather", "scatter", "index_put", "index."),
    "reduction": ("sum", "mean", "softmax", "max", "nll_loss", "norm", "logsumexp"),
    "copy": (
        "_to_copy",
        "clone",
        "copy_",
        "cat",
        "stack",
        "constant_pad",
        "slice_backward",
        "select_backward",
        "fill",
        "zeros",
        "pool",
    ),
}
HALF = (torch.float16, torch.bfloat16)
# What an accelerator's kernel holds while it runs and no fake tensor shows, in multiples of its result: radix sort keeps keys and values
# twice. Source: torch aten/src/ATen/native/cuda/Randperm.cu (keys, sorted keys, range beside the result), Sort.cpp, cub::DeviceRadixSort.
WORKSPACE = {"randperm": 3, "sort": 2}


class Recorder(TorchDispatchMode):
    """Counts operations with their flops and bytes, and follows which storages are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[tuple[str, str, bool], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self.alive = 0
        self.peak = 0
        self.largest = 0
        self._seen: dict[int, Any] = {}

    def hold(self, tensor: torch.Tensor) -> None:
        """Count a storage until nobody holds it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        self._seen[key] = weakref.finalize(storage, self._free, key, size)
        self.alive += size
        self.largest = max(self.largest, size)
        self.peak = max(self.peak, self.alive)

    def _free(self, key: int, size: int) -> None:
        self._seen.pop(key, None)
        self.alive -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        made = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        for each in made:
            self.hold(each)
        name = function._schema.name.removeprefix("aten::")
        if name in WORKSPACE and made:
            self.peak = max(self.peak, self.alive + WORKSPACE[name] * made[0].untyped_storage().nbytes())
        self._count(function, args, kwargs, result, given, made)
        return result

    def _count(
        self, function: Any, args: Any, kwargs: Any, result: Any, given: list[torch.Tensor], made: list[torch.Tensor]
    ) -> None:
        inputs = {each.untyped_storage()._cdata for each in given}
        name = function._schema.name.removeprefix("aten::")
        writes = name.endswith("_") or any(each.untyped_storage()._cdata not in inputs for each in made)
        if not writes:
            return
        packet = function.overloadpacket
        flops = 0.0
        if name == "convolution_backward":
            flops = _convolution_backward_flops(*args)
        elif packet in flop_registry:
            flops = float(flop_registry[packet](*args, **kwargs, out_val=result))
        moved = sum(each.numel() * each.element_size() for each in [*given, *made])
        half = bool(given) and any(each.dtype in HALF for each in given)
        row = self.table[(name, kind_of(name), half)]
        row[0] += 1
        row[1] += flops
        row[2] += moved


def _convolution_backward_flops(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> float:
    """Each gradient that is asked for costs a forward pass. torch 2.13's own count takes grouped convolutions for dense ones."""
    transposed, wanted = rest[4], rest[7]
    image = x if transposed else grad
    return 2.0 * image.numel() * weight.numel() / weight.shape[0] * (bool(wanted[0]) + bool(wanted[1]))


def kind_of(name: str) -> str:
    """Which of `Operations.kind` an aten operation belongs to."""
    for kind, marks in KINDS.items():
        if kind == "matmul":
            if name in marks:
                return kind
        elif any(mark in name for mark in marks):
            return kind
    return "elementwise"


def peak_of(prepare: Callable[[], object]) -> tuple[int, int]:
    """Bytes at the peak of something that only makes tensors, such as preparing an epoch on the device, and those that it leaves alive."""
    with FakeTensorMode():
        recorder = Recorder()
        with recorder:
            left = prepare()
        alive = recorder.alive
        del left
        return recorder.peak, alive


@contextmanager
def _fused_dropout() -> Iterator[None]:
    """Dropout as an accelerator computes it, with a mask of one byte a value; on a CPU its mask is as large as what it drops."""
    plain = functional.dropout

    def fused(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return torch.native_dropout(x, p, training)[0] if training and p > 0 else x

    functional.dropout = fused
    try:
        yield
    finally:
        functional.dropout = plain


def trace(
    build: Callable[[], nn.Module], step: Callable[[nn.Module, int], torch.Tensor], batch: int, *, half: bool
) -> dict[str, Any]:
    """Forward and backward of one step of `batch` samples.

    `half`: under bf16 autocast on a fake CPU, whose tensors have the sizes of fp16 on an accelerator. The update is not run: `peak_bytes`
    is that of forward and backward, parameters included.

    Units:   bytes; flops of forward and backward, a multiply-add is two
    """
    with FakeTensorMode(allow_non_fake_inputs=True), _fused_dropout():
        model = build()
        recorder = Recorder()
        for each in [*model.parameters(), *model.buffers()]:
            recorder.hold(each)
        recorder.largest = 0
        with recorder:
            with torch.autocast("cpu", dtype=torch.bfloat16) if half else nullcontext():
                loss = step(model, batch)
            loss.backward()
        gradients = sum(
            each.grad.numel() * each.grad.element_size() for each in model.parameters() if each.grad is not None
        )
        return {
            "parameter_count": sum(each.numel() for each in model.parameters()),
            "parameter_bytes": sum(each.numel() * each.element_size() for each in model.parameters()),
            "largest_parameter": max(each.numel() for each in model.parameters()),
            "gradient_bytes": gradients,
            "gradient_tensors": sum(each.grad is not None for each in model.parameters()),
            "peak_bytes": recorder.peak,
            "largest_tensor_bytes": recorder.largest,
            "operations": [
                {
                    "name": name,
                    "kind": kind,
                    "half": is_half,
                    "count": int(row[0]),
                    "flops": row[1],
                    "moved_bytes": row[2],
                }
                for (name, kind, is_half), row in sorted(recorder.table.items())
            ],
        }
