"""The ranks of one `paceline bench`: the measured group, a second group over gloo in which the ranks agree, and rank 0's answer file."""

import gc
import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from time import perf_counter
from typing import Any, TextIO

from ....backend_names import is_nccl

OUT = "PACELINE_BENCH_OUT"
# Ranks wait in this group while other pairs are measured. If a rank dies, its agent notices, and so do the peers of its connections.
_CONTROL_TIMEOUT = timedelta(minutes=30)
_LEAST_ITERATIONS = 3


class BenchRefused(Exception):
    """This torch, this backend or these ranks cannot measure what was asked. `kind` is "backend", "ranks" or "call"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class BenchAnswers:
    """The file that the command line follows: one JSON object per line. Only rank 0 opens and writes it."""

    def __init__(self, rank: int) -> None:
        path = os.environ.get(OUT)
        if rank == 0 and not path:
            raise SystemExit(f"{OUT} names no file: this program is started by `paceline bench`")
        self._file: TextIO | None = None
        if rank == 0 and path:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the ranks measure

    def say(self, **record: Any) -> None:
        """Write one line immediately."""
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class BenchGroup:
    """The joined ranks. Every method is collective: all ranks call it together."""

    def __init__(self, device: Any) -> None:
        import torch.distributed as dist

        self.rank, self.ranks, self.device = dist.get_rank(), dist.get_world_size(), device
        self.backend = str(dist.get_backend())
        # CPU tensors for any measured backend, and connections that the measured group does not use.
        self._control = dist.new_group(backend="gloo", timeout=_CONTROL_TIMEOUT)

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier(group=self._control)

    def most(self, value: float) -> float:
        """The maximum of the ranks' values; every rank gets it."""
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._control)
        return float(tensor.item())

    def table(self, own: Sequence[float]) -> list[list[float]]:
        """Every rank's numbers, in the order of ranks. All ranks must give equally many numbers."""
        import torch
        import torch.distributed as dist

        mine = torch.tensor(list(own), dtype=torch.float64)
        parts = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(parts, mine, group=self._control)
        return [part.tolist() for part in parts]

    def all_objects(self, own: Any) -> list[Any]:
        """Every rank's object, in the order of ranks."""
        import torch.distributed as dist

        found: list[Any] = [None] * self.ranks
        dist.all_gather_object(found, own, group=self._control)
        return found

    def settle(self) -> None:
        """Wait until the device has finished its queued work."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def iterations(self, call: Any, warmup: int, wanted: int, seconds: float) -> int:
        """Choose the number of iterations: call `warmup` times, then time one call after a barrier. The result is at most `wanted`,

        as many as fit into `seconds`, and at least 3.
        """
        for _ in range(warmup):
            call()
        self.settle()
        self.barrier()
        began = perf_counter()
        call()
        self.settle()
        once = self.most(perf_counter() - began)
        return fitting(wanted, once, seconds)

    def times(self, call: Any, iterations: int, aggregate: int = 1) -> list[float]:
        """Seconds of one operation in each iteration. The iterations follow each other without a pause, as in nccl-tests."""
        self.settle()
        gc.collect()
        gc.disable()
        self.barrier()
        try:
            if self.device.type == "cuda":
                return self._cuda_times(call, iterations, aggregate)
            marks = [perf_counter()]
            for _ in range(iterations):
                for _ in range(aggregate):
                    call()
                marks.append(perf_counter())
        finally:
            gc.enable()
        return [(after - before) / aggregate for before, after in pairwise(marks)]

    def _cuda_times(self, call: Any, iterations: int, aggregate: int) -> list[float]:
        """Time with events between the operations, so that nothing waits for the host between two operations."""
        import torch

        event: Any = torch.cuda.Event
        events = [event(enable_timing=True) for _ in range(iterations + 1)]
        began = perf_counter()
        events[0].record()
        for mark in events[1:]:
            for _ in range(aggregate):
                call()
            mark.record()
        torch.cuda.synchronize(self.device)
        whole = perf_counter() - began
        pieces = [before.elapsed_time(after) / 1e3 / aggregate for before, after in pairwise(events)]
        # A backend that works on the host (staged through CPU memory) leaves no work on the stream.
        staged = sum(pieces) * aggregate < 0.5 * whole
        return [whole / iterations / aggregate] * iterations if staged else pieces


def fitting(wanted: int, once: float, seconds: float) -> int:
    """Iterations of `once` seconds that fit into `seconds`: at most `wanted`, at least 3 (or `wanted`, if `wanted` is smaller).

    Holds:   fitting(20, 1.0, 10.0) == 10; fitting(20, 60.0, 10.0) == 3; fitting(2, 60.0, 10.0) == 2
    """
    return max(min(wanted, _LEAST_ITERATIONS), min(wanted, int(seconds / once) if once > 0 else wanted))


def leave(group: BenchGroup | None) -> None:
    """Leave the joined groups; all ranks leave together if all of them joined."""
    import torch.distributed as dist

    if group is not None:
        group.barrier()
    if dist.is_initialized():
        dist.destroy_process_group()


def join(asked: Mapping[str, Any]) -> BenchGroup:
    """Join the ranks over the backend that was asked for.

    Raises:  BenchRefused: this torch does not have the backend, the backend does not start here, or there is only one rank
    """
    import torch
    import torch.distributed as dist

    local, each = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if int(os.environ["WORLD_SIZE"]) < 2:
        raise BenchRefused("ranks", "one rank has no other rank to exchange with")
    name = asked.get("backend")
    if name is not None and not _is_known(name, dist.Backend):
        raise BenchRefused("backend", f"this torch knows {', '.join(one for one in dist.Backend.backend_list[1:])}")
    device = _device(asked.get("device"), name, local, each)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    name = name or ("nccl" if device.type == "cuda" else "gloo")
    try:
        dist.init_process_group(name, timeout=timedelta(seconds=float(asked["timeout_seconds"])))
        return BenchGroup(device)
    except (RuntimeError, ValueError, ImportError) as error:
        raise BenchRefused("backend", one_line(error)) from error


def _is_known(name: str, backends: Any) -> bool:
    """Whether torch has the backend. From torch 2.14 on most are found by their entry points, and then only when one is asked for."""
    if find := getattr(backends, "_ensure_backend_registered", None):
        try:
            find(name)
        except (ImportError, RuntimeError, TypeError) as error:
            raise BenchRefused("backend", one_line(error)) from error
    return name.lower() in backends.backend_list


def _device(asked: str | None, backend: str | None, local: int, each: int) -> Any:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "cuda" and (count == 0 or (count < each and (backend is None or is_nccl(backend)))):
        raise BenchRefused("backend", f"NCCL needs one GPU for each of {each} ranks of a host; torch sees {count}")
    on_cuda = asked == "cuda" or (asked is None and count >= each and backend not in ("gloo", "mpi", "paceline_mpi"))
    # Over gloo, several ranks may use the same device.
    return torch.device("cuda", local % count) if on_cuda else torch.device("cpu")


def describe(group: BenchGroup) -> dict[str, Any]:
    """The description of the world that the command line reads."""
    import torch

    bus, name, index = "cpu", platform.machine(), -1
    if group.device.type == "cuda":
        properties = torch.cuda.get_device_properties(group.device)
        place = [getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
        bus, name, index = f"{place[0]:04x}:{place[1]:02x}:{place[2]:02x}", properties.name, group.device.index
    machine = socket.gethostname()
    mine = {
        "rank": group.rank,
        "hostname": os.environ.get("PACELINE_HOST") or machine,
        "machine": machine,
        "pid": os.getpid(),
        "device": index,
        "device_hex": bus,
        "device_info": name,
    }
    return {
        "ranks": group.all_objects(mine),
        "backend": group.backend,
        "device": group.device.type,
        "torch": torch.__version__,
    }


def one_line(error: BaseException) -> str:
    """The error as one line of at most 400 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]
