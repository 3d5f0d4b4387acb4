"""Times how long the training waits for its collectives.

On a CPU backend `Work.wait` lasts as long as the exchange. On a device `Work.wait` only makes one stream wait for another, so its
duration is not the exposed communication, and the header of the ring says so.
"""

import functools
from typing import Any

from ...recording.ring import RankPhase
from .. import our_groups
from ..instrument import Patch, RankInstrument
from ..no_compile import left_alone_by_compile
from ..rank_recorder import RankRecorder

_COMMUNICATION = int(RankPhase.COMMUNICATION)


class WaitTimer(RankInstrument):
    """Replaces `wait` of `Work`, and of comm's own Work classes, whose methods precede those of the base class; and DDP's own wait."""

    def __init__(self, rank: RankRecorder) -> None:
        super().__init__(rank)
        self._timed: set[type] = set()

    def patches(self) -> dict[str, Patch]:
        return {
            "torch.distributed.distributed_c10d": self._watch_torchs,
            "torch.nn.parallel.distributed": self._watch_ddp,
            **dict.fromkeys(our_groups.MODULES, self._watch_ours),
        }

    def group_joined(self, group_class: type) -> None:
        # A script may have imported comm's process group before torch, so before this instrument could wait for that module.
        if our_groups.is_ours(group_class):
            self._watch_ours()

    def _watch_torchs(self, _: Any) -> None:
        from torch._C import _distributed_c10d as c10d

        time_waits(c10d.Work, self.rank)

    def _watch_ddp(self, parallel: Any) -> None:
        # Since torch 2.15 a backward pass may return while its exchange is on the way, and this is where the script waits for it.
        if hasattr(parallel.DistributedDataParallel, "finalize_backward"):
            time_waits(parallel.DistributedDataParallel, self.rank, "finalize_backward")

    def _watch_ours(self, _: Any = None) -> None:
        from torch._C import _distributed_c10d as c10d

        for work_class in our_groups.loaded_classes(c10d.Work) - self._timed:
            self._timed.add(work_class)
            if "wait" in vars(work_class):
                time_waits(work_class, self.rank)


def time_waits(owner: Any, rank: RankRecorder, method: str = "wait") -> None:
    """Time the training thread's waits in this method of a class."""
    await_work = getattr(owner, method)

    # pybind11 looks at the name and the single positional argument. If a Python subclass of Work has no `wait` of its own, pybind11
    # recognises by them a call from the override, and continues in C++ instead of calling this function without end.
    @functools.wraps(await_work)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = rank.begin(_COMMUNICATION, "waits")
        if not start_ns:
            return await_work(self, *args, **kwargs)
        try:
            return await_work(self, *args, **kwargs)
        finally:
            rank.waited(self, rank.end(start_ns, "waits"))

    setattr(owner, method, left_alone_by_compile(wait))
