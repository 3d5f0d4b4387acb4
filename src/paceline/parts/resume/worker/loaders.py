"""Where the iterators of data loaders are, and iterators that begin there.

The name of an iterator is (loop depth, count): how many loops enclose it, and how many iterators were made before it in the current
iteration. A script that runs again from that item makes it under the same name. So an iterator that a saved state has is made where it
was: with the random numbers from before it was made, the sampler advanced, the workers with their own random numbers. One that cannot be
made again at its name (`it = iter(loader)` in a `while`) gets its position when the state is put back.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import sys
import weakref
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

from ....worker.error_file import is_users
from ....worker.no_compile import left_alone_by_compile, passed_over_by_warnings
from ....worker.signal_handlers import is_of_a_handler
from ..recording.state_buffer import packed, unpacked
from . import lost_worker, other_ranks, random_state
from .datasets import DatasetWatch
from .loops import Loop
from .object_graph import MISSING, PLAIN_TYPES, CannotKeep, CannotPutBack, Capture, Restore
from .other_ranks import Deal

# The folder of the package.
_OURS = os.path.dirname(__file__).removesuffix(os.path.join("parts", "resume", "worker"))
_FRAMES = 32
_ATTRIBUTE = "_paceline_position"
# A larger tensor of a sampler is taken for one that does not change.
_SMALL_BYTES = 1 << 16
_WATCHED_BATCHES = 3
# A dataset's longer list is taken for the data themselves.
_MOST_SETTINGS = 4096


class Position:
    """How far one iterator is."""

    __slots__ = (
        "deal",
        "in_generator",
        "is_followed",
        "key",
        "loader",
        "loop",
        "random",
        "samplers",
        "seen",
        "taken",
        "to_pass",
        "workers",
    )

    def __init__(self, key: tuple[int, int], loader: Any, random: bytes, samplers: bytes, deal: Deal | None) -> None:
        self.key = key
        self.loader = weakref.ref(loader)
        # Random numbers, and what decides on the loader's order: before the iterator was made.
        self.random = random
        self.samplers = samplers
        # How the order of this epoch is divided among the ranks, as far as this is known.
        self.deal = deal
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
        self.loop: Loop | None = None

    def plain(self) -> tuple[Any, ...]:
        """What a saved state holds of it."""
        deal = None if self.deal is None else tuple(self.deal)
        in_generator = self.in_generator or (self.loop is not None and self.loop.gives_items)
        return self.key, self.random, self.samplers, self.taken, self.workers, in_generator, deal


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
        # The position at which an iterator is being made, and how the rest of its epoch is dealt out.
        self._arriving: tuple[Any, ...] | None = None
        self._deal: Deal | None = None
        # Of a saved state of another number of ranks: that number.
        self._ranks_then: int | None = None
        # Of its epochs, the deal of before and of now.
        self.dealt: list[tuple[Deal, Deal]] = []
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

    def expect(self, kept: list[tuple[Any, ...]], ranks_then: int | None = None) -> None:
        """Make iterators where they were in a saved state. `ranks_then`: its number of ranks, if that is another one."""
        self._kept = kept
        self._ranks_then = ranks_then
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
        if self._ranks_then is not None and not self.dealt:
            raise CannotPutBack("no data loader was in its epoch: nobody knows which data the other ranks have had")
        self._wanted.clear()
        self.ahead.clear()
        self._ranks_then = None
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
                loaders._refuse_thread()
                return make(loader)
            key = loaders._session.loops.key_of_iterator(sys._getframe(1))
            return loaders._made(make, loader, key)

        module.DataLoader.__iter__ = left_alone_by_compile(__iter__)
        self._make = make
        self._patch_iterators(module)
        self._patch_workers(module, fetch_module)
        lost_worker.patch(module, self._session)

    def _made_at(self, loader: Any, wanted: tuple[Any, ...]) -> Any:
        self.ahead[wanted[0]] = wanted
        return self._made(self._make, loader, wanted[0])

    @passed_over_by_warnings
    def _made(self, make: Any, loader: Any, key: tuple[int, int]) -> Any:
        wanted = self.ahead.pop(key, None)
        try:
            deal = other_ranks.deal_of(loader)
            if wanted is not None:
                self._put_samplers_back(loader, wanted[2])
                deal = self._deal_of(loader, wanted, deal)
                if self._ranks_then is None:
                    random_state.put_back(wanted[1])
                else:
                    # The seeds of the workers come from these.
                    random_state.begin_for_rank(wanted[1], other_ranks.own_rank()[0])
                    wanted = (*wanted[:4], {}, *wanted[5:])
            position = Position(key, loader, random_state.kept(), self._samplers(loader), deal)
        except CannotPutBack as error:
            self._session.cannot_put_back(error)
        except Exception as error:
            if is_of_a_handler(error):
                raise
            # A sampler of the user may be of any kind.
            self._session.refuse("F13", f"the order of a data loader cannot be kept: {error}")
            return make(loader)
        self._workers_begin = {}
        # A stream is read again from its beginning, by all of its workers in their order.
        if wanted is not None and not wanted[5] and loader._dataset_kind == 0:
            self._arriving, self._deal = wanted, deal
            self._workers_begin = dict(wanted[4])
        if loader.num_workers and _start_method(loader) != "fork":
            self._session.refuse(
                "F12",
                "the workers of a loader are not forks of the rank, so their random numbers cannot be kept; "
                'DataLoader(multiprocessing_context="fork") makes them forks',
            )
        try:
            iterator = make(loader)
            if wanted is not None and not wanted[5]:
                self._advance(iterator, loader, position, wanted)
        finally:
            self._arriving = self._deal = None
            self._workers_begin = {}
        vars(iterator)[_ATTRIBUTE] = position
        self._live = [one for one in self._live if one() is not None and one() is not iterator]
        self._live.append(weakref.ref(iterator))
        return iterator

    def _deal_of(self, loader: Any, wanted: tuple[Any, ...], now: Deal | None) -> Deal | None:
        """How the rest of an epoch of a saved state is dealt out.

        Raises:  CannotPutBack: it was dealt to another number of ranks, and nobody knows how
        """
        then = wanted[6]
        if self._ranks_then is None:
            # A deal of an epoch in which the number of ranks has changed goes on.
            return now if then is None or not then[2] else Deal(*then)
        if wanted[5]:
            raise CannotPutBack(
                "the data loader is read by a generator of the script, which would have to read it again"
            )
        deal = other_ranks.dealt_again(loader, then, wanted[3], self._ranks_then, "the order of a data loader")
        self.dealt.append((Deal(*then), deal))
        return deal

    def _pass_over(self, iterator: Any, loader: Any, taken: int) -> None:
        """Move the order of an iterator that has just been made to behind the batches that were taken."""
        if self._deal is not None and self._deal.passed:
            iterator._sampler_iter = other_ranks.batches(loader, self._deal)
            taken -= self._deal.taken
        for _ in range(taken):
            next(iterator._sampler_iter)

    def _samplers(self, loader: Any) -> bytes:
        """What decides on a loader's order, as plain data."""
        capture = Capture(self._session.context)
        capture.place = "the sampler of a data loader"
        values = [capture.value(one) for one in (loader.generator, loader.sampler, loader.batch_sampler)]
        of_dataset = {name: capture.value(one) for name, one in _settings(loader).items()}
        small = {
            number: random_state.of_tensor(tensor.detach().contiguous().view(-1).view(sys.modules["torch"].uint8))
            for number, tensor in enumerate(capture.tensors)
            if 0 < tensor.numel() * tensor.element_size() <= _SMALL_BYTES
        }
        return packed((values, capture.nodes, small, of_dataset))

    def _put_samplers_back(self, loader: Any, kept: bytes) -> None:
        values, nodes, small, of_dataset = unpacked(kept)
        if self._ranks_then is not None:
            other_ranks.leave_out_numbers(nodes)
        restore = Restore(nodes, self._session.context)
        restore.place = "the sampler of a data loader"
        for value, one in zip(values, (loader.generator, loader.sampler, loader.batch_sampler), strict=True):
            restore.thing(value, one)
        before = _settings(loader)
        for name, value in of_dataset.items():
            made = restore.thing(value, before.get(name, MISSING))
            if name not in before or before[name] is not made:
                vars(loader.dataset)[name] = made
        for tensor, number in restore.copies:
            if number in small:
                raw = random_state.to_tensor(small[number])
                tensor.detach().copy_(raw.view(tensor.dtype).view(tensor.shape))
        restore.load_states()

    def _advance(self, iterator: Any, loader: Any, position: Position, wanted: tuple[Any, ...]) -> None:
        taken = wanted[3]
        if iterator._dataset_kind != 0:
            # The order is in the dataset: what was taken is read again.
            for _ in range(taken):
                self._next_batch(iterator)
        elif loader.num_workers == 0:
            self._pass_over(iterator, loader, taken)
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
                loaders._refuse_thread()
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
                loaders._pass_over(self, loader, wanted[3])

        base.__next__, base._reset = left_alone_by_compile(__next__), left_alone_by_compile(_reset)

    def _refuse_thread(self) -> None:
        """Refuse, if this is a thread of the rank: it is ahead of the steps, nobody knows how far."""
        if self._session.is_of_rank() and not self._session.follows():
            self._session.refuse("F13", "a thread of the script reads a data loader")

    @passed_over_by_warnings
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
                    position.is_followed, position.loop = True, frame.f_locals["loop"]
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


def _settings(loader: Any) -> dict[str, Any]:
    """The attributes of a dataset that decide what its workers will read, as the script sets them between two epochs: small plain ones."""
    # Workers that stay have the dataset of the first epoch.
    if (
        not loader.num_workers
        or loader.persistent_workers
        or not isinstance(getattr(loader.dataset, "__dict__", None), dict)
    ):
        return {}
    return {
        name: value
        for name, value in vars(loader.dataset).items()
        if type(value) in PLAIN_TYPES
        or (type(value) in (list, dict, set) and len(value) <= _MOST_SETTINGS and _is_flat(value))
    }


def _is_flat(container: Any) -> bool:
    return all(type(one) in PLAIN_TYPES for one in (container.values() if isinstance(container, dict) else container))


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    return str((context or multiprocessing).get_start_method())
