"""The backends of paceline by their names, and the strategy of the job for each model of DDP."""

from collections.abc import Mapping
from types import ModuleType

from ...worker.host_identity import host_key
from ...worker.instrument import Patch
from .worker import gradients


def after_instruments() -> Mapping[str, Patch]:
    patches: dict[str, Patch] = {"torch.distributed": _backends}
    if gradients.wanted():
        patches["torch.optim.optimizer"] = gradients.watch_first_step
        patches["torch.nn.parallel.distributed"] = gradients.exchange_by_strategy
    return patches


def _backends(module: ModuleType) -> None:
    """Make init_process_group accept the names of comm's backends. The backends' modules are loaded when one is asked for, not before."""
    if module.is_available():
        from . import backends

        backends.register(host_key)
