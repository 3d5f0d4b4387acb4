"""Finds a strategy by its name and attaches it to DDP.

    model = DistributedDataParallel(model)
    use("direct+bf16", model)

DDP takes one communication hook. A script that registers its own keeps it: paceline's hook is removed, and a message says so.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ....process_identity import machine_key
from ..strategies import local_sgd
from ..strategies.strategy import GradientStrategy, StrategyRunner, parse
from .exchange_stats import StepExchange
from .hook import LANES, HookState, hook

__all__ = ["LANES", "AttachedStrategy", "GradientStrategy", "attach", "detach", "parse", "use"]

Say = Callable[[str], None]


def _nobody(text: str) -> None:
    """The receiver of messages if the script gives none."""


class AttachedStrategy:
    """A strategy that is active on one DDP module. `attach` or `use` makes it."""

    def __init__(self, ddp: Any, strategy: GradientStrategy | str, *, host_key: str, say: Say, lanes: int) -> None:
        self._ddp = weakref.ref(ddp)
        self._say = say
        self.group: dist.ProcessGroup = ddp.process_group
        self.exchange = HookState(strategy, self.group, host_key=host_key, lanes=lanes, ddp=ddp)
        # Why ours is not in use: None while it is.
        self.aside: str | None = None
        # Of local_sgd: what it knows of optimizers and their steps.
        self.local: local_sgd.LocalSgdState | None = None

    @property
    def strategy(self) -> GradientStrategy:
        """The strategy in use."""
        return self.exchange.strategy

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.strategy.name

    @property
    def last(self) -> StepExchange | None:
        """The exchange of the latest completed backward pass."""
        return self.exchange.last

    @property
    def seconds(self) -> float:
        """Seconds of the latest step's exchange, from the start of the first bucket to the end of the last; 0 before the first step."""
        return self.exchange.last.seconds if self.exchange.last else 0.0

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank sent to the network in the latest step."""
        return self.exchange.last.sent_bytes if self.exchange.last else 0

    def switch(self, strategy: GradientStrategy | str) -> None:
        """Change the strategy from the next backward pass on. Every rank calls it between the same two steps.

        The lanes and their connections stay. The state of error feedback or PowerSGD is dropped: up to one step's rounding is lost. Ranks
        whose parameters differ under `local_sgd` first get the average of the parameters.
        """
        self.average_parameters()
        self.exchange.use(parse(strategy) if isinstance(strategy, str) else strategy)
        self.begin()

    def begin(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Watch the steps of an optimizer if the strategy is per step. None: every optimizer that trains a part of the model."""
        ddp, every = self._ddp(), self.strategy.every
        if ddp is None or self.aside is not None:
            return
        if every is None:
            self.local = None
            local_sgd.unwatch(ddp)
        else:
            self.local = local_sgd.LocalSgdState(self.exchange.lanes, StrategyRunner(self.strategy), every)
            local_sgd.watch(ddp, self.local, optimizer)

    def average_parameters(self) -> None:
        """With `local_sgd`: average the parameters now, on all ranks at the same point, such as before a checkpoint. Else nothing."""
        ddp = self._ddp()
        if self.local is not None and ddp is not None:
            self.local.average([parameter for parameter in ddp.parameters() if parameter.requires_grad])

    def extra_bytes(self) -> int:
        """Bytes on this rank beyond DDP's own memory: those of the lanes, and those that the strategy keeps between steps."""
        return self.exchange.lanes.extra_bytes() + self.exchange.averaging.extra_bytes()

    def step_aside(self, why: str) -> None:
        """Stop this strategy on the module; `why` is shown to the user."""
        self.aside = why
        self.local = None
        if (ddp := self._ddp()) is not None:
            local_sgd.unwatch(ddp)
        self._say(f"--gradients {self.name} steps aside for one model: {why}")


_attached: weakref.WeakKeyDictionary[Any, AttachedStrategy] = weakref.WeakKeyDictionary()


def attach(
    ddp: Any, strategy: GradientStrategy | str, *, host_key: str, say: Say = _nobody, lanes: int = LANES
) -> AttachedStrategy:
    """Average the gradients of `ddp` by a strategy. Every rank calls it for the same models in the same order, before the first backward.

    `host_key`: a text that is the same only on ranks that share a host. `lanes`: buckets in flight; the first model of a group decides.
    Raises:  ValueError: no such strategy, or lanes beyond 1 to 4
    """
    attached = _attached[ddp] = AttachedStrategy(ddp, strategy, host_key=host_key, say=say, lanes=lanes)
    if (own := _hook_of(ddp)) is not None:
        attached.step_aside(own)
        return attached
    _see_what_scripts_do()
    # Past DDP.register_comm_hook: DDP keeps no list of ours, so code that asks what the script registered sees nothing.
    dist._register_comm_hook(ddp.reducer, attached.exchange, hook)  # type: ignore[attr-defined]
    ddp.logger._set_comm_hook_name(f"paceline:{attached.name}")
    attached.begin()
    return attached


