"""Where the iterators of data loaders are, and iterators that begin there.

An iterator is named by where it is made: how many loops are around, and the how many-th it is since the innermost loop took its item. A
script that runs again from that item makes it under the same name. So an iterator that a saved state has is made where it was: with the
random numbers from before it was made, the sampler advanced, the workers with their own random numbers. One that cannot be made again at
its name (`it = iter(loader)` in a `while`) gets its position when the state is put back.
"""

from __future__ import annotations

import functools
import itertools
import marshal
import multiprocessing
import os
import sys
import weakref
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

from ..error_file import is_users
from ..no_compile import left_alone_by_compile, passed_over_by_warnings
from . import random_state
from .datasets import DatasetWatch
from .object_graph import CannotKeep, CannotPutBack, Capture, Restore

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_FRAMES = 32
_ATTRIBUTE = "_paceline_position"
# A larger tensor of a sampler is taken for one that does not change.
_SMALL_BYTES = 1 << 16
_WATCHED_BATCHES = 3


class Position:
    """How far one iterator is."""

    __slots__ = (
        "in_generator",
        "is_followed",
        "key",
        "loader",
        "random",
        "samplers",
        "seen",
        "taken",
        "to_pass",
        "workers",
    )

    def __init__(self, key: tuple[int, int], loader: Any, random: bytes, samplers: bytes) -> None:
        self.key = key
        self.loader = weakref.ref(loader)
        # Random numbers, and what decides on the loader's order: before the iterator was made.
        self.random = random
        self.samplers = samplers
        # Batches that the script has taken.
        self.taken = 0
        # Worker -> its random numbers after its last batch that was taken.
        self.workers: dict[int, Any] = {}
        # Batches that a loop passes over without reading them.
        self.to_pass = 0
        # Who takes its batches: a generator of the user, a followed loop; known at the first batch.
        self.seen = False
        self.in_generator = False
        self.is_followed = False

    def plain(self) -> tuple[Any, ...]:
        """What a saved state holds of it."""
        return self.key, self.random, self.samplers, self.taken, self.workers, self.in_generator


