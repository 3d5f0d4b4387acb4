"""The patches that count steps and collectives and time data, waits and checkpoints. What they find goes to `this_rank`.

What they see, and what not: a step is one of `torch.optim.Optimizer`, compiled or not. Collectives are those issued from Python
(`torch.distributed`, FSDP2); DDP's buckets go through C++ (see `ddp`), functional collectives of compiled graphs and tensor
parallelism too, and show in the flight recorder only, unless the process group is one of ours: C++ then calls its methods in Python.
On a CPU backend `Work.wait` lasts as long as the exchange; on a device it only makes one stream wait for another, so there its time
is not the exposed communication, and the header says so.

Names and identities stay as they were: only methods of `Work`, `ProcessGroup` and the data loader's iterator are replaced, no
function of `torch.distributed` that torch.compile looks up, and torch.compile leaves the frames of the replacements alone.
"""

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from sys import _getframe
from time import monotonic_ns, time_ns
from typing import Any

from ..recording.ring import OPERATIONS, Cell, Instrument, RankPhase
from .call_log import form_of
from .no_compile import left_alone_by_compile
from .rank_recorder import RankRecorder, this_rank
from .signal_handlers import is_of_a_handler

_DATA, _COMMUNICATION, _CHECKPOINT = int(RankPhase.DATA), int(RankPhase.COMMUNICATION), int(RankPhase.CHECKPOINT)
_TRAINING, _PHASE, _PHASE_SINCE_NS = int(RankPhase.TRAINING), int(Cell.PHASE), int(Cell.PHASE_SINCE_NS)
_ON_DATA, _ON_WAITS = int(Instrument.DATA), int(Instrument.WAITS)
_ON_COLLECTIVES, _ON_CHECKPOINT = int(Instrument.COLLECTIVES), int(Instrument.CHECKPOINT)
_BATCHES_TAKEN = int(Cell.BATCHES_TAKEN)
_BLOCKS_ITS_CALLER = "monitored_barrier"
# By whatever name this package was loaded.
OUR_ROOM = f"{__package__.rpartition('.')[0]}.comm."
_watched: set[type] = set()
# Threads inside a call to one of our process groups.
_issuing: set[int] = set()


def count_steps(optimizer_module: Any) -> None:
    """Count steps by torch's own hook for all optimizers."""
    register = getattr(optimizer_module, "register_optimizer_step_post_hook", None)
    if register is None:
        this_rank.lacks(Instrument.STEPS)
        return
    # A compiled `step` reaches its hooks behind a break that torch itself puts there, so this one divides no graph.
    left_alone_by_compile(RankRecorder.after_step)
    register(this_rank.after_step)


def time_data(dataloader_module: Any) -> None:
    """Time what the training thread waits for its next batch."""
    iterator = dataloader_module._BaseDataLoaderIter
    next_batch = iterator.__next__

    # `begin` and `end` of this_rank, spelled out: two calls fewer in every step.
    @functools.wraps(next_batch)
    def __next__(self: Any) -> Any:
        rank = this_rank
        ring = rank.ring
        if ring is None or rank.busy or _ON_DATA in rank.silent or get_ident() != rank.thread:
            return next_batch(self)
        try:
            rank.busy = _DATA
            if rank.preparing:
                rank.batch_is_asked_for(id(self))
            rank.loader = id(self)
            ring.cells[_PHASE] = _DATA
            ring.cells[_PHASE_SINCE_NS] = time_ns()
        except Exception as error:
            rank.drop(_ON_DATA, error)
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
            # Not in a child that was forked meanwhile.
            if rank.ring is ring:
                ring.cells[_PHASE] = _TRAINING

    iterator.__next__ = left_alone_by_compile(__next__)
    _measure_loaders(iterator)


def _measure_loaders(iterator: Any) -> None:
    """Keep how many batches each iterator will give. One over an IterableDataset cannot tell without a mark that makes torch warn."""
    construct = iterator.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        _note_sampler(args[0] if args else kwargs.get("loader"))
        try:
            this_rank.loader_begins(id(self))
            this_rank.loader_lengths[id(self)] = len(self._index_sampler) if self._dataset_kind == 0 else 0
        except Exception as error:
            # A sampler without an end has no length.
            if is_of_a_handler(error):
                raise

    iterator.__init__ = left_alone_by_compile(__init__)
    begin_anew = iterator._reset

    # Of workers that are kept for the next epoch, the iterator is kept, too.
    @functools.wraps(begin_anew)
    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        begin_anew(self, loader, first_iter)
        if not first_iter:
            this_rank.loader_begins(id(self))
            _note_sampler(loader)

    iterator._reset = left_alone_by_compile(_reset)


def _note_sampler(loader: Any) -> None:
    if this_rank.ring is None or Instrument.REPLICA in this_rank.silent:
        return
    try:
        this_rank.note_samplers(this_rank.samplers.begins(loader, this_rank.step_count))
    except Exception as error:
        this_rank.drop(Instrument.REPLICA, error)


def time_torch_save(serialization: Any) -> None:
    serialization.save = _timed_save(serialization.save)


def time_distributed_save(state_dict_saver: Any) -> None:
    """Time `save`, and of `async_save` the part that holds the training up."""
    for name in ("save", "async_save"):
        if hasattr(state_dict_saver, name):
            setattr(state_dict_saver, name, _timed_save(getattr(state_dict_saver, name)))


