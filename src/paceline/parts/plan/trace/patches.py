"""Smaller replacements: compilers, gradient scalers, checkpoints of activations, processes that the script would start."""

import contextlib
import functools
from typing import Any

import torch
import torch._tensor
import torch.functional
import torch.multiprocessing
import torch.nn.functional
import torch.nn.init
import torch.utils.checkpoint
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession


def install(session: TraceSession) -> None:
    """Install all of them."""
    _whole_functions()
    _compile(session)
    _foreach(session)
    _scaler()
    _checkpointing(session)
    _spawn(session)


def _whole_functions() -> None:
    """Functions written in Python run as they are, so that each operation inside passes the trace separately."""
    no = lambda *_: False  # noqa: E731
    for module in (torch.nn.functional, torch.functional, torch.nn.init, torch._tensor, torch.autograd):
        for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
            if hasattr(module, name):
                setattr(module, name, no)


def _compile(session: TraceSession) -> None:
    def compiled(model: Any = None, **_: Any) -> Any:
        if model is None:
            return lambda function: function
        session.assume("torch.compile is left out: operations are counted unfused")
        return model

    replace(torch, compile=compiled)
    replace(nn.Module, compile=lambda self, *_, **__: compiled(self))


def _foreach(session: TraceSession) -> None:
    """On a CUDA device optimizers and clipping update many tensors at once, and hold temporaries for all of them."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    if session.device_type == "cuda":
        for place in (optimizer, _foreach_utils):
            place._foreach_supported_types.append(FakeTensor)


def _scaler() -> None:
    """A gradient scaler checks whether the gradients are finite; here the answer is always yes."""
    from torch.amp import grad_scaler

    def _maybe_opt_step(scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    def unscale_(scaler: Any, optimizer: Any) -> None:
        if not scaler._enabled:
            return
        state = scaler._per_optimizer_states[id(optimizer)]
        state["stage"] = grad_scaler.OptState.UNSCALED
        state["found_inf_per_device"] = {torch.device("cpu"): torch.zeros(())}

    replace(grad_scaler.GradScaler, _maybe_opt_step=_maybe_opt_step, unscale_=unscale_)


def _checkpointing(session: TraceSession) -> None:
    checkpoint = torch.utils.checkpoint.checkpoint

    @functools.wraps(checkpoint)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        session.facts["checkpointed_activations"] = True
        return checkpoint(*args, **kwargs)

    replace(torch.utils.checkpoint, checkpoint=recorded)
    # Recomputed tensors are compared with the first ones, device too, which is told outside the seam and not inside.
    checks = getattr(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", {})
    checks["default"] = lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}


def _spawn(session: TraceSession) -> None:
    """Processes that the script would start with `mp.spawn`: the first of them runs here, in this process."""

    def spawn(fn: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> Any:
        session.assume(f"of {nprocs} processes that mp.spawn would start, rank 0 runs here")
        fn(0, *args)
        return contextlib.nullcontext()

    class Process(torch.multiprocessing.Process):
        """A process that runs inside this one when it is started: its fake tensors could not be sent to another process."""

        def start(self) -> None:
            session.assume("a process that the script starts runs in the tracing one")
            self.run()

        def join(self, timeout: float | None = None) -> None:
            """The process has ended already."""

        def is_alive(self) -> bool:
            return False

        exitcode = 0

    # `nn.Module.share_memory` before them: there is nothing to share.
    replace(FakeTensor, share_memory_=lambda tensor: tensor)
    replace(torch.multiprocessing, spawn=spawn, start_processes=spawn, Process=Process)
