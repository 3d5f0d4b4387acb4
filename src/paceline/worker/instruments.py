"""The patches that count steps and collectives and time data, waits and checkpoints. What they find goes to `this_rank`.

What they see, and what not: a step is one of `torch.optim.Optimizer`, compiled or not. Collectives are
those issued from Python (`torch.distributed`, FSDP2); DDP's buckets go through C++ (see `ddp`), functional collectives of compiled
graphs and tensor parallelism too, and show in the flight recorder only. On a CPU backend `Work.wait` lasts as long as the exchange;
on a device it only makes one stream wait for another, so there its time is not the exposed communication, and the header says so.

Names and identities stay as they were: only methods of `Work`, `ProcessGroup` and the data loader's iterator are replaced, no
function of `torch.distributed` that torch.compile looks up, and torch.compile leaves the frames of the replacements alone.
"""

import functools
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Any

from ..recording.ring import OPERATIONS, Cell, Instrument, Phase
from .quiet_frames import left_alone_by_compile
from .this_rank import ThisRank, this_rank

_DATA, _COMMUNICATION, _CHECKPOINT = int(Phase.DATA), int(Phase.COMMUNICATION), int(Phase.CHECKPOINT)
_TRAINING, _PHASE, _PHASE_SINCE_NS = int(Phase.TRAINING), int(Cell.PHASE), int(Cell.PHASE_SINCE_NS)
_ON_DATA, _ON_WAITS = int(Instrument.DATA), int(Instrument.WAITS)
_ON_COLLECTIVES, _ON_CHECKPOINT = int(Instrument.COLLECTIVES), int(Instrument.CHECKPOINT)
_BLOCKS_ITS_CALLER = "monitored_barrier"


def count_steps(optimizer_module: Any) -> None:
    """Count steps by torch's own hook for all optimizers."""
    register = getattr(optimizer_module, "register_optimizer_step_post_hook", None)
    if register is None:
        this_rank.lacks(Instrument.STEPS)
        return
    # A compiled `step` reaches its hooks behind a break that torch itself puts there, so this one divides no graph.
    left_alone_by_compile(ThisRank.after_step)
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
            if not rank.step_count and not rank.data_ns:
                rank.first_step_begins()
            ring.cells[_PHASE] = _DATA
            ring.cells[_PHASE_SINCE_NS] = time_ns()
        except Exception as error:
            rank.drop(_ON_DATA, error)
        start_ns = monotonic_ns()
        try:
            return next_batch(self)
        finally:
            rank.data_ns += monotonic_ns() - start_ns
            rank.busy = 0
            # Not in a child that was forked meanwhile.
            if rank.ring is ring:
                ring.cells[_PHASE] = _TRAINING

    iterator.__next__ = left_alone_by_compile(__next__)


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
    for code, operation in enumerate(OPERATIONS):
        issue = c10d.ProcessGroup.__dict__.get(operation)
        if issue is not None:
            setattr(c10d.ProcessGroup, operation, _counted(issue, operation, code))


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


def _counted(issue: Callable[..., Any], operation: str, code: int) -> Callable[..., Any]:
    @functools.wraps(issue)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if this_rank.ring is None or _ON_COLLECTIVES in this_rank.silent:
            return issue(self, *args, **kwargs)
        start_ns = this_rank.begin(_COMMUNICATION, _ON_WAITS) if operation == _BLOCKS_ITS_CALLER else 0
        duration_ns = 0
        try:
            work = issue(self, *args, **kwargs)
        finally:
            if start_ns:
                duration_ns = this_rank.end(start_ns, _ON_WAITS)
        try:
            this_rank.collective_count = count = this_rank.collective_count + 1
            size_bytes = _size_bytes(args[0]) if args else 0
            this_rank.collective_bytes += size_bytes
            if len(this_rank.pending) > 1024:
                this_rank.pending.clear()
            this_rank.pending[id(work)] = (
                code,
                count,
                size_bytes,
                this_rank.groups.get(id(self)) or this_rank.number_of(self),
            )
        except Exception as error:
            this_rank.drop(_ON_COLLECTIVES, error)
        if start_ns:
            this_rank.waited(work, duration_ns)
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
