"""`paceline run --gradients NAME` inside a rank: every DistributedDataParallel of an unmodified script uses the named strategy.

The strategy is attached right after DDP's constructor, where all ranks are at the same point. A model that cannot use a strategy trains
as it would without one, and the user gets one notice. Without `--gradients`, nothing of this module is loaded.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from ....worker import earlier_choice
from ....worker.host_identity import host_key
from ....worker.no_compile import left_alone_by_compile, passed_over_by_warnings
from ....worker.rank_recorder import this_rank
from ....worker.signal_handlers import is_of_a_handler

_AUTO = "auto"
_TOPIC = "gradients"
_models = 0
_has_stepped = False


def wanted() -> str:
    """The strategy of this job; empty if the job has none."""
    return os.environ.get("PACELINE_GRADIENTS", "")


def exchange_by_strategy(module: Any) -> None:
    """Attach the job's strategy to every DistributedDataParallel that is constructed from now on."""
    ddp_class = module.DistributedDataParallel
    construct = ddp_class.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        global _models
        construct(self, *args, **kwargs)
        _models += 1
        try:
            _attach(self, wanted())
        except Exception as error:
            if is_of_a_handler(error):
                raise
            say(f"--gradients {wanted()} steps aside for one model: {type(error).__name__}: {error}")

    ddp_class.__init__ = passed_over_by_warnings(__init__)


def watch_first_step(optimizer_module: Any) -> None:
    """Write a notice if a job with a strategy has made a step and no model could use the strategy."""
    register = getattr(optimizer_module, "register_optimizer_step_post_hook", None)
    if register is not None:
        left_alone_by_compile(_after_step)
        register(_after_step)


def say(text: str) -> None:
    """Write a notice for the user, on the run's terminal and in its recording. The notice is shown once for all ranks. Never raises."""
    this_rank.notice(_TOPIC, text)


def _attach(ddp: Any, name: str) -> None:
    from ..auto import tuner
    from ..ddp import attach

    if name == _AUTO:
        lossy = bool(os.environ.get("PACELINE_ALLOW_LOSSY"))
        tuner.tune(
            ddp, host_key=host_key(), allow_lossy=lossy, say=say, renewed=_renewed, kept=earlier_choice.of_model()
        )
        return
    if ddp.process_group.size() == 1:
        return
    attached = attach.attach(ddp, name, host_key=host_key(), say=say)
    if attached.aside is None:
        say(f"--gradients {name}: at work" + ("" if attached.strategy.is_exact else ", not exact"))


def _renewed(ddp: Any) -> None:
    """A new reducer starts DDP's timers again."""
    this_rank.registry.tell("reducer_renewed", ddp)


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    # It stays: torch goes over the hooks while it calls them, so none may be removed then.
    global _has_stepped
    if _has_stepped:
        return
    _has_stepped = True
    if this_rank.ring is not None and not _models:
        text = "no DistributedDataParallel was made; FSDP, DeepSpeed and own exchanges stay as they are"
        say(f"--gradients {wanted()} has nothing to do: {text} (X13)")
