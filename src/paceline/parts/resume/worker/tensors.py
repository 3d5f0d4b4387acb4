"""Kinds of tensors and of numpy arrays. Their bytes are copied beside the plain values, all at once."""

import ctypes
import importlib
import math
import sys
import weakref
import zlib
from typing import Any

from .object_graph import MISSING, CannotKeep, CannotPutBack, Capture, ObjectKind, Restore
from .shared_memory import Placed

# A larger tensor that belongs to no model or optimizer, was made in front of the training loop, and that nothing has written to, is left
# as the script makes it again.
_SMALL_BYTES = 1 << 20
_SAMPLED = 4096


class TensorKind(ObjectKind):
    """A tensor. Payload: number of its copy or None and a checksum; dtype, shape, stride, device, is_parameter, requires_grad;
    the first copy of a tensor in the same storage, and at which byte of the storage it begins."""

    code = "tensor"

    def __init__(self) -> None:
        # Id -> the tensor, and what never changes of it.
        self._known: dict[int, tuple[weakref.ref[Any], tuple[Any, ...]]] = {}
        # Id -> the tensor, its version and its checksum when it was first seen. None: the script does not make it again.
        self._large: dict[int, tuple[weakref.ref[Any], int, int | None]] = {}

    def keep(self, capture: Capture, thing: Any) -> Any:
        known = self._known.get(id(thing))
        if known is None or known[0]() is not thing:
            known = self._known[id(thing)] = (weakref.ref(thing), _described(thing, capture.place))
        described = known[1]
        if described[-1] > _SMALL_BYTES and not capture.context.in_training_objects and thing.grad_fn is None:
            checksum = self._unchanged(thing, capture.context.is_beginning)
            if checksum is not None:
                return [None, checksum, *described[:-1], thing.requires_grad, 0, 0]
        copy = capture.copied(thing, described[0], described[1])
        storage = capture.storages.setdefault(thing.untyped_storage()._cdata, copy)
        start = thing.storage_offset() * thing.element_size()
        return [copy, 0, *described[:-1], thing.requires_grad, storage, start]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        copy, checksum, dtype, shape, stride, device, is_parameter, requires_grad, storage, start = payload
        fits = live is not MISSING and _is_tensor(live) and _fits(live, dtype, shape, device, is_parameter)
        if copy is None:
            if live is MISSING:
                raise CannotPutBack(
                    f"the script has not made the tensor `{restore.place}` again in front of its training loop"
                )
            if not fits or sampled_checksum(live) != checksum:
                raise CannotPutBack(f"the script has made the tensor `{restore.place}` with other values than before")
            self._large[id(live)] = (weakref.ref(live), live._version, checksum)
            return live
        # A tensor of a graph would keep the graph's old values for a backward pass.
        if not fits or live.grad_fn is not None:
            live = _new(dtype, shape, stride, device, is_parameter)
        if live.requires_grad != requires_grad and live.is_leaf:
            live.requires_grad_(requires_grad)
        restore.copies.append((live, copy))
        restore.placed.append(Placed(live, storage, start))
        return live

    def _unchanged(self, thing: Any, is_beginning: bool) -> int | None:
        """The checksum of a large tensor of the script's beginning that has not been written to; None: it has been, or nobody can tell."""
        known = self._large.get(id(thing))
        if known is None or known[0]() is not thing:
            try:
                # What the loop has made, the script does not make again in front of a later loop either.
                first = sampled_checksum(thing) if is_beginning else None
                known = self._large[id(thing)] = (weakref.ref(thing), thing._version, first)
            except RuntimeError:
                # A tensor made in inference mode has no version.
                return None
            # What was written to it before this may have been written by the first iteration.
            return known[2] if thing._version == 0 else None
        if known[2] is None or thing._version != known[1]:
            return None
        # What writes through `data` leaves the version as it is.
        return known[2] if sampled_checksum(thing) == known[2] else None


