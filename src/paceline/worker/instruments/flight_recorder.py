"""Gives torch's flight recorder a buffer: it keeps the newest collectives in C++, and the agent reads them through the worker server."""

import ctypes
import os
from typing import Any

from ...backend_names import FINISHED_ENTRIES
from ..instrument import Patch, RankInstrument


class FlightRecorderRoom(RankInstrument):
    """Sets one environment variable of torch before the first process group, or notes that this torch has no recorder."""

    def patches(self) -> dict[str, Patch]:
        return {"torch.distributed.distributed_c10d": self._prepare}

    def _prepare(self, _: Any) -> None:
        from torch._C import _distributed_c10d as native

        if not (hasattr(native, "_dump_fr_trace_json") or hasattr(native, "_dump_nccl_trace_json")):
            self.rank.lacks(self.name)
        give_room(native)
        offer_finished_entries(native)


def offer_finished_entries(native: Any) -> None:
    """Answer with the finished entries of a recorder too, where torch's own question leaves them out: since 2.15."""
    if not (hasattr(native, "_dump_fr_trace_file") and hasattr(native, "_register_handler")):
        return

    def answer(request: Any, response: Any) -> None:
        response.set_content(native._dump_fr_trace_json(True, False, request.get_param("backend")), "application/json")

    # torch lets go of the function when the interpreter is gone: it must be nobody's last reference.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(answer))
    native._register_handler(FINISHED_ENTRIES, answer)


def give_room(native: Any) -> None:
    """Set the buffer size before the first group. An older recorder has no buffer by default, even if it can record gloo."""
    of_all, of_nccl = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if of_all not in os.environ and of_nccl not in os.environ:
        os.environ[of_all if hasattr(native, "_dump_fr_trace_json") else of_nccl] = "2000"
