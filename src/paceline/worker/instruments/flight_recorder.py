"""Room for torch's flight recorder: the newest exchanges that C++ keeps, which the agent reads through the worker server."""

import os
from typing import Any

from ..instrument import Patch, RankInstrument


class FlightRecorderRoom(RankInstrument):
    """Sets one variable of torch's before the first process group, or says that this torch has no recorder."""

    def patches(self) -> dict[str, Patch]:
        return {"torch.distributed.distributed_c10d": self._prepare}

    def _prepare(self, _: Any) -> None:
        from torch._C import _distributed_c10d as native

        if not (hasattr(native, "_dump_fr_trace_json") or hasattr(native, "_dump_nccl_trace_json")):
            self.rank.lacks(self.name)
        give_room(native)


def give_room(native: Any) -> None:
    """Room before the first group: an older recorder, which may know gloo all the same, has none by itself."""
    of_all, of_nccl = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if of_all not in os.environ and of_nccl not in os.environ:
        os.environ[of_all if hasattr(native, "_dump_fr_trace_json") else of_nccl] = "2000"
