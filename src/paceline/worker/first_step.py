"""Where the first step of training begins: at the first batch, the first forward pass under fully_shard or the first backward pass.

What a script does before it (imports, building the model, loading a checkpoint, compiling) is start-up and no part of a step. Each
function that is watched here stands replaced until its first call, which puts torch's own back: no later step pays for the mark. The
forward passes of DDP and of FullyShardedDataParallel are not among them: torch.compile traces through them, and would break their graphs
once more. Those of fully_shard begin outside of every graph.
"""

import functools
from collections.abc import Callable
from typing import Any

from ..recording.ring import Instrument
from .no_compile import passed_over_by_warnings
from .rank_recorder import RankRecorder, this_rank

# The modules in which torch has the class FSDPState.
FSDP_FORWARDS = (
    "torch.distributed.fsdp._fully_shard._fsdp_state",
    # Of torch 2.4 and 2.5.
    "torch.distributed._composable.fsdp._fsdp_state",
)


def watch_backward(autograd: Any, rank: RankRecorder = this_rank) -> None:
    """`Tensor.backward`, `torch.autograd.backward` and `torch.autograd.grad` all call this function, and no script does."""
    at_first_call(autograd, "_engine_run_backward", rank, rank.backward_begins)


def watch_fsdp_forward(module: Any, rank: RankRecorder = this_rank) -> None:
    at_first_call(getattr(module, "FSDPState", None), "_root_pre_forward", rank, rank.forward_begins)


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
                rank.drop(Instrument.STEPS, error)
        return own(*args, **kwargs)

    setattr(owner, name, passed_over_by_warnings(first_call))
