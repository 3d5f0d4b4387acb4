"""Counts the steps of optimizers. Finds where the first step begins: at the first batch, forward pass under fully_shard or backward pass.

A step is a step of `torch.optim.Optimizer`, compiled or not; `RankRecorder.after_step` records it. Everything before the first step
(imports, building the model, loading a checkpoint, compiling) is start-up and belongs to no step. Each function watched for the beginning
is replaced until its first call. The first call restores torch's own function, so later steps have no overhead. The forward passes of DDP
and FullyShardedDataParallel are not watched: torch.compile traces through them, and a replacement would break their graphs once more. The
forward passes of fully_shard begin outside of every graph.
"""

import functools
from collections.abc import Callable
from typing import Any

from ..instrument import Patch, RankInstrument
from ..no_compile import left_alone_by_compile, passed_over_by_warnings
from ..rank_recorder import RankRecorder

# The modules in which torch has the class FSDPState.
_FSDP_FORWARDS = (
    "torch.distributed.fsdp._fully_shard._fsdp_state",
    # The module in torch 2.4 and 2.5.
    "torch.distributed._composable.fsdp._fsdp_state",
)


class StepCounter(RankInstrument):
    """Counts steps with torch's own hook for all optimizers."""

    def patches(self) -> dict[str, Patch]:
        return {
            "torch.optim.optimizer": self._count,
            "torch.autograd": self._watch_backward,
            **dict.fromkeys(_FSDP_FORWARDS, self._watch_forward),
        }

    def _count(self, optimizer_module: Any) -> None:
        register = getattr(optimizer_module, "register_optimizer_step_post_hook", None)
        if register is None:
            self.rank.lacks(self.name)
            return
        # torch itself breaks the graph before the hooks of a compiled `step`, so this hook adds no break.
        left_alone_by_compile(RankRecorder.after_step)
        register(self.rank.after_step)

    def _watch_backward(self, autograd: Any) -> None:
        # `Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad` all call this function. Scripts do not call it.
        at_first_call(autograd, "_engine_run_backward", self.rank, self.rank.backward_begins)

    def _watch_forward(self, module: Any) -> None:
        at_first_call(getattr(module, "FSDPState", None), "_root_pre_forward", self.rank, self.rank.forward_begins)


def at_first_call(owner: Any, name: str, rank: RankRecorder, mark: Callable[[], None]) -> None:
    """Call `mark` before the first call of `owner.name`, then restore torch's function. A torch without this function is unchanged."""
    own = getattr(owner, name, None)
    if own is None:
        return

    @functools.wraps(own)
    def first_call(*args: Any, **kwargs: Any) -> Any:
        import torch

        # A graph that torch.compile makes of this call must contain torch's own function only.
        if not torch.compiler.is_compiling():
            # Do not restore it if the script has replaced it meanwhile.
            if vars(owner).get(name) is first_call:
                setattr(owner, name, own)
            try:
                mark()
            except Exception as error:
                rank.drop("steps", error)
        return own(*args, **kwargs)

    setattr(owner, name, passed_over_by_warnings(first_call))
