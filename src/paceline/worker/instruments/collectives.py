"""Counts the collectives that Python issues to process groups, and records each one before it is issued.

This instrument sees the collectives of `torch.distributed` and FSDP2. It does not see calls that go through C++: DDP's buckets (see
ddp.py), functional collectives of compiled graphs, tensor parallelism. The flight recorder shows those. If the process group is one of
comm's, C++ calls the group's methods in Python, so this instrument sees those calls too.

Names and identities do not change: only methods of `ProcessGroup` are replaced, and no function of `torch.distributed` that
torch.compile looks up.
"""

import functools
from _thread import get_ident
from collections.abc import Callable
from sys import _getframe
from typing import Any

from ...recording.ring import OPERATIONS, RankPhase
from .. import our_groups
from ..call_log import form_of
from ..instrument import Patch, RankInstrument
from ..no_compile import left_alone_by_compile
from ..rank_recorder import RankRecorder

_COMMUNICATION = int(RankPhase.COMMUNICATION)
_BLOCKS_ITS_CALLER = "monitored_barrier"
# Threads inside a call to one of our process groups.
_issuing: set[int] = set()


class CollectiveCounter(RankInstrument):
    """Replaces the methods of `ProcessGroup`, and of comm's own groups, whose methods precede those of the base class."""

    def __init__(self, rank: RankRecorder) -> None:
        super().__init__(rank)
        self._counted: set[type] = set()

    def patches(self) -> dict[str, Patch]:
        return {
            "torch.distributed.distributed_c10d": self._watch_torchs,
            **dict.fromkeys(our_groups.MODULES, self._watch_ours),
        }

    def group_joined(self, group_class: type) -> None:
        # A script may have imported comm's process group before torch, so before this instrument could wait for that module.
        if our_groups.is_ours(group_class):
            self._watch_ours()

    def _watch_torchs(self, _: Any) -> None:
        from torch._C import _distributed_c10d as c10d

        count_calls(c10d.ProcessGroup, self.rank, in_python=False)

    def _watch_ours(self, _: Any = None) -> None:
        from torch._C import _distributed_c10d as c10d

        for group_class in our_groups.loaded_classes(c10d.ProcessGroup) - self._counted:
            self._counted.add(group_class)
            count_calls(group_class, self.rank, in_python=True)


def count_calls(group_class: Any, rank: RankRecorder, *, in_python: bool) -> None:
    """Replace every operation that the class itself defines. `in_python`: as for `_counted`."""
    for operation in OPERATIONS:
        issue = group_class.__dict__.get(operation)
        if issue is not None:
            setattr(group_class, operation, _counted(issue, operation, rank, in_python=in_python))


def _counted(issue: Callable[..., Any], operation: str, rank: RankRecorder, *, in_python: bool) -> Callable[..., Any]:
    """`in_python`: the group is one of comm's, whose methods C++ calls too. A method may exchange itself, or call another operation."""
    form = form_of(operation)
    code = form[0]
    # comm reports its exchanges to the observer, which counts them, whoever issued them.
    told = in_python and form[-1]
    blocks = in_python or operation == _BLOCKS_ITS_CALLER

    @functools.wraps(issue)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        ring = rank.ring
        if ring is None or "collectives" in rank.silent:
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
            # Record the call before it is issued: if ranks disagree on a call, it can end the process.
            group = rank.calls.note(ring, form, self, args, size_bytes, count)
        except Exception as error:
            rank.drop("collectives", error)
        start_ns = rank.begin(_COMMUNICATION, "waits") if blocks else 0
        duration_ns = 0
        if in_python:
            _issuing.add(get_ident())
        try:
            work = issue(self, *args, **kwargs)
        finally:
            if in_python:
                _issuing.discard(get_ident())
            if start_ns:
                duration_ns = rank.end(start_ns, "waits")
        if len(rank.pending) > 1024:
            rank.pending.clear()
        what = rank.pending[id(work)] = (code, count, size_bytes, group)
        if start_ns:
            rank.waited(work, duration_ns)
            if in_python:
                # This call was only issued; its wait follows later.
                rank.pending[id(work)] = what
        return work

    # As in `wait`: pybind11 compares the name of the code object.
    renamed: Any = call
    renamed.__code__ = renamed.__code__.replace(co_name=operation)
    return left_alone_by_compile(call)


def _size_bytes(tensors: Any) -> int:
    """Bytes of a collective's first argument: a tensor, or tensors in lists. A tensor without a size in bytes, such as sparse, counts 0."""
    if isinstance(tensors, list):
        return _size_bytes(tensors[0]) if len(tensors) == 1 else sum(map(_size_bytes, tensors))
    try:
        size = tensors.nbytes
    except (AttributeError, RuntimeError):
        return 0
    return size if isinstance(size, int) else 0
