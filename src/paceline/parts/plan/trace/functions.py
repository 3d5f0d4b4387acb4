"""Every torch call of the script passes here: devices become the stand-in, and missing values become stand-in numbers."""

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.nn.functional
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor
from torch.overrides import TorchFunctionMode

from paceline.parts.plan.trace.fake import TWIN_ELEMENTS, TraceMode
from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.precision import cuda_policy
from paceline.parts.plan.trace.sequences import packed, unpacked
from paceline.parts.plan.trace.session import TraceSession
from paceline.parts.plan.trace.user_frame import here
from paceline.parts.plan.trace.values import FLOAT, INTEGER, StandInFloat, StandInInteger, decided

_CPU = torch.device("cpu")
_IS_CUDA: Any = Tensor.is_cuda
_PACK: Any = torch._C._VariableFunctions._pack_padded_sequence
_UNPACK: Any = torch._C._VariableFunctions._pad_packed_sequence
_IS_CPU: Any = Tensor.is_cpu
# What takes sizes or positions.
_SIZED = frozenset(
    (
        "zeros",
        "ones",
        "empty",
        "full",
        "rand",
        "randn",
        "randint",
        "arange",
        "linspace",
        "view",
        "reshape",
        "expand",
        "repeat",
    )
    + (
        "narrow",
        "split",
        "chunk",
        "topk",
        "unfold",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "__getitem__",
        "__setitem__",
    )
)
# What a check for NaN or infinity, or for a finite number, should find: property -> its value where nothing is wrong.
_HEALTHY = {
    torch.isfinite: True,
    Tensor.isfinite: True,
    torch.isnan: False,
    Tensor.isnan: False,
    torch.isinf: False,
    Tensor.isinf: False,
}
_KEEPS_HEALTH = frozenset(
    {torch.any, Tensor.any, torch.all, Tensor.all, Tensor.sum, torch.sum, Tensor.max, Tensor.item, Tensor.cpu}
)
_OPPOSITE = frozenset({torch.logical_not, Tensor.logical_not, Tensor.__invert__, torch.bitwise_not})