class Loaders:
    """Patches DataLoader, and knows the position of each of its iterators in this process."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._live: list[weakref.ref[Any]] = []
        # Positions of the saved state that no iterator has been made at yet, by key.
        self.ahead: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._kept: list[tuple[Any, ...]] = []
        self._wanted: list[tuple[Any, int]] = []
        # A loop passes over what was done.
        self.passing = False
        # The position at which an iterator is being made.
        self._arriving: tuple[Any, ...] | None = None
        # In a worker: what it reads; its random numbers, to be set before its first batch.
        self._watch: DatasetWatch | None = None
        self._workers_begin: dict[int, Any] = {}

    # ------------------------------------------------------------------------------------------------ saved state

    def kept(self) -> list[tuple[Any, ...]]:
        """The positions of all live iterators that a saved state needs."""
        self._live = [one for one in self._live if one() is not None]
        return [vars(iterator)[_ATTRIBUTE].plain() for one in self._live if (iterator := one()) is not None]

    def number_of(self, iterator: Any, place: str) -> int:
        """The number of an iterator in `kept`.

        Raises:  CannotKeep
        """
        found = [one() for one in self._live if one() is not None]
        for number, one in enumerate(found):
            if one is iterator:
                return number
        raise CannotKeep(f"`{place}` is an iterator of a data loader that was made before")

    def expect(self, kept: list[tuple[Any, ...]]) -> None:
        """Make iterators where they were in a saved state."""
        self._kept = kept
        self.ahead = {position[0]: position for position in kept}

    def wants(self, iterator: Any, number: int) -> None:
        """This iterator must be where the one of this number was."""
        self._wanted.append((iterator, number))

    def put_back(self) -> None:
        """Move every iterator to its place that was not made there.

        Raises:  CannotPutBack
        """
        for iterator, number in self._wanted:
            wanted = self._kept[number]
            position: Position = vars(iterator)[_ATTRIBUTE]
            if (position.key, position.taken) == (wanted[0], wanted[3]):
                position.to_pass = 0
                continue
            loader = position.loader()
            if loader is None:
                raise CannotPutBack("the data loader of an iterator is gone")
            made = self._made_at(loader, wanted)
            # Who holds the iterator must see it where it was.
            iterator.__dict__, made.__dict__ = made.__dict__, iterator.__dict__
        self._wanted.clear()
        self.ahead.clear()
        for one in self._live:
            if (found := one()) is not None:
                vars(found)[_ATTRIBUTE].to_pass = 0

    # ------------------------------------------------------------------------------------------------- DataLoader

    def patch(self, module: Any, fetch_module: Any) -> None:
        """Replace methods of DataLoader and of its iterators."""
        make = module.DataLoader.__iter__
        loaders = self

        @functools.wraps(make)
        def __iter__(loader: Any) -> Any:
            if not loaders._session.follows():
                return make(loader)
            key = loaders._session.loops.key_of_iterator(sys._getframe(1))
            return loaders._made(make, loader, key)

        module.DataLoader.__iter__ = left_alone_by_compile(__iter__)
        self._make = make
        self._patch_iterators(module)
        self._patch_workers(module, fetch_module)

    def _made_at(self, loader: Any, wanted: tuple[Any, ...]) -> Any:
        self.ahead[wanted[0]] = wanted
        return self._made(self._make, loader, wanted[0])

    def _made(self, make: Any, loader: Any, key: tuple[int, int]) -> Any:
        wanted = self.ahead.pop(key, None)
        try:
            if wanted is not None:
                self._put_samplers_back(loader, wanted[2])
                random_state.put_back(wanted[1])
            position = Position(key, loader, random_state.kept(), self._samplers(loader))
        except Exception as error:
            # A sampler of the user may be of any kind.
            self._session.refuse("F13", f"the order of a data loader cannot be kept: {error}")
            return make(loader)
        self._workers_begin = {}
        # A stream is read again from its beginning, by all of its workers in their order.
        if wanted is not None and not wanted[5] and loader._dataset_kind == 0:
            self._arriving = wanted
            self._workers_begin = dict(wanted[4])
        if loader.num_workers and _start_method(loader) != "fork":
            self._session.refuse(
                "F12", "the workers of a loader are not forks of the rank: their random numbers cannot be kept"
            )
        try:
            iterator = make(loader)
            if wanted is not None and not wanted[5]:
                self._advance(iterator, loader, position, wanted)
        finally:
            self._arriving = None
            self._workers_begin = {}
        vars(iterator)[_ATTRIBUTE] = position
        self._live = [one for one in self._live if one() is not None and one() is not iterator]
        self._live.append(weakref.ref(iterator))
        return iterator

    def _samplers(self, loader: Any) -> bytes:
        """What decides on a loader's order, as plain data."""
        capture = Capture(self._session.context)
        capture.place = "the sampler of a data loader"
        values = [capture.value(one) for one in (loader.generator, loader.sampler, loader.batch_sampler)]
        small = {
            number: random_state.of_tensor(tensor.detach().contiguous().view(-1).view(sys.modules["torch"].uint8))
            for number, tensor in enumerate(capture.tensors)
            if 0 < tensor.numel() * tensor.element_size() <= _SMALL_BYTES
        }
        return marshal.dumps((values, capture.nodes, small))

    def _put_samplers_back(self, loader: Any, kept: bytes) -> None:
        values, nodes, small = marshal.loads(kept)
        restore = Restore(nodes, self._session.context)
        restore.place = "the sampler of a data loader"
        for value, one in zip(values, (loader.generator, loader.sampler, loader.batch_sampler), strict=True):
            restore.thing(value, one)
        for tensor, number in restore.copies:
            if number in small:
                raw = random_state.to_tensor(small[number])
                tensor.detach().copy_(raw.view(tensor.dtype).view(tensor.shape))

    def _advance(self, iterator: Any, loader: Any, position: Position, wanted: tuple[Any, ...]) -> None:
        taken = wanted[3]
        if iterator._dataset_kind != 0:
            # The order is in the dataset: what was taken is read again.
            for _ in range(taken):
                self._next_batch(iterator)
        elif loader.num_workers == 0:
            _pass_over(iterator._sampler_iter, taken)
        position.taken = position.to_pass = taken
        position.workers = dict(wanted[4])

    def _patch_iterators(self, module: Any) -> None:
        base = module._BaseDataLoaderIter
        next_batch, reset = base.__next__, base._reset
        self._next_batch = next_batch
        loaders = self

        @functools.wraps(next_batch)
        def __next__(self: Any) -> Any:
            position: Position | None = vars(self).get(_ATTRIBUTE)
            if position is None or not loaders._session.follows():
                return next_batch(self)
            if not position.seen:
                loaders._see(position, sys._getframe(1))
            if not position.is_followed:
                loaders._session.before_batch(sys._getframe(1))
                position = vars(self)[_ATTRIBUTE]
            elif loaders.passing and position.to_pass:
                position.to_pass -= 1
                return None
            if position.taken < _WATCHED_BATCHES and self._dataset_kind != 0 and self._num_workers == 0:
                batch = loaders._without_random_numbers(self)
            else:
                batch = next_batch(self)
            position.taken += 1
            loaders._session.loops.batch_was_taken = position.is_followed
            if not position.is_followed and loaders._session.batch_is_due:
                loaders._session.take_batch(batch)
            return batch

        @functools.wraps(reset)
        def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
            reset(self, loader, first_iter)
            wanted = loaders._arriving
            if wanted is not None and self._dataset_kind == 0:
                _pass_over(self._sampler_iter, wanted[3])

        base.__next__, base._reset = left_alone_by_compile(__next__), left_alone_by_compile(_reset)

    def _without_random_numbers(self, iterator: Any) -> Any:
        """The next batch of a stream that is read in this process. After a restart the stream is read again without the steps between."""
        before = random_state.kept()
        batch = self._next_batch(iterator)
        if random_state.kept() != before:
            self._session.refuse(
                "F12",
                "an IterableDataset draws random numbers in the process that trains; num_workers=1 gives it its own",
            )
        return batch

    def _see(self, position: Position, frame: FrameType | None) -> None:
        """Find out who takes the batches of an iterator."""
        position.seen = True
        for _ in range(_FRAMES):
            if frame is None:
                return
            file = frame.f_code.co_filename
            if file.startswith(_OURS):
                if frame.f_code.co_name == "_items":
                    position.is_followed = True
                    return
            elif frame.f_code.co_flags & CO_GENERATOR and f"{os.sep}tqdm{os.sep}" not in file:
                # It may be ahead of who takes its items, so they are taken from it again. A followed loop does that.
                position.in_generator = position.is_followed = True
                return
            elif is_users(file):
                return
            frame = frame.f_back

    # --------------------------------------------------------------------------------------------------- workers

    def _patch_workers(self, module: Any, fetch_module: Any) -> None:
        several = module._MultiProcessingDataLoaderIter
        fetch, process = fetch_module._MapDatasetFetcher.fetch, several._process_data
        loaders = self

        @functools.wraps(fetch)
        def fetch_and_tell(self: Any, index: Any) -> Any:
            worker = sys.modules["torch"].utils.data.get_worker_info()
            if worker is None or not loaders._session.is_worker():
                return fetch(self, index)
            begin = loaders._workers_begin.pop(worker.id, None)
            if begin is not None:
                random_state.put_back(begin)
            if loaders._watch is None:
                loaders._watch = DatasetWatch(worker.dataset)
            loaders._watch.begin()
            before = random_state.kept()
            batch = fetch(self, index)
            after = random_state.kept()
            return _FromWorker(batch, worker.id, after if after != before else None, loaders._watch.changed())

        @functools.wraps(process)
        def _process_data(self: Any, data: Any, *args: Any) -> Any:
            batch = process(self, data, *args)
            if isinstance(batch, _FromWorker):
                position = vars(self).get(_ATTRIBUTE)
                if batch.random is not None and position is not None:
                    position.workers[batch.worker] = batch.random
                if batch.changed is not None and loaders._session.follows():
                    loaders._session.refuse(
                        "F12", f"the dataset changes in the workers of its loader: its `{batch.changed}`"
                    )
                return batch.batch
            return batch

        fetch_module._MapDatasetFetcher.fetch = passed_over_by_warnings(fetch_and_tell)
        several._process_data = passed_over_by_warnings(_process_data)
        module.itertools = _Itertools(self)

    def rotated(self, workers: list[Any]) -> list[Any]:
        """The workers in the order in which the next batches are theirs."""
        if self._arriving is None:
            return workers
        first = self._arriving[3] % len(workers)
        return workers[first:] + workers[:first]


class _FromWorker:
    """A batch of a worker, with the worker's random numbers after it if it used any, and the attribute of the dataset that it changed."""

    __slots__ = ("batch", "changed", "random", "worker")

    def __init__(self, batch: Any, worker: int, random: Any, changed: str | None) -> None:
        self.batch, self.worker, self.random, self.changed = batch, worker, random, changed

    def pin_memory(self, device: Any = None) -> _FromWorker:
        """What DataLoader's thread asks of a batch of an unknown class."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return _FromWorker(pin_memory(self.batch, device), self.worker, self.random, self.changed)


class _Itertools:
    """itertools for the module of DataLoader, which decides by `cycle` which worker has the next batch."""

    def __init__(self, loaders: Loaders) -> None:
        self._loaders = loaders

    def __getattr__(self, name: str) -> Any:
        return getattr(itertools, name)

    def cycle(self, items: Any) -> Any:
        return itertools.cycle(self._loaders.rotated(list(items)))


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    return str((context or multiprocessing).get_start_method())


def _pass_over(iterator: Any, count: int) -> None:
    for _ in range(count):
        next(iterator)
