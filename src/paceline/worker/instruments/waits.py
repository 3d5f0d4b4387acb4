"""How long the training waits for what it exchanges.

On a CPU backend `Work.wait` lasts as long as the exchange. On a device it only makes one stream wait for another, so there its time
is not the exposed communication, and the header says so.
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
    """Replaces the method `wait` of `Work`, and of comm's own Works, whose methods come before the base class's."""

    def __init__(self, rank: RankRecorder) -> None:
        super().__init__(rank)
        self._timed: set[type] = set()

    def patches(self) -> dict[str, Patch]:
        return {
            "torch.distributed.distributed_c10d": self._watch_torchs,
            **dict.fromkeys(our_groups.MODULES, self._watch_ours),
        }

    def group_joined(self, group_class: type) -> None:
        # A script may have imported our process group before torch, and with it before anybody could wait for that module.
        if our_groups.is_ours(group_class):
            self._watch_ours()

    def _watch_torchs(self, _: Any) -> None:
        from torch._C import _distributed_c10d as c10d

        time_waits(c10d.Work, self.rank)

    def _watch_ours(self, _: Any = None) -> None:
        from torch._C import _distributed_c10d as c10d

        for work_class in our_groups.loaded_classes(c10d.Work) - self._timed:
            self._timed.add(work_class)
            if "wait" in vars(work_class):
                time_waits(work_class, self.rank)


def time_waits(work_class: Any, rank: RankRecorder) -> None:
    """Time what the training waits for in `work_class.wait`."""
    await_work = work_class.wait

    # The name and the single positional argument are looked at by pybind11: where a Python subclass of Work has no `wait` of its
    # own, it recognises by them that it is called from the override and goes on to C++ instead of calling us for ever.
    @functools.wraps(await_work)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = rank.begin(_COMMUNICATION, "waits")
        if not start_ns:
            return await_work(self, *args, **kwargs)
        try:
            return await_work(self, *args, **kwargs)
        finally:
            rank.waited(self, rank.end(start_ns, "waits"))

    work_class.wait = left_alone_by_compile(wait)