def time_safetensors(safetensors_torch: Any) -> None:
    for name in ("save_file", "save_model"):
        if hasattr(safetensors_torch, name):
            setattr(safetensors_torch, name, _timed_save(getattr(safetensors_torch, name)))


def watch_collectives() -> None:
    """Count what Python issues to process groups, and time the waits for it."""
    from torch._C import _distributed_c10d as c10d

    _time_waits(c10d.Work)
    _count_calls(c10d.ProcessGroup, in_python=False)


def watch_our_groups(module: Any) -> None:
    """The same for comm's process groups and Works, once `module` has loaded some: their own methods come before the base class's."""
    from torch._C import _distributed_c10d as c10d

    ours = [loaded for name, loaded in tuple(sys.modules.items()) if name.startswith(OUR_ROOM)]
    for member in [member for loaded in (module, *ours) for member in tuple(vars(loaded).values())]:
        if not isinstance(member, type) or not member.__module__.startswith(OUR_ROOM) or member in _watched:
            continue
        if issubclass(member, c10d.ProcessGroup):
            _watched.add(member)
            _count_calls(member, in_python=True)
        elif issubclass(member, c10d.Work) and "wait" in vars(member):
            _watched.add(member)
            _time_waits(member)


def _count_calls(group_class: Any, *, in_python: bool) -> None:
    if Instrument.COLLECTIVES in this_rank.off:
        return
    for operation in OPERATIONS:
        issue = group_class.__dict__.get(operation)
        if issue is not None:
            setattr(group_class, operation, _counted(issue, operation, in_python=in_python))


def _timed_save(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start_ns = this_rank.begin(_CHECKPOINT, _ON_CHECKPOINT)
        if not start_ns:
            return save(*args, **kwargs)
        try:
            return save(*args, **kwargs)
        finally:
            this_rank.saved(this_rank.end(start_ns, _ON_CHECKPOINT))

    return left_alone_by_compile(timed)


def _time_waits(work_class: Any) -> None:
    if Instrument.WAITS in this_rank.off:
        return
    await_work = work_class.wait

    # The name and the single positional argument are looked at by pybind11: where a Python subclass of Work has no `wait` of its
    # own, it recognises by them that it is called from the override and goes on to C++ instead of calling us for ever.
    @functools.wraps(await_work)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = this_rank.begin(_COMMUNICATION, _ON_WAITS)
        if not start_ns:
            return await_work(self, *args, **kwargs)
        try:
            return await_work(self, *args, **kwargs)
        finally:
            this_rank.waited(self, this_rank.end(start_ns, _ON_WAITS))

    work_class.wait = left_alone_by_compile(wait)


def _counted(issue: Callable[..., Any], operation: str, *, in_python: bool) -> Callable[..., Any]:
    """`in_python`: of a group of ours, which C++ calls too. It may carry the exchange out in the call, or one operation by another."""
    form = form_of(operation)
    code = form[0]
    # What comm tells its observer is counted there, whoever issued it.
    told = in_python and form[-1]
    blocks = in_python or operation == _BLOCKS_ITS_CALLER

    @functools.wraps(issue)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        rank = this_rank
        ring = rank.ring
        if ring is None or _ON_COLLECTIVES in rank.silent:
            return issue(self, *args, **kwargs)
        if in_python and (get_ident() in _issuing or rank.calls.is_of_ddp(self, _getframe().f_back)):
            return issue(self, *args, **kwargs)
        count = size_bytes = group = 0
        try:
            size_bytes = _size_bytes(args[0]) if args else 0
            count = rank.collective_count + 1
            if not told:
                rank.collective_count = count
                rank.collective_bytes += size_bytes
            # Before it is issued: a call on which ranks disagree can end the process in here.
            group = rank.calls.note(ring, form, self, args, size_bytes, count)
        except Exception as error:
            rank.drop(_ON_COLLECTIVES, error)
        start_ns = rank.begin(_COMMUNICATION, _ON_WAITS) if blocks else 0
        duration_ns = 0
        if in_python:
            _issuing.add(get_ident())
        try:
            work = issue(self, *args, **kwargs)
        finally:
            if in_python:
                _issuing.discard(get_ident())
            if start_ns:
                duration_ns = rank.end(start_ns, _ON_WAITS)
        if len(rank.pending) > 1024:
            rank.pending.clear()
        what = rank.pending[id(work)] = (code, count, size_bytes, group)
        if start_ns:
            rank.waited(work, duration_ns)
            if in_python:
                # The wait for what was only asked for here is still to come.
                rank.pending[id(work)] = what
        return work

    # As in `wait`: pybind11 compares the name of the code.
    renamed: Any = call
    renamed.__code__ = renamed.__code__.replace(co_name=operation)
    return left_alone_by_compile(call)


def _size_bytes(tensors: Any) -> int:
    """Bytes of a collective's first argument: a tensor, or tensors in lists. A tensor that cannot tell, as a sparse one, has none."""
    if isinstance(tensors, list):
        return _size_bytes(tensors[0]) if len(tensors) == 1 else sum(map(_size_bytes, tensors))
    try:
        size = tensors.nbytes
    except (AttributeError, RuntimeError):
        return 0
    return size if isinstance(size, int) else 0