class TraceFunctions(TorchFunctionMode):
    """The mode between the script and torch, pushed once for the whole script.

    A call with a tensor that has no data runs under the trace's fake mode; another call stays as it is. An operation on a `cuda`
    device runs on tensors without data, which report that device as theirs.
    """

    def __init__(self, session: TraceSession, mode: TraceMode) -> None:
        super().__init__()
        self.session = session
        self.mode = mode
        self.cuda = session.device_type == "cuda"
        self._answers: dict[Any, Callable[..., Any]] = {
            Tensor.item: self._item,
            Tensor.tolist: self._list,
            Tensor.numpy: self._numpy,
            Tensor.__array__: self._numpy,
            Tensor.__bool__: self._bool,
            Tensor.is_nonzero: self._bool,
            torch.is_nonzero: self._bool,
            Tensor.__float__: lambda tensor: float(self._item(tensor)),
            Tensor.__int__: self._int,
            Tensor.__index__: lambda tensor: operator.index(self._item(tensor)),
            torch.equal: self._equal,
            Tensor.equal: self._equal,
            torch.allclose: self._equal,
            Tensor.allclose: self._equal,
            Tensor.data_ptr: lambda tensor: id(tensor.untyped_storage()),
            Tensor.pin_memory: lambda tensor, *_, **__: tensor,
            Tensor.share_memory_: lambda tensor: tensor,
            _PACK: self._packed,
            _UNPACK: lambda *args: unpacked(self.mode, *args),
            Tensor.__repr__: lambda tensor, **__: (
                f"tensor(without data, size={tuple(tensor.shape)}, dtype={tensor.dtype})"
            ),
        }
        if self.cuda:
            _told_device()
        self._on_cuda: dict[Any, Callable[..., Any]] = {
            _IS_CUDA.__get__: lambda tensor: True,
            _IS_CPU.__get__: lambda tensor: False,
            Tensor.get_device: lambda tensor: 0,
            Tensor.cuda: lambda tensor, *_, **__: tensor,
            torch.dropout: self._dropout,
            torch.nn.functional.scaled_dot_product_attention: self._attention,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if StandInInteger.made and getattr(func, "__name__", "") in _SIZED and _any_unknown((*args, *kwargs.values())):
            self._refuse("a size or position is a number that was read of a tensor without data")
        if not _any_fake(args) and not _any_fake(kwargs.values()):
            return self._real(func, args, kwargs)
        answer = self._answers.get(func) or (self._on_cuda.get(func) if self.cuda else None)
        if answer is not None:
            return answer(*args, **kwargs)
        if getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__"):
            return func(*args, **kwargs)
        if self.cuda:
            args, kwargs, _ = _without_device(func, args, kwargs)
            if torch.is_autocast_cpu_enabled():
                args, kwargs = cuda_policy(func, args, kwargs)
        try:
            with self.mode:
                out = func(*args, **kwargs)
        except DynamicOutputShapeException as error:
            self._refuse(f"{error.func} makes as many elements as the data say")
        return self._healthy(func, args, out)

    def _real(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call on real tensors, or on none: it runs for real, unless it names the device."""
        if func is Tensor.pin_memory:
            return args[0]
        if func is torch.device:
            return (
                func("cuda", *args) if self.cuda and len(args) == 1 and type(args[0]) is int else func(*args, **kwargs)
            )
        if not self.cuda:
            return func(*args, **kwargs)
        if func is Tensor.cuda:
            return self._moved(args[0])
        args, kwargs, wanted = _without_device(func, args, kwargs)
        if not wanted:
            return func(*args, **kwargs)
        with self.mode:
            out = func(*args, **kwargs)
        tensors = out if isinstance(out, tuple) else (out,)
        if (
            any(isinstance(leaf, Tensor) for leaf in args)
            or sum(t.numel() for t in tensors if isinstance(t, Tensor)) > TWIN_ELEMENTS
        ):
            return out
        # A small tensor made on the device: its values are as good as the device's own.
        kwargs.pop("pin_memory", None)
        real = func(*args, **kwargs)
        return self._moved(real) if isinstance(real, Tensor) and not real.requires_grad else out

    def _moved(self, tensor: Tensor) -> Tensor:
        with self.mode:
            return self.mode.fake(tensor)

    def _item(self, tensor: Tensor, *_: Any) -> Any:
        twin = getattr(tensor, "twin", None)
        if twin is not None:
            return twin.item()
        if tensor.dtype is torch.bool:
            return self._bool(tensor)
        self.session.assume("numbers that the script reads of tensors without data are 1", anywhere=True)
        return StandInFloat(FLOAT) if tensor.dtype.is_floating_point else StandInInteger(INTEGER)

    def _int(self, tensor: Tensor) -> int:
        number = self._item(tensor)
        if isinstance(number, StandInInteger):
            self.session.assume("an integer is read of a tensor without data, taken as 1")
        return int(number)

    def _list(self, tensor: Tensor) -> Any:
        twin = getattr(tensor, "twin", None)
        if twin is not None:
            return twin.tolist()
        return self._item(tensor) if tensor.dim() == 0 else torch.ones(tuple(tensor.shape), dtype=tensor.dtype).tolist()

    def _numpy(self, tensor: Tensor, *_: Any, **__: Any) -> Any:
        twin = getattr(tensor, "twin", None)
        if twin is not None:
            return twin.numpy()
        self.session.assume("an array of ones stands for values that a trace does not have")
        return torch.ones(tuple(tensor.shape), dtype=tensor.dtype).numpy()

    def _bool(self, tensor: Tensor) -> bool:
        twin = getattr(tensor, "twin", None)
        if twin is not None:
            return bool(twin)
        healthy = getattr(tensor, "healthy", None)
        place = here()
        if healthy is None:
            healthy = tensor.dtype is not torch.bool or (place is not None and place.text.startswith("assert "))
            decided(f"a tensor as a condition, taken as {healthy}")
        return bool(healthy)

    def _equal(self, one: Any, other: Any, *_: Any, **__: Any) -> bool:
        twins = getattr(one, "twin", one), getattr(other, "twin", other)
        if all(isinstance(twin, Tensor) and not isinstance(twin, FakeTensor) for twin in twins):
            return bool(torch.equal(*twins))
        decided("two tensors compared, taken as equal")
        return True

    def _packed(self, padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        found = packed(self.mode, padded, lengths, batch_first)
        if found is None:
            self._refuse("the lengths of packed sequences are read of a tensor without data")
        return found

    def _healthy(self, func: Any, args: Any, out: Any) -> Any:
        """Give a condition about NaN or infinite numbers the answer for finite ones."""
        if isinstance(out, FakeTensor) and func in _HEALTHY:
            _is(out, healthy=_HEALTHY[func])
        elif isinstance(out, FakeTensor) and (func in _KEEPS_HEALTH or func in _OPPOSITE):
            healthy = getattr(args[0], "healthy", None)
            if healthy is not None:
                _is(out, healthy=not healthy if func in _OPPOSITE else healthy)
        return out

    def _dropout(self, input: Tensor, p: float, train: bool) -> Tensor:
        """CUDA's dropout keeps a mask of one byte an element; the CPU's keeps one as large as the input."""
        with self.mode:
            return torch.native_dropout(input, p, train)[0] if train and 0 < p < 1 else torch.dropout(input, p, train)

    def _attention(self, *args: Any, **kwargs: Any) -> Any:
        """CUDA's flash kernel takes dropout, the CPU's does not and would keep every score."""
        rest = list(args)
        if len(rest) > 4:
            rest[4] = 0.0
        kwargs.pop("dropout_p", None)
        if torch.is_autocast_cpu_enabled():
            dtype = torch.get_autocast_dtype("cpu")
            rest = [leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf for leaf in rest]
        self.session.facts["attention"] = "flash"
        with self.mode:
            return torch.nn.functional.scaled_dot_product_attention(*rest, **kwargs)

    def _refuse(self, saw: str) -> NoReturn:
        self.session.fail(
            "P06",
            "the size of a tensor depends on values that a trace does not have",
            place=here(),
            saw=saw,
        )


def _told_device() -> None:
    """To the script and its libraries, a tensor without data reports the device; to torch's own code, its real place."""
    known: Any = FakeTensor.device
    truly = known.fget

    def device(tensor: Any) -> Any:
        # Inside the seam, and inside the fake mode, no function mode is on.
        asked_by_script = torch._C._is_torch_function_mode_enabled()
        return torch.device("cuda", 0) if asked_by_script and tensor.fake_device.type == "cpu" else truly(tensor)

    replace(FakeTensor, device=property(device))


def _is(tensor: Any, *, healthy: bool) -> None:
    tensor.healthy = healthy


def _any_fake(values: Any) -> bool:
    for value in values:
        if isinstance(value, FakeTensor):
            return True
        if isinstance(value, (tuple, list)) and _any_fake(value):
            return True
    return False


def _any_unknown(values: Any) -> bool:
    for value in values:
        if type(value) is StandInInteger:
            return True
        if isinstance(value, slice) and _any_unknown((value.start, value.stop)):
            return True
        if isinstance(value, (tuple, list)) and _any_unknown(value):
            return True
    return False


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _without_device(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """The same arguments with the CPU instead of a CUDA device, and whether they named one."""
    if func is Tensor.to and len(args) > 1 and type(args[1]) is int:
        args = (args[0], _CPU, *args[2:])
        return args, dict(kwargs), True
    wanted = any(_is_cuda(value) for value in args) or _is_cuda(kwargs.get("device"))
    device = kwargs.get("device")
    if isinstance(device, int) and not isinstance(device, bool):
        return tuple(args), {**kwargs, "device": _CPU}, True
    if not wanted:
        return tuple(args), dict(kwargs), False
    changed = tuple(_CPU if _is_cuda(value) else value for value in args)
    if _is_cuda(device):
        kwargs = {**kwargs, "device": _CPU}
    return changed, dict(kwargs), True
