"""What paceline's own ways to exchange gradients keep between two steps: rounding errors, matrices, and what `auto` has chosen.

All of it is asked of comm, and only where comm exchanges gradients in this process: a job without a strategy loads nothing of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

from ....worker.our_groups import OUR_ROOM
from .object_graph import CannotPutBack, Capture, Restore, Value

# (name of the strategy, [(key of a tensor, the tensor)], what `auto` has chosen or None).
Exchange = tuple[str, list[tuple[Any, Value]], dict[str, Any] | None]


def exchange_of(model: Any) -> Any:
    """The HookState of a DistributedDataParallel; None: torch itself exchanges its gradients."""
    attach, hooks = sys.modules.get(f"{OUR_ROOM}ddp.attach"), sys.modules.get(f"{OUR_ROOM}ddp.hook")
    attached = attach.exchange_of(model) if attach is not None else None
    if attached is not None or hooks is None or not model._comm_hooks:
        return attached
    # A script may have registered it by itself.
    hook, state = model._comm_hooks[0]
    return state if hook is hooks.hook else None


def kept(capture: Capture, models: Iterable[Any]) -> list[Exchange | None]:
    """What each of these models needs to exchange as it does; None: torch itself exchanges, and nothing has chosen that.

    Raises:  CannotKeep
    """
    tuner = sys.modules.get(f"{OUR_ROOM}auto.tuner")
    found: list[Exchange | None] = []
    for model in models:
        exchange, tuned = exchange_of(model), tuner.tuner_of(model) if tuner is not None else None
        if exchange is None and tuned is None:
            found.append(None)
            continue
        state: dict[str, Any] = {"strategy": "", "tensors": {}}
        if exchange is not None:
            state = exchange.state_dict()
        capture.place = f"--gradients {state['strategy']}"
        with capture.context.of_training():
            tensors = [(key, capture.value(tensor)) for key, tensor in state["tensors"].items()]
        found.append((state["strategy"], tensors, tuned.state_dict() if tuned is not None else None))
    return found


def put_back(restore: Restore, exchange: Exchange | None, model: Any) -> None:
    """Give a model what it had kept. The values of its tensors come afterwards, with all others.

    Raises:  CannotPutBack: its gradients are exchanged in another way now
    """
    now, name = exchange_of(model), exchange[0] if exchange is not None else ""
    if (now.strategy.name if now is not None else "") != name:
        ways = [way or "torch itself" for way in (name, now.strategy.name if now is not None else "")]
        raise CannotPutBack("gradients were exchanged by {}, and are exchanged by {} now".format(*ways))
    if now is not None and exchange is not None:
        restore.place = f"--gradients {name}"
        now.load_state_dict({"strategy": name, "tensors": {key: restore.thing(value) for key, value in exchange[1]}})


def steps_between(models: Iterable[Any]) -> int:
    """How many optimizer steps lie between two states that all ranks can go on from: more than one with `local_sgd`."""
    return math.lcm(*(local.every for local in _local_sgd(models)))


def are_even(models: Iterable[Any]) -> bool:
    """Whether no rank is ahead of another one: under `local_sgd` each trains by itself until the parameters are averaged."""
    return all(local.is_even for local in _local_sgd(models))


def _local_sgd(models: Iterable[Any]) -> list[Any]:
    attach = sys.modules.get(f"{OUR_ROOM}ddp.attach")
    if attach is None:
        return []
    return [local for model in models if (local := attach.local_sgd_of(model)) is not None]
