"""Times checkpoints: `torch.save`, `torch.distributed.checkpoint` and safetensors."""

import functools
from collections.abc import Callable
from typing import Any

from ...recording.ring import RankPhase
from ..instrument import Patch, RankInstrument
from ..no_compile import left_alone_by_compile
from ..rank_recorder import RankRecorder

_CHECKPOINT = int(RankPhase.CHECKPOINT)
# Module -> its functions that save. For `async_save`, only the blocking part is timed.
_SAVES = {
    "torch.serialization": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "safetensors.torch": ("save_file", "save_model"),
}


class CheckpointTimer(RankInstrument):
    """Replaces the functions that save by timed ones."""

    def patches(self) -> dict[str, Patch]:
        return dict.fromkeys(_SAVES, self._time)

    def _time(self, module: Any) -> None:
        for name in _SAVES[module.__name__]:
            if hasattr(module, name):
                setattr(module, name, _timed(getattr(module, name), self.rank))


def _timed(save: Callable[..., Any], rank: RankRecorder) -> Callable[..., Any]:
    @functools.wraps(save)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start_ns = rank.begin(_CHECKPOINT, "checkpoint")
        if not start_ns:
            return save(*args, **kwargs)
        try:
            return save(*args, **kwargs)
        finally:
            rank.saved(rank.end(start_ns, "checkpoint"))

    return left_alone_by_compile(timed)
