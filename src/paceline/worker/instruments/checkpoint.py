"""Times the saves of checkpoints, and notes what the script loads before its first step: which file, and how much of it was taken.

Both are about `torch.save` and `torch.load`, `torch.distributed.checkpoint`, safetensors, `tf.train.Checkpoint` and Keras.
"""

import functools
import os
import sys
import time
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...recording.ring import TEXTS, Cell, Loaded, RankPhase
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
_MOST_PATH_BYTES = TEXTS["loaded_file"][1] - 1


class CheckpointObserver(RankInstrument):
    """Replaces the functions that save and load by observed ones."""

    def __init__(self, rank: RankRecorder) -> None:
        super().__init__(rank)
        # A forked child has what its parent loaded.
        self._loaded, self._file = int(Loaded.NOTHING), ""
        self._counts = {Cell.OPTIMIZER_LOADED: 0, Cell.PARAMETERS_ASKED: 0, Cell.PARAMETERS_LOADED: 0}
        # The threads that are in one of these functions.
        self._loading: set[int] = set()

    def ring_opened(self) -> None:
        # What a child of multiprocessing was given may be a checkpoint that its parent loaded.
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            self._loaded = max(self._loaded, Loaded.UNKNOWN)
        self._publish()

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
                setattr(module, name, self._noted(getattr(module, name), self._read))

    def _trackable(self, module: Any) -> None:
        owner = getattr(module, _TRACKABLE[1])
        owner.save = _timed(owner.save, self.rank)
        owner.restore = self._noted(owner.restore, self._restored)

    def _optimizer(self, module: Any) -> None:
        owner = module.Optimizer
        owner.load_state_dict = self._noted(owner.load_state_dict, self._optimizer_took)

    def _module(self, module: Any) -> None:
        owner = module.Module
        owner.load_state_dict = self._noted(owner.load_state_dict, self._module_took)

    def _noted(self, load: Callable[..., Any], note: Callable[[Sequence[Any], Any], None]) -> Callable[..., Any]:
        """`load`, after whose first calls `note` is called with its arguments and its result."""

        @functools.wraps(load)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if self.rank.step_count or (thread := get_ident()) in self._loading:
                return load(*args, **kwargs)
            # One such function may call another, which then does not know the file.
            self._loading.add(thread)
            try:
                result = load(*args, **kwargs)
            finally:
                self._loading.discard(thread)
            try:
                note((*args, *kwargs.values()), result)
                self._publish()
            except Exception as error:
                self.rank.drop("checkpoint", error)
            return result

        return left_alone_by_compile(noted)

    def _publish(self) -> None:
        ring = self.rank.ring
        if ring is not None:
            ring.cells[Cell.LOADED] = self._loaded
            for cell, count in self._counts.items():
                ring.cells[cell] = count
            # The end of a path says more than its beginning.
            end = self._file.encode("utf-8", "replace")[-_MOST_PATH_BYTES:]
            ring.text("loaded_file", end.decode("utf-8", "ignore"))

    def _read(self, arguments: Sequence[Any], result: Any) -> None:
        self._newest([one for one in arguments if isinstance(one, str | os.PathLike) and os.path.exists(one)])

    def _restored(self, arguments: Sequence[Any], result: Any) -> None:
        """TensorFlow names a checkpoint by what its files begin with."""
        prefixes = [str(one) for one in arguments if isinstance(one, str | os.PathLike)]
        self._newest([path for prefix in prefixes if os.path.exists(path := f"{prefix}.index")])

    def _newest(self, paths: Sequence[Any]) -> None:
        """These files were read; an empty list: the arguments do not say which."""
        times = {os.fspath(path): max(map(_written_ns, _files_of(path))) for path in paths}
        newest = max(times, key=lambda path: times[path], default="")
        self._took(times.get(newest) or time.time_ns(), str(newest))

    def _took(self, value: int, file: str = "") -> None:
        """Of several the largest counts. `value`: as Cell.LOADED has it."""
        if value > self._loaded:
            self._loaded, self._file = value, os.path.abspath(file) if file else self._file

    def _optimizer_took(self, arguments: Sequence[Any], result: Any) -> None:
        # Where none of these functions read a file, it was a pickle or another format.
        self._took(time.time_ns())
        if any(isinstance(one, Mapping) and one.get("state") for one in arguments):
            self._counts[Cell.OPTIMIZER_LOADED] = 1

    def _module_took(self, arguments: Sequence[Any], result: Any) -> None:
        # A module also takes the state of another module, so this alone says nothing of a file.
        self._took(Loaded.UNKNOWN)
        module, *given = arguments
        state = next(one for one in given if isinstance(one, Mapping))
        # A model may define its own `named_parameters`.
        names = [name for name, _ in sys.modules["torch.nn"].Module.named_parameters(module)]
        missing = set(getattr(result, "missing_keys", ())).intersection(names)
        self._counts[Cell.PARAMETERS_ASKED] += len(names)
        self._counts[Cell.PARAMETERS_LOADED] += len(names) - len(missing)
        if names and len(missing) == len(names) and len(state) and os.environ.get("RANK", "0") == "0":
            self.rank.notice("checkpoint", _took_none(names, [str(name) for name in state], self._file))


def _took_none(names: Sequence[str], found: Sequence[str], file: str) -> str:
    """What is wrong with a state of which a module took nothing. `found`: the state's names."""
    where = f" of {file}" if file else ""
    return (
        f"load_state_dict took none of the model's {len(names)} parameters: the state{where} has {found[0]}, the model {names[0]}, and "
        "strict=False passes over names that differ; it trains from the start (F17)"
    )


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


def _written_ns(path: Any) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        # A link to nothing, or a file that was removed meanwhile.
        return 0


def _files_of(path: Any) -> list[Any]:
    """The file, or the first files of a directory."""
    if not os.path.isdir(path):
        return [path]
    with os.scandir(path) as entries:
        return [path, *(entry.path for entry, _ in zip(entries, range(_MOST_FILES), strict=False))]
