"""Corrects assumptions of scripts and frameworks about SageMaker's library that are wrong on a machine without GPUs.

The library supported machines with GPUs only. A script that falls back to the CPU still passes its rank's device, and torch refuses
that for a model on the CPU. Accelerate, and transformers through it, assumes that every rank of `smddp` has a GPU, and divides by the
number of GPUs.
"""

import functools
from collections.abc import Mapping
from typing import Any

from ...worker.instrument import Patch
from ...worker.no_compile import passed_over_by_warnings

_SMDDP = "smddp"


def before_instruments() -> Mapping[str, Patch]:
    return {
        "torch.nn.parallel.distributed": let_smddp_models_stay_on_cpus,
        "accelerate.state": let_smddp_train_without_gpus,
    }


def let_smddp_models_stay_on_cpus(parallel: Any) -> None:
    """Drop `device_ids` for a model on the CPU if the group's backend is `smddp`. `parallel`: the module torch.nn.parallel.distributed."""
    ddp_class = parallel.DistributedDataParallel
    construct = ddp_class.__init__

    @functools.wraps(construct)
    def __init__(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        if device_ids is not None and _is_of_smddp(kwargs.get("process_group")) and _is_on_cpu(module):
            device_ids = output_device = None
        construct(self, module, device_ids, output_device, *args, **kwargs)

    ddp_class.__init__ = passed_over_by_warnings(__init__)


def _is_of_smddp(group: Any) -> bool:
    import torch.distributed as torchs

    return torchs.is_initialized() and torchs.get_backend(group) == _SMDDP


def _is_on_cpu(model: Any) -> bool:
    return all(parameter.device.type == "cpu" for parameter in model.parameters())


def let_smddp_train_without_gpus(state: Any) -> None:
    """Make `smddp` a CPU backend for Accelerate if torch has no CUDA device. `state`: the module accelerate.state.

    An Accelerate without this method, or without this kind of ranks, stays unchanged.
    """
    choose = getattr(state.PartialState, "_prepare_backend", None)
    on_gpus = getattr(state.DistributedType, "MULTI_GPU", None)
    on_cpus = getattr(state.DistributedType, "MULTI_CPU", None)
    if choose is None or on_gpus is None or on_cpus is None:
        return

    @functools.wraps(choose)
    def _prepare_backend(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = choose(self, *args, **kwargs)
        if chosen == (_SMDDP, on_gpus) and not state.torch.cuda.is_available():
            return _SMDDP, on_cpus
        return chosen

    state.PartialState._prepare_backend = _prepare_backend
