"""The begin and end of the step: from the first call of a model that needs gradients to the last optimizer's first step."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from paceline.parts.plan.trace.buckets import Gradient
from paceline.parts.plan.trace.fake import TraceMode
from paceline.parts.plan.trace.memory import Use
from paceline.parts.plan.trace.modules import Modules
from paceline.parts.plan.trace.operations import size_bytes
from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession
from paceline.parts.plan.trace.user_frame import here

# A script may look at gradients before it makes its optimizer; one that trains without would go on for ever.
_BACKWARDS_WITHOUT_OPTIMIZER = 8


class Steps:
    """Watches models, backward and optimizers, and ends the trace when one whole step is over.

    The step is over when every optimizer that the script has made has stepped once, or when one is about to step again.
    """

    def __init__(self, session: TraceSession, mode: TraceMode, modules: Modules) -> None:
        self.session, self.mode, self.modules = session, mode, modules
        self.ready: list[Tensor] = []
        self.gradients: dict[int, Gradient] = {}
        self.began = False
        self.backwards = 0
        self.stepped: dict[int, Optimizer] = {}
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._made_optimizer = False
        self._hooked: set[int] = set()
        self.peak: dict[str, int] = {}
        self.activation_bytes = self.fixed_bytes = 0
        self.held_parameter_bytes = 0
        self.update_bytes = 0
        self.largest_activation_bytes = 0

    def install(self) -> None:
        """From now on: optimizers, backward, steps."""
        self.modules.before_training_call.append(self._begin)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        init: Any = Optimizer.__init__
        backward, gradients = torch.autograd.backward, torch.autograd.grad

        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._optimizers.add(optimizer)
            self._made_optimizer = True

        def run_backward(*args: Any, **kwargs: Any) -> None:
            self._before_backward()
            live = self.mode.live
            live.fixed_shapes = frozenset(tuple(sorted(p.shape)) for p in self.trained() if p.dim() > 1)
            try:
                with self.mode:
                    backward(*args, **kwargs)
            finally:
                live.fixed_shapes = frozenset()

        def run_gradients(*args: Any, **kwargs: Any) -> Any:
            with self.mode:
                return gradients(*args, **kwargs)

        replace(Optimizer, __init__=__init__)
        replace(torch.autograd, backward=run_backward, grad=run_gradients)

    def trained(self) -> list[Tensor]:
        """Every parameter that an optimizer updates, each once, in the optimizers' order."""
        found = {id(p): p for o in self._optimizers for group in o.param_groups for p in group["params"]}
        return list(found.values())

    def _begin(self, _: Any) -> None:
        if not self.began:
            self.began = True
            self.mode.operations.clear()
            self.mode.live.restart_peak()

    def _before_backward(self) -> None:
        self.backwards += 1
        if self.backwards > _BACKWARDS_WITHOUT_OPTIMIZER and not self._made_optimizer:
            # Such a script changes its parameters by itself, and nothing says when a step of it is over.
            what = f"{self.backwards} backwards and no torch.optim.Optimizer made: the end of a step cannot be seen"
            self.session.fail("P05", what, place=here())
        for parameter in (*self.trained(), *self.modules.parameters()):
            if id(parameter) not in self._hooked and parameter.requires_grad and parameter.is_leaf:
                self._hooked.add(id(parameter))
                hook: Any = parameter.register_post_accumulate_grad_hook
                hook(self._gradient)

    def _gradient(self, parameter: Tensor) -> None:
        if id(parameter) not in self.gradients:
            self.ready.append(parameter)
        if parameter.grad is not None:
            is_sparse = parameter.grad.layout is not torch.strided
            size = self.mode.sparse_bytes.get(tuple(parameter.shape), 0) if is_sparse else size_bytes(parameter.grad)
            self.gradients[id(parameter)] = Gradient(size, parameter.dtype, is_sparse)
            self.mode.live.mark(parameter.grad, Use.GRADIENT)

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if id(optimizer) in self.stepped:
            self.session.finish()
        changed = _after_closure(args, kwargs)
        if not self.began:
            self.session.fail(
                "P06", "the step that was reached trains no nn.Module, and nothing else is traced", place=here()
            )
        if not self.stepped:
            self._note_peaks()
        self.mode.live.restart_peak()
        return changed

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        live = self.mode.live
        state = state_tensors(optimizer)
        made = sum(tensor.numel() * tensor.element_size() for tensor in state)
        self.update_bytes = max(self.update_bytes, live.most_working_bytes - made)
        for tensor in state:
            live.mark(self.mode.fake(tensor), Use.OPTIMIZER)
        self.stepped[id(optimizer)] = optimizer
        self.session.facts["stepped"] = True
        waiting = [o for o in self._optimizers if id(o) not in self.stepped and _has_work(o)]
        if not waiting:
            self.session.finish()

    def _note_peaks(self) -> None:
        """What forward and backward held, up to the first update."""
        live = self.mode.live
        self.peak = {str(use): int(size) for use, size in live.peak.items() if size}
        self.activation_bytes = int(live.most_activations[Use.ACTIVATION])
        self.fixed_bytes = max(live.most_activations[Use.FIXED], live.most_working_bytes - self.activation_bytes)
        self.largest_activation_bytes = live.largest_activation_bytes
        self.held_parameter_bytes = int(live.most_activations[Use.PARAMETER])


def state_tensors(optimizer: Optimizer) -> list[Tensor]:
    """Every tensor that the optimizer keeps between steps."""
    kept: dict[int, Tensor] = {}
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            for leaf in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(leaf, Tensor):
                    kept[id(leaf)] = leaf
    return list(kept.values())


def _after_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of `step` with its closure already called: forward and backward of the step, which otherwise run inside the update."""
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        return None
    with torch.enable_grad():
        loss = closure()
    return args[:1], {**kwargs, "closure": lambda: loss}


def _has_work(optimizer: Optimizer) -> bool:
    return any(p.requires_grad for group in optimizer.param_groups for p in group["params"])