def exchange_of(ddp: Any) -> HookState | None:
    """The exchange of the strategy that is attached to a module; None: none is, or it stepped aside."""
    attached = _attached.get(ddp)
    return attached.exchange if attached is not None and attached.aside is None else None


def local_sgd_of(ddp: Any) -> local_sgd.LocalSgdState | None:
    """What averages the parameters of a module every few steps; None: nothing does."""
    attached = _attached.get(ddp)
    return attached.local if attached is not None else None


def detach(ddp: Any) -> None:
    """Drop the attached strategy of a module that has a new reducer without a hook (see rebuild_reducer.py)."""
    _attached.pop(ddp, None)
    local_sgd.unwatch(ddp)


def use(
    name: str,
    ddp: Any,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    host_key: str | None = None,
    lanes: int = LANES,
) -> AttachedStrategy:
    """Average the gradients of `ddp` by the strategy `name`. Another call with another name changes it from the next step on.

    `optimizer`: the optimizer whose steps `local_sgd` counts; default: every optimizer that trains a part of the model.
    Raises:  ValueError: no such strategy; RuntimeError: the model has a communication hook already
    """
    strategy = parse(name)
    attached = _attached.get(ddp)
    if attached is not None and attached.aside is None:
        attached.switch(strategy)
    elif (own := _hook_of(ddp)) is not None:
        raise RuntimeError(f"use({name!r}): {own}, and DDP takes one; leave one of them out")
    else:
        attached = attach(ddp, strategy, host_key=host_key or machine_key(), lanes=lanes)
    if optimizer is not None:
        attached.begin(optimizer)
    return attached


def _hook_of(ddp: Any) -> str | None:
    """The hook that the script, or DDP itself for it, registered on a module; None if there is none."""
    if ddp._comm_hooks:
        return f"it registered {getattr(ddp._comm_hooks[0][0], '__name__', 'a hook')} as its communication hook"
    name = ddp.logger._get_ddp_logging_data().strs_map.get("comm_hook", "")
    return f"it registered {name} as its communication hook" if name else None


@functools.cache
def _see_what_scripts_do() -> None:
    """Gives the gradients to a hook that a script registers later, and lets ranks that have no more inputs report that."""
    from torch.nn.parallel import DistributedDataParallel

    ddp_class: Any = DistributedDataParallel
    ddp_class.register_comm_hook = _register(ddp_class.register_comm_hook)
    ddp_class._register_builtin_comm_hook = _register_builtin(ddp_class._register_builtin_comm_hook)
    ddp_class._match_all_reduce_for_bwd_pass = _joined(ddp_class._match_all_reduce_for_bwd_pass)


def _register(own: Any) -> Any:
    @functools.wraps(own)
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        attached = _attached.get(self)
        if attached is None or attached.aside is not None:
            own(self, state, hook)
            return
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        attached.exchange.script_hook = (hook, state)
        attached.step_aside(f"it registered {hook.__qualname__} as its communication hook")

    return register_comm_hook


def _register_builtin(own: Any) -> Any:
    @functools.wraps(own)
    def _register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
        attached = _attached.get(self)
        if attached is None or attached.aside is not None:
            own(self, comm_hook_type)
            return
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        is_half = str(comm_hook_type).endswith("FP16_COMPRESS")
        same = default_hooks.fp16_compress_hook if is_half else default_hooks.allreduce_hook
        self.logger._set_comm_hook_name(str(comm_hook_type))
        attached.exchange.script_hook = (same, self.process_group)
        attached.step_aside(f"it registered {comm_hook_type} as its communication hook")

    return _register_builtin_comm_hook


def _joined(own: Any) -> Any:
    @functools.wraps(own)
    def _match_all_reduce_for_bwd_pass(self: Any) -> None:
        attached = _attached.get(self)
        if attached is None:
            own(self)
            return
        attached.exchange.has_joined = True
        try:
            own(self)
        finally:
            attached.exchange.has_joined = False

    return _match_all_reduce_for_bwd_pass
