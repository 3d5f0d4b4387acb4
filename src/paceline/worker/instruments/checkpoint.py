"""Times the saves of checkpoints, and notes whether the script loads one before its first step.

Both are about `torch.save` and `torch.load`, `torch.distributed.checkpoint`, safetensors, `tf.train.Checkpoint` and Keras.
"""

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from ...recording.ring import Loaded, RankPhase
from ..instrument import Patch, RankInstrument
from ..no_compile import left_alone_by_compile
from ..rank_recorder import RankRecorder

_CHECKPOINT = int(RankPhase.CHECKPOINT)
# Module -> its functions that save. For `async_save`, only the blocking part is timed.
_SAVES = {
    "torch.serialization": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "safetensors.torch": ("save_file", "save_model"),
    "keras.src.saving.saving_api": ("save_model", "save_weights"),
    "tf_keras.src.saving.saving_api": ("save_model", "save_weights"),
}
# Module -> its functions that load from a file or a directory.
_LOADS = {
    "torch.serialization": ("load",),
    "torch.distributed.checkpoint.state_dict_loader": ("load", "load_state_dict"),
    "safetensors.torch": ("load_file", "load_model"),
    "keras.src.saving.saving_api": ("load_model", "load_weights"),
    "tf_keras.src.saving.saving_api": ("load_model", "load_weights"),
}
# TensorFlow's checkpoints all go through one class, with this method for each.
_TRACKABLE = ("tensorflow.python.checkpoint.checkpoint", "TrackableSaver")
_MOST_FILES = 256


class CheckpointObserver(RankInstrument):
    """Replaces the functions that save and load by observed ones."""

    def begin(self) -> None:
        self.rank.loads(Loaded.NOTHING)

    def ring_opened(self) -> None:
        # What a child of multiprocessing was given may be a checkpoint that its parent loaded.
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            self.rank.loads(Loaded.UNKNOWN)

    def patches(self) -> dict[str, Patch]:
        files = dict.fromkeys((*_SAVES, *_LOADS), self._files)
        files[_TRACKABLE[0]] = self._trackable
        return {**files, "torch.optim.optimizer": self._optimizer, "torch.nn.modules.module": self._module}

    def _files(self, module: Any) -> None:
        for name in _SAVES.get(module.__name__, ()):
            if hasattr(module, name):
                setattr(module, name, _timed(getattr(module, name), self.rank))
        for name in _LOADS.get(module.__name__, ()):
            if hasattr(module, name):
                setattr(module, name, _noted(getattr(module, name), self.rank, _time_of_newest))

    def _trackable(self, module: Any) -> None:
        owner = getattr(module, _TRACKABLE[1])
        owner.save = _timed(owner.save, self.rank)
        owner.restore = _noted(owner.restore, self.rank, _time_of_prefix)

    def _optimizer(self, module: Any) -> None:
        # A checkpoint that none of these functions read, such as a pickle.
        owner = module.Optimizer
        owner.load_state_dict = _noted(owner.load_state_dict, self.rank, lambda args: time.time_ns())

    def _module(self, module: Any) -> None:
        # A module also takes the state of another module, so this alone says nothing.
        owner = module.Module
        owner.load_state_dict = _noted(owner.load_state_dict, self.rank, lambda args: Loaded.UNKNOWN)


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


def _noted(load: Callable[..., Any], rank: RankRecorder, value: Callable[[Iterable[Any]], int]) -> Callable[..., Any]:
    @functools.wraps(load)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if rank.step_count or rank.is_loading:
            return load(*args, **kwargs)
        # One such function may call another, which then does not know the file.
        rank.is_loading = True
        try:
            loaded = load(*args, **kwargs)
        finally:
            rank.is_loading = False
        try:
            rank.loads(value((*args, *kwargs.values())))
        except Exception as error:
            rank.drop("checkpoint", error)
        return loaded

    return left_alone_by_compile(noted)


def _time_of_newest(arguments: Iterable[Any]) -> int:
    """When the files that are loaded were last written, Unix ns; now if the arguments do not say which files these are."""
    paths = [argument for argument in arguments if isinstance(argument, str | os.PathLike) and os.path.exists(argument)]
    times = [os.stat(file).st_mtime_ns for path in paths for file in _files_of(path)]
    return max(times, default=time.time_ns())


def _time_of_prefix(arguments: Iterable[Any]) -> int:
    """The same for TensorFlow, which names a checkpoint by what its files begin with."""
    prefixes = [str(argument) for argument in arguments if isinstance(argument, str | os.PathLike)]
    return _time_of_newest([f"{prefix}.index" for prefix in prefixes])


def _files_of(path: Any) -> list[Any]:
    """The file, or the first files of a directory."""
    if not os.path.isdir(path):
        return [path]
    with os.scandir(path) as entries:
        return [path, *(entry.path for entry, _ in zip(entries, range(_MOST_FILES), strict=False))]
