"""fully_shard and FullyShardedDataParallel without communication: whole parameters, and the groups that are gathered at once."""

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from paceline.parts.plan.trace.fake import TraceMode
from paceline.parts.plan.trace.memory import Use
from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession


class Shards:
    """The groups of parameters that a sharded model gathers, runs and frees again.

    `groups`: bytes of each group when gathered. The parameters themselves stay whole here: a shard is computed from their number.
    """

    def __init__(self, session: TraceSession, mode: TraceMode) -> None:
        self.session, self.mode = session, mode
        self.groups: list[int] = []
        self._taken: set[int] = set()

    def install(self) -> None:
        """From now on both forms leave the model as it is and remember their groups."""
        with contextlib.suppress(ImportError):
            import torch.distributed.fsdp as fsdp

            if hasattr(fsdp, "fully_shard"):
                self._second(fsdp)
            self._first(fsdp.FullyShardedDataParallel)

    def facts(self) -> dict[str, Any]:
        """Whether the script shards, and the largest group."""
        return {"strategy": "fsdp", "largest_group_bytes": max(self.groups)} if self.groups else {}

    def group(self, module: nn.Module, dtype: torch.dtype | None, *, inner: Iterable[nn.Module] = ()) -> None:
        """Make one more group of the parameters of `module` that are in no group yet, without those of `inner` modules."""
        inside = {id(p) for part in inner for p in part.parameters()} | self._taken
        own = {name: p for name, p in module.named_parameters() if id(p) not in inside}
        self._taken |= {id(p) for p in own.values()}
        if not own:
            return
        self.groups.append(sum(p.numel() * (dtype or p.dtype).itemsize for p in own.values()))
        if dtype is not None:
            self._in_precision(module, list(own), dtype)

    def _in_precision(self, module: nn.Module, names: list[str], dtype: torch.dtype) -> None:
        """Run `module` with its group in `dtype`, as the gathered parameters would be; they are not counted as kept until backward."""
        forward = module.forward

        @functools.wraps(forward)
        def cast_forward(*args: Any, **kwargs: Any) -> Any:
            parameters = dict(module.named_parameters())
            cast = {name: parameters[name].to(dtype) for name in names if name in parameters}
            for tensor in cast.values():
                self.mode.live.mark(tensor, Use.GATHERED)
            args, kwargs = _cast(args, dtype), {name: _cast(value, dtype) for name, value in kwargs.items()}
            with _reparametrize_module(module, cast):
                return forward(*args, **kwargs)

        replace(module, forward=cast_forward)

    def _second(self, fsdp: Any) -> None:
        base = _quiet(fsdp.FSDPModule)

        def fully_shard(module: Any, *_: Any, mp_policy: Any = None, **__: Any) -> Any:
            for part in module if isinstance(module, (list, tuple)) else (module,):
                if isinstance(part, fsdp.FSDPModule):
                    continue
                self.group(part, getattr(mp_policy, "param_dtype", None))
                part.__class__ = type(f"FSDP{type(part).__name__}", (base, type(part)), {})
            return module

        replace(fsdp, fully_shard=fully_shard)
        with contextlib.suppress(ImportError):
            from torch.distributed._composable import fsdp as older

            replace(older, fully_shard=fully_shard)

    def _first(self, wrapper: Any) -> None:
        shards = self

        def __init__(model: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            nn.Module.__init__(model)
            model._fsdp_wrapped_module = module
            dtype = getattr(kwargs.get("mixed_precision"), "param_dtype", None)
            for part in _wrapped(module, kwargs.get("auto_wrap_policy")):
                shards.group(part, dtype)
            shards.group(module, dtype)

        methods: dict[str, Callable[..., Any]] = {
            "__init__": __init__,
            "forward": lambda model, *args, **kwargs: model._fsdp_wrapped_module(*args, **kwargs),
            "clip_grad_norm_": lambda model, *args, **kwargs: nn.utils.clip_grad_norm_(
                model.parameters(), *args, **kwargs
            ),
            "no_sync": lambda *_, **__: contextlib.nullcontext(),
            "state_dict": nn.Module.state_dict,
            "load_state_dict": nn.Module.load_state_dict,
            "named_parameters": nn.Module.named_parameters,
            "named_buffers": nn.Module.named_buffers,
            "_apply": nn.Module._apply,
            "apply": nn.Module.apply,
            "register_comm_hook": lambda *_, **__: None,
        }
        for name, method in methods.items():
            setattr(wrapper, name, method)
        for name in ("state_dict_type", "summon_full_params"):
            setattr(wrapper, name, staticmethod(lambda *_, **__: contextlib.nullcontext()))
        wrapper.set_state_dict_type = staticmethod(lambda *_, **__: None)
        wrapper.optim_state_dict = staticmethod(lambda _model, optimizer, *_, **__: optimizer.state_dict())
        wrapper.full_optim_state_dict = wrapper.optim_state_dict
        wrapper.optim_state_dict_to_load = staticmethod(lambda _model, _optimizer, state, *_, **__: state)


class _Handle:
    def wait(self) -> None:
        """Nothing to wait for."""


def _quiet(module_class: Any) -> Any:
    """A subclass of FSDPModule whose methods do nothing."""
    nothing = lambda *_, **__: None  # noqa: E731
    names = [
        name
        for name in vars(module_class)
        if name.startswith("set_") or name in ("reshard", "reset_iter_state", "_set_unshard_async_op")
    ]
    return type(
        "FSDPModule",
        (module_class,),
        {
            **dict.fromkeys(names, nothing),
            "unshard": lambda *_, **__: _Handle(),
            "_apply": nn.Module._apply,
            "__new__": lambda cls, *_, **__: object.__new__(cls),
        },
    )


def _wrapped(module: nn.Module, policy: Any) -> list[nn.Module]:
    """The inner modules that the policy of FullyShardedDataParallel makes groups of, innermost first."""
    if policy is None:
        return []
    inner = [part for part in module.modules() if part is not module]
    classes = getattr(policy, "_module_classes", None)
    if classes is not None:
        return [part for part in reversed(inner) if isinstance(part, tuple(classes))]
    chosen = []
    for part in reversed(inner):
        count = sum(p.numel() for p in part.parameters())
        with contextlib.suppress(TypeError):
            if policy(module=part, recurse=False, nonwrapped_numel=count):
                chosen.append(part)
    return chosen


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return tuple(_cast(part, dtype) for part in value) if type(value) is tuple else value
