"""Tensors without data, a few of which have known data.

Parameters and tensors on a device have no data, nor do the results computed from them. A small tensor whose inputs are all
known (labels, masks, positions) keeps a real twin, so that a script that reads its values takes the same branches as in a real run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from paceline.parts.plan.trace.memory import Live
from paceline.parts.plan.trace.operations import OperationCounter
from paceline.parts.plan.trace.values import FLOAT, INTEGER

# A twin is computed for real: small ones cost microseconds.
TWIN_ELEMENTS = 1 << 20
_LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default
_SPARSE = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default
_SPARSE_OF_BAGS = torch.ops.aten._embedding_bag_backward.default
_MASKED = frozenset({torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default})


class TraceMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Runs operations on fake tensors, and counts each once with the tensors that it keeps alive."""

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=True, allow_non_fake_inputs=True)
        self.live = Live()
        self.operations = OperationCounter()
        # Shape of a sparse gradient -> bytes of its rows and their positions, which a tensor without data does not say itself.
        self.sparse_bytes: dict[tuple[int, ...], int] = {}
        self._depth = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self._depth or func.namespace == "prim":
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        self._depth += 1
        try:
            with torch._C.DisableTorchFunction():
                return self._one(func, types, args, dict(kwargs or {}))
        finally:
            self._depth -= 1

    def _one(self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        given: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(Tensor, self.fake, (tuple(args), kwargs))
        args, kwargs = given
        if func in _MASKED:
            args = self._positions_for_masks(args)
        if func is _LOCAL_SCALAR:
            return _scalar(args[0])
        twin, known = _twin(func, args, kwargs)
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        except DynamicOutputShapeException:
            if not known:
                raise
            out = tree_map_only(Tensor, self.fake, twin)
        if known:
            _pair(out, twin)
        elif func._schema.is_mutable:
            _forget(func, args)
        self._count(func, args, kwargs, out)
        return out

    def fake(self, tensor: Tensor) -> Tensor:
        """`tensor` without its data; a small tensor keeps the data as its twin. A tensor without data is returned as it is."""
        if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
            return tensor
        fake = self.from_tensor(tensor)
        if tensor.numel() <= TWIN_ELEMENTS and not tensor.requires_grad:
            know(fake, tensor)
        return fake

    def _positions_for_masks(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A mask with known values becomes the positions that it selects; their number is then known too."""
        indices: list[Any] = []
        for index in args[1]:
            twin = getattr(index, "twin", None)
            if twin is not None and index.dtype in (torch.bool, torch.uint8):
                indices += [self.fake(position) for position in twin.nonzero(as_tuple=True)]
            else:
                indices.append(index)
        return (args[0], indices, *args[2:])

    def _count(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, FakeTensor)]
        if func is _SPARSE and isinstance(out, Tensor):
            self.sparse_bytes[tuple(out.shape)] = sum(leaf.numel() * leaf.element_size() for leaf in inputs)
        elif func is _SPARSE_OF_BAGS and isinstance(out, Tensor):
            # One row for each position that was looked up, not one for each bag, which is what the gradient of the output has.
            bags, positions = inputs[0], inputs[1]
            row = positions.element_size() + bags.shape[1] * bags.element_size()
            self.sparse_bytes[tuple(out.shape)] = positions.numel() * row
        self.live.outputs(inputs, inputs)
        self.live.outputs(outputs, inputs)
        self.operations.add(func, args, kwargs, out)


def know(fake: Any, real: Tensor) -> None:
    """`real` holds the values of `fake` from now on."""
    fake.twin = real


def forget(fake: Any) -> None:
    """The values of `fake` are unknown from now on."""
    fake.twin = None


def _scalar(tensor: Any) -> Any:
    twin = getattr(tensor, "twin", None)
    if twin is not None:
        return twin.item()
    if tensor.dtype is torch.bool:
        return False
    return FLOAT if tensor.dtype.is_floating_point else INTEGER


def _twin(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """The real result of the operation, if all its inputs are known and small; else (None, False)."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not tensors or any(getattr(tensor, "twin", None) is None for tensor in tensors):
        return None, False
    if sum(tensor.numel() for tensor in tensors) > TWIN_ELEMENTS or torch.is_inference_mode_enabled():
        return None, False
    args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.twin, (args, kwargs))
    try:
        with torch.no_grad():
            return func(*args, **kwargs), True
    except RuntimeError:
        return None, False


def _pair(out: Any, twin: Any) -> None:
    for fake, real in zip(tree_leaves(out), tree_leaves(twin), strict=False):
        if (
            isinstance(fake, FakeTensor)
            and isinstance(real, Tensor)
            and fake.shape == real.shape
            and real.numel() <= TWIN_ELEMENTS
        ):
            know(fake, real)


def _forget(func: Any, args: tuple[Any, ...]) -> None:
    """A tensor to which unknown values were written is no longer known."""
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for leaf in tree_leaves(value):
                if isinstance(leaf, FakeTensor):
                    forget(leaf)
