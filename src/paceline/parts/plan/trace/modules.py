"""Makes parameters without data, and sees which modules the step runs."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from paceline.parts.plan.trace.fake import TraceMode, forget
from paceline.parts.plan.trace.memory import Use
from paceline.parts.plan.trace.patch import replace


class Modules:
    """The outermost modules that the script calls: the models. `steps` is told of each such call that needs gradients."""

    def __init__(self, mode: TraceMode) -> None:
        self.mode = mode
        self.roots: dict[int, nn.Module] = {}
        self.leading_size: int | None = None
        self.before_training_call: list[Any] = []
        self._depth = 0

    def install(self) -> None:
        """From now on every `nn.Parameter` is without data, and outermost calls are seen."""
        _parameters(self.mode)
        _copies()
        _conversions(self.mode)
        self._calls()

    def parameters(self) -> list[Tensor]:
        """All parameters of all models called so far, each once."""
        found = {id(p): p for root in self.roots.values() for p in root.parameters()}
        return list(found.values())

    def buffer_bytes(self) -> int:
        """Bytes that the models keep besides parameters."""
        found = {id(b): b for root in self.roots.values() for b in root.buffers()}
        return sum(buffer.numel() * buffer.element_size() for buffer in found.values())

    def _outermost(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trained = [p.requires_grad for p in module.parameters()]
        if trained:
            self.roots[id(module)] = module
        if not any(trained) or not torch.is_grad_enabled():
            return
        for hear in self.before_training_call:
            hear(module)
        for buffer in module.buffers():
            self.mode.live.mark(self.mode.fake(buffer), Use.BUFFER)
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and leaf.dim():
                self.leading_size = int(leaf.shape[0])
                break

    def _calls(self) -> None:
        """Every call of a module passes here, hooks of the script's own included; the outermost ones are looked at."""
        call: Any = nn.Module.__call__

        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                if self._depth == 1:
                    self._outermost(module, args, kwargs)
                return call(module, *args, **kwargs)
            finally:
                self._depth -= 1

        replace(nn.Module, __call__=__call__)


def _parameters(mode: TraceMode) -> None:
    make = nn.Parameter.__new__

    def __new__(cls: Any, data: Any = None, requires_grad: bool = True, *rest: Any, **more: Any) -> Any:
        if isinstance(data, Tensor) and not isinstance(data, FakeTensor) and type(data) in (Tensor, nn.Parameter):
            with torch._C.DisableTorchFunction(), torch.no_grad():
                data = mode.fake(data.detach())
                forget(data)
        made = make(cls, data, requires_grad, *rest, **more)
        if isinstance(made, FakeTensor):
            forget(made)
            mode.live.mark(made, Use.PARAMETER)
        return made

    replace(nn.Parameter, __new__=__new__)


def _copies() -> None:
    """A deep copy of a tensor without data is a separate tensor: `copy.deepcopy(model)` makes an average, a teacher, a layer."""

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        made = torch.empty_like(self, requires_grad=False)
        if getattr(self, "_is_param", False):
            made = nn.Parameter(made, self.requires_grad)
        elif self.requires_grad:
            made.requires_grad_()
        memo[id(self)] = made
        for name, value in vars(self).items():
            if name not in ("twin", "fake_mode", "fake_device", "_is_param") and name not in vars(made):
                setattr(made, name, copy.deepcopy(value, memo))
        return made

    replace(FakeTensor, __deepcopy__=__deepcopy__)


def _conversions(mode: TraceMode) -> None:
    """`model.to(...)`: torch swaps tensors without data, which fails if other code holds a reference; here they change in place."""

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with torch.no_grad():
                applied = fn(parameter)
                if parameter.grad is not None:
                    parameter.grad.data = fn(parameter.grad)
            if applied is parameter:
                continue
            if isinstance(parameter, FakeTensor) and isinstance(applied, FakeTensor):
                parameter.data = applied
                mode.live.mark(parameter, Use.PARAMETER)
            else:
                self._parameters[name] = nn.Parameter(applied, parameter.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    to = nn.Module.to

    def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
        """An integer means a CUDA device, which torch cannot resolve without one."""
        args = tuple(torch.device("cuda", value) if type(value) is int else value for value in args)
        return to(self, *args, **kwargs)

    replace(nn.Module, _apply=_apply, to=_to)