class ArrayKind(ObjectKind):
    """A numpy array or number. Payload: dtype, shape, and its bytes; or the number of the tensor that shares its memory."""

    code = "array"

    def keep(self, capture: Capture, thing: Any) -> Any:
        if thing.dtype.hasobject:
            raise CannotKeep(f"`{capture.place}` is a numpy array of Python objects")
        if thing.nbytes <= _SMALL_BYTES:
            return [thing.dtype.str, thing.shape, thing.tobytes(), None]
        torch = sys.modules["torch"]
        try:
            shared = torch.from_numpy(thing.reshape(-1))
        except (TypeError, ValueError) as error:
            raise CannotKeep(f"`{capture.place}` is a numpy array of {thing.dtype}: {error}") from None
        return [thing.dtype.str, thing.shape, None, capture.copied(shared, dtype_of(shared), tuple(shared.shape))]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        numpy: Any = importlib.import_module("numpy")
        dtype, shape, content, copy = payload
        is_live_array = isinstance(live, numpy.ndarray) and live.dtype.str == dtype and live.shape == shape
        made = live if is_live_array and live.flags.writeable and live.flags.c_contiguous else numpy.empty(shape, dtype)
        if copy is None:
            made[...] = numpy.frombuffer(content, dtype).reshape(shape)
        else:
            restore.copies.append((sys.modules["torch"].from_numpy(made.reshape(-1)), copy))
        return made


class NumberKind(ObjectKind):
    """A numpy number. Payload: dtype and bytes."""

    code = "number"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return [thing.dtype.str, thing.tobytes()]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        numpy: Any = importlib.import_module("numpy")
        return numpy.frombuffer(payload[1], payload[0])[0]


def layout(described: list[tuple[str, tuple[int, ...]]]) -> tuple[list[int], int]:
    """Where each tensor begins among the tensors of a slot, in bytes, and their bytes altogether, whole pages.

    `described`: dtype and shape of each tensor.
    """
    torch = sys.modules["torch"]
    places, at = [], 0
    for dtype, shape in described:
        places.append(at)
        at += -(-math.prod(shape) * getattr(torch, dtype).itemsize // 64) * 64
    return places, -(-at // 4096) * 4096


def dtype_of(tensor: Any) -> str:
    """The name of a tensor's dtype, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")


def is_dense(thing: Any) -> bool:
    """Whether this is a tensor of torch's own class that has its values here."""
    torch = sys.modules["torch"]
    return (
        type(thing) is torch.Tensor
        and thing.layout == torch.strided
        and not thing.is_quantized
        and thing.device.type != "meta"
    )


def sampled_checksum(tensor: Any) -> int:
    """A checksum of a sample of the values of a dense tensor."""
    torch = sys.modules["torch"]
    flat = tensor.detach().reshape(-1)
    if flat.numel() > _SAMPLED:
        flat = flat[:: flat.numel() // _SAMPLED]
    raw = flat.contiguous().cpu().view(torch.uint8)
    return zlib.crc32(ctypes.string_at(raw.data_ptr(), raw.numel()), tensor.numel())


def _described(tensor: Any, place: str) -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter)):
        raise CannotKeep(
            f"`{place}` is a {type(tensor).__name__}, a tensor that is spread over ranks or of another library"
        )
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise CannotKeep(f"`{place}` is a tensor of layout {tensor.layout} on {tensor.device}")
    stride = None if tensor.is_contiguous() else tuple(tensor.stride())
    dtype = dtype_of(tensor)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    size = tensor.numel() * tensor.element_size()
    return dtype, tuple(tensor.shape), stride, str(tensor.device), is_parameter, size


def _is_tensor(thing: Any) -> bool:
    return isinstance(thing, sys.modules["torch"].Tensor)


def _fits(live: Any, dtype: str, shape: tuple[int, ...], device: str, is_parameter: bool) -> bool:
    torch = sys.modules["torch"]
    return (
        tuple(live.shape) == shape
        and str(live.dtype) == f"torch.{dtype}"
        and str(live.device) == device
        and isinstance(live, torch.nn.Parameter) == is_parameter
    )


def _new(dtype: str, shape: tuple[int, ...], stride: tuple[int, ...] | None, device: str, is_parameter: bool) -> Any:
    torch = sys.modules["torch"]
    options = {"dtype": getattr(torch, dtype), "device": device}
    with torch.inference_mode(False), torch.no_grad():
        made = torch.empty(shape, **options) if stride is None else torch.empty_strided(shape, stride, **options)
        return torch.nn.Parameter(made, requires_grad=False) if is_parameter else made
