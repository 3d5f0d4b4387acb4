"""Which patch runs after which module of torch was executed. `prepare` is called as `import torch` begins."""

import os
import sys
from types import ModuleType
from typing import Any

from ..recording.ring import RingWriter
from . import calls, ddp, exit_code, groups, instruments
from . import leaving as leaving  # sitecustomize's exit handler looks for it among the loaded modules
from .quiet_frames import leave_methods_alone
from .this_rank import ThisRank, this_rank


def prepare(finder: Any) -> None:
    """Enter the patches into sitecustomize's finder; each runs right after its module, before anybody can copy a name out of it."""
    finder.report = this_rank.note_failure
    exit_code.watch(lambda: this_rank.step_count)
    os.register_at_fork(after_in_child=this_rank.forget)
    finder.after.update(
        {
            "torch.optim.optimizer": instruments.count_steps,
            "torch.utils.data.dataloader": instruments.time_data,
            "torch.serialization": instruments.time_torch_save,
            "torch.distributed.checkpoint.state_dict_saver": instruments.time_distributed_save,
            "safetensors.torch": instruments.time_safetensors,
            "torch.distributed.distributed_c10d": _distributed,
            "torch.nn.parallel.distributed": ddp.sample_exposed_communication,
        }
    )
    _already_there(finder)


def _distributed(module: ModuleType) -> None:
    for watching in (ThisRank, RingWriter, calls, calls.CallLog, ddp.SampledReducer):
        leave_methods_alone(watching)
    groups.watch(module)
    instruments.watch_collectives()


def _already_there(finder: Any) -> None:
    # A sitecustomize behind ours may have taken a part of torch's names before; safetensors does not need torch to be imported.
    for name in [name for name in finder.after if name in sys.modules]:
        finder.after.pop(name)(sys.modules[name])
