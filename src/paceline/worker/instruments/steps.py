"""Steps of optimizers, and where the first one begins: at the first batch, forward pass under fully_shard or backward pass.

A step is one of `torch.optim.Optimizer`, compiled or not; `RankRecorder.after_step` records it. What a script does before the first one
(imports, building the model, loading a checkpoint, compiling) is start-up and no part of a step. Each function that is watched for its
beginning stands replaced until its first call, which puts torch's own back: no later step pays for the mark. The forward passes of DDP
and of FullyShardedDataParallel are not among them: torch.compile traces through them, and would break their graphs once more. Those of
fully_shard begin outside of every graph.
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
    # Of torch 2.4 and 2.5.
    "torch.distributed._composable.fsdp._fsdp_state",
)


class StepCounter(RankInstrument):
    """Counts by torch's own hook for all optimizers."""

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
        # A compiled `step` reaches its hooks behind a break that torch itself puts there, so this one divides no graph.
        left_alone_by_compile(RankRecorder.after_step)
        register(self.rank.after_step)

    def _watch_backward(self, autograd: Any) -> None:
        # `Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad` all call this function, and no script does.
        at_first_call(autograd, "_engine_run_backward", self.rank, self.rank.backward_begins)

    def _watch_forward(self, module: Any) -> None:
        at_first_call(getattr(module, "FSDPState", None), "_root_pre_forward", self.rank, self.rank.forward_begins)


def at_first_call(owner: Any, name: str, rank: RankRecorder, mark: Callable[[], None]) -> None:
    """Call `mark` before the first call of `owner.name`, which is then torch's own again. Nothing where this torch has no such function."""
    own = getattr(owner, name, None)
    if own is None:
        return

    @functools.wraps(own)
    def first_call(*args: Any, **kwargs: Any) -> Any:
        import torch

        # A graph that torch.compile makes of it must hold torch's own function and nothing else.
        if not torch.compiler.is_compiling():
            # Unless the script has replaced it meanwhile.
            if vars(owner).get(name) is first_call:
                setattr(owner, name, own)
            try:
                mark()
            except Exception as error:
                rank.drop("steps", error)
        return own(*args, **kwargs)

    setattr(owner, name, passed_over_by_warnings(first_call))
