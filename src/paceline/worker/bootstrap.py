"""Which patch runs after which module of torch was executed. `prepare` is called as `import torch` begins."""

import os
import sys
from types import ModuleType
from typing import Any

from ..comm.observer import observe
from ..recording.ring import Instrument, RingWriter
from . import (
    call_log,
    ddp,
    exit_code,
    exit_handler,
    first_step,
    frameworks,
    gradients,
    groups,
    instruments,
    loops,
    replica,
    sampling,
)
from .exchange_observer import ExchangeObserver
from .host_identity import host_key
from .no_compile import leave_methods_alone
from .rank_recorder import RankRecorder, this_rank

# Where the process groups are that are written in Python.
OUR_GROUPS = (f"{instruments.OUR_ROOM}backend.process_group", f"{instruments.OUR_ROOM}mpi.process_group")


def prepare(finder: Any) -> None:
    """Enter the patches into sitecustomize's finder; each runs right after its module, before anybody can copy a name out of it."""
    finder.report = this_rank.note_failure
    _turn_off(os.environ.get("PACELINE_OFF", ""))
    if _is_on(Instrument.EXIT):
        exit_code.watch(lambda: this_rank.step_count)
        exit_handler.watch()
    os.register_at_fork(after_in_child=this_rank.forget)
    finder.after.update(
        {
            "torch.optim.optimizer": _optimizers,
            "torch.distributed.distributed_c10d": _distributed,
            "torch.distributed": _backends,
            "torch.nn.parallel.distributed": _data_parallel,
            "accelerate.state": frameworks.let_smddp_train_without_gpus,
            **dict.fromkeys(OUR_GROUPS, instruments.watch_our_groups),
        }
    )
    if _is_on(Instrument.STEPS):
        finder.after["torch.autograd"] = first_step.watch_backward
        finder.after.update(dict.fromkeys(first_step.FSDP_FORWARDS, first_step.watch_fsdp_forward))
    if _is_on(Instrument.DATA):
        finder.after["torch.utils.data.dataloader"] = instruments.time_data
    if _is_on(Instrument.CHECKPOINT):
        finder.after["torch.serialization"] = instruments.time_torch_save
        finder.after["torch.distributed.checkpoint.state_dict_saver"] = instruments.time_distributed_save
        finder.after["safetensors.torch"] = instruments.time_safetensors
    _already_there(finder)


def _turn_off(words: str) -> None:
    """What a person does without: names of `Instrument`, by commas. `all` never gets here, see sitecustomize."""
    for word in filter(None, (word.strip().upper() for word in words.split(","))):
        if word in Instrument.__members__:
            this_rank.off |= Instrument[word]
        else:
            this_rank.note_failure(ValueError(f"there is no instrument {word.lower()!r}"), "PACELINE_OFF")


def _is_on(instrument: Instrument) -> bool:
    return instrument not in this_rank.off


def _distributed(module: ModuleType) -> None:
    for watching in (
        RankRecorder,
        RingWriter,
        instruments,
        call_log,
        call_log.CallLog,
        loops,
        loops.Loops,
        replica,
        sampling,
        sampling.Samplers,
        ddp.SampledReducer,
        ExchangeObserver,
    ):
        leave_methods_alone(watching)
    if _is_on(Instrument.GROUPS):
        groups.watch(module)
    instruments.watch_collectives()
    if _is_on(Instrument.EXCHANGES):
        observe(ExchangeObserver(this_rank))


def _optimizers(module: ModuleType) -> None:
    if _is_on(Instrument.STEPS):
        instruments.count_steps(module)
    if gradients.wanted():
        gradients.watch_first_step(module)


def _data_parallel(module: ModuleType) -> None:
    frameworks.let_smddp_models_stay_on_cpus(module)
    if _is_on(Instrument.DDP):
        ddp.sample_exposed_communication(module)
    if gradients.wanted():
        gradients.exchange_by_strategy(module)


def _backends(module: ModuleType) -> None:
    """Let init_process_group take the names of comm's backends; nothing of these is loaded before one is asked for."""
    if module.is_available():
        from ..comm import backends

        backends.register(host_key)


def _already_there(finder: Any) -> None:
    # A sitecustomize behind ours may have taken a part of torch's names before; safetensors does not need torch to be imported.
    for name in [name for name in finder.after if name in sys.modules]:
        finder.after.pop(name)(sys.modules[name])
