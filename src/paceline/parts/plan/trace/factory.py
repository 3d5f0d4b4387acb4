"""`--model MODULE:FACTORY`: traces a step without the script, if the script's control flow depends on values."""

import importlib
import os
import sys
from typing import Any, NoReturn

import torch
from torch import nn

from paceline.parts.plan.trace.session import TraceSession


def run(session: TraceSession, name: str) -> NoReturn:
    """Call the factory and take one step with its result.

    The factory takes no arguments and returns a mapping: `model` (nn.Module), `batch` (a tensor, or a tuple or dict of them: the model's
    arguments), and, where the model's result is not the loss, `loss` (a function of the result and the batch); `optimizer` (a function of
    the parameters; default: AdamW). It may also return a tuple (model, batch) or (model, batch, loss).
    """
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    made = getattr(importlib.import_module(module_name), attribute or "make")()
    parts = made if isinstance(made, dict) else dict(zip(("model", "batch", "loss", "optimizer"), made, strict=False))
    model: nn.Module = parts["model"].to(session.device_type)
    model.train()
    batch = _moved(parts["batch"], session.device_type)
    make_optimizer = parts.get("optimizer") or torch.optim.AdamW
    optimizer = make_optimizer(model.parameters())
    out = (
        model(**batch)
        if isinstance(batch, dict)
        else model(*batch)
        if isinstance(batch, (tuple, list))
        else model(batch)
    )
    loss = parts["loss"](out, batch) if parts.get("loss") else _loss_of(out)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    session.finish()


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _moved(part, device) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(part, device) for part in value)
    return value


def _loss_of(out: Any) -> torch.Tensor:
    """The loss, if the model returns it, as the models of `transformers` do; else the sum of all results, whose backward is as large."""
    loss = getattr(out, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    if isinstance(out, torch.Tensor):
        return out if out.dim() == 0 else out.float().sum()
    raise TypeError(f"the factory gives no `loss`, and none can be made of a {type(out).__name__}")
