"""Times how long the training thread waits for its next batch, and keeps how many batches each DataLoader has."""

import functools
from _thread import get_ident
from time import monotonic_ns, time_ns
from typing import Any

from ...recording.ring import Cell, RankPhase
from ..instrument import Patch, RankInstrument
from ..no_compile import left_alone_by_compile
from ..rank_recorder import RankRecorder
from ..signal_handlers import is_of_a_handler

_DATA, _TRAINING = int(RankPhase.DATA), int(RankPhase.TRAINING)
_PHASE, _PHASE_SINCE_NS, _BATCHES_TAKEN = int(Cell.PHASE), int(Cell.PHASE_SINCE_NS), int(Cell.BATCHES_TAKEN)


class BatchTimer(RankInstrument):
    """Replaces methods of the iterator class of DataLoader."""

    def patches(self) -> dict[str, Patch]:
        return {"torch.utils.data.dataloader": self._watch}

    def _watch(self, dataloader_module: Any) -> None:
        time_batches(dataloader_module._BaseDataLoaderIter, self.rank)
        measure_loaders(dataloader_module._BaseDataLoaderIter, self.rank)


def time_batches(iterator: Any, rank: RankRecorder) -> None:
    """Time the training thread's waits in `iterator.__next__`."""
    next_batch = iterator.__next__

    # `begin` and `end` of the recorder are inlined, which saves two calls in every step.
    @functools.wraps(next_batch)
    def __next__(self: Any) -> Any:
        ring = rank.ring
        if ring is None or rank.busy or "data" in rank.silent or get_ident() != rank.thread:
            return next_batch(self)
        try:
            rank.busy = _DATA
            if rank.preparing:
                rank.batch_is_asked_for(id(self))
            rank.loader = id(self)
            ring.cells[_PHASE] = _DATA
            ring.cells[_PHASE_SINCE_NS] = time_ns()
        except Exception as error:
            rank.drop("data", error)
        start_ns = monotonic_ns()
        try:
            batch = next_batch(self)
            if rank.ring is ring:
                ring.cells[_BATCHES_TAKEN] += 1
            return batch
        except StopIteration:
            rank.loader_ran_out(id(self))
            raise
        finally:
            rank.data_ns += monotonic_ns() - start_ns
            rank.busy = 0
            # Not in a child that was forked during the wait.
            if rank.ring is ring:
                ring.cells[_PHASE] = _TRAINING

    iterator.__next__ = left_alone_by_compile(__next__)


def measure_loaders(iterator: Any, rank: RankRecorder) -> None:
    """Keep how many batches each iterator will give. An IterableDataset's iterator tells only with a mark, which makes torch warn."""
    construct = iterator.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        rank.registry.tell("loader_began", args[0] if args else kwargs.get("loader"))
        try:
            rank.loader_begins(id(self))
            rank.batch_sizes[id(self)] = _batch_size(args[0] if args else kwargs.get("loader"))
            rank.loader_lengths[id(self)] = len(self._index_sampler) if self._dataset_kind == 0 else 0
        except Exception as error:
            # A sampler without an end has no length.
            if is_of_a_handler(error):
                raise

    iterator.__init__ = left_alone_by_compile(__init__)
    begin_anew = iterator._reset

    # If a DataLoader keeps its workers for the next epoch, it also keeps the iterator.
    @functools.wraps(begin_anew)
    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        begin_anew(self, loader, first_iter)
        if not first_iter:
            rank.loader_begins(id(self))
            rank.registry.tell("loader_began", loader)

    iterator._reset = left_alone_by_compile(_reset)


def _batch_size(loader: Any) -> int:
    """Samples in a batch; 0 if nobody says it, as for batches that a sampler of its own makes."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1 << 62 else 0
