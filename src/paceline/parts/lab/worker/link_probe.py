"""Times all-reduces among the ranks of a job, into a file: `paceline run ... -m paceline.parts.lab.worker.link_probe --out FILE`.

Each size is timed several times with a barrier in front, the slowest rank counts, and of the repetitions the median. With several
hosts of several ranks, the ranks of one host and one rank of each host are timed among themselves as well.
"""

import argparse
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from ....atomic_write import write_whole

KIB = 1024
SMALLEST, LARGEST = 4 * KIB, 64 * KIB * KIB
WARMUP, REPETITIONS = 2, 25
# Seconds for the repetitions of one size: on a slow network, a large size gets fewer repetitions.
SECONDS_PER_SIZE = 1.0
TIMEOUT = timedelta(seconds=120)


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Powers of two between the two numbers, which are included if they are powers of two.

    Holds:   sizes_between(4096, 16384) == [4096, 8192, 16384]
    """
    found, size = [], smallest
    while size <= largest:
        found.append(size)
        size *= 2
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure on all ranks, and write the file on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--smallest", type=int, default=SMALLEST)
    parser.add_argument("--largest", type=int, default=LARGEST)
    parser.add_argument("--backend", default=None)
    args = parser.parse_args(words)

    import torch
    import torch.distributed as dist

    local, each, world = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= each and args.backend != "gloo"
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend or ("nccl" if on_gpu else "gloo"), timeout=TIMEOUT)
    sizes = sizes_between(args.smallest, args.largest)
    points = curve(sizes, device, None)
    several = parts(sizes, device, world, each) if each > 1 and world > each else {}
    found = curve_document(world // each, world, dist.get_backend(), points, several)
    if dist.get_rank() == 0:
        write_whole(Path(args.out), json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def curve_document(
    hosts: int, ranks: int, backend: str, points: Sequence[Sequence[float]], several: dict[str, Any]
) -> dict[str, Any]:
    """The content of curve.json. `several`: what `parts` gives if there are several hosts of several ranks."""
    return {
        "schema": "paceline.curve/1",
        "hosts": hosts,
        "ranks": ranks,
        "backend": backend,
        "points": points,
        **several,
    }


def parts(sizes: Sequence[int], device: Any, world: int, each: int) -> dict[str, Any]:
    """The curves inside the first host and among the first ranks of all hosts. Every rank creates both groups."""
    import torch.distributed as dist

    inside = [dist.new_group(list(range(first, first + each))) for first in range(0, world, each)]
    between = dist.new_group(list(range(0, world, each)))
    rank, found = dist.get_rank(), {}
    if rank < each:
        found["within"] = {"ranks": each, "points": curve(sizes, device, inside[0])}
    dist.barrier()
    if rank % each == 0:
        found["among"] = {"ranks": world // each, "points": curve(sizes, device, between)}
    dist.barrier()
    return found


def curve(sizes: Sequence[int], device: Any, group: Any) -> list[list[float]]:
    """[bytes, seconds] for each size."""
    return [[size, seconds_of(size, device, group)] for size in sizes]


def seconds_of(size: int, device: Any, group: Any) -> float:
    """Median over the repetitions of the slowest rank's time."""
    import torch
    import torch.distributed as dist

    buffer = torch.zeros(max(size // 4, 1), dtype=torch.float32, device=device)
    for _ in range(WARMUP):
        dist.all_reduce(buffer, group=group)
    times, left, spent = [], REPETITIONS, 0.0
    while left > 0:
        slowest = torch.tensor([once(buffer, device, group)], dtype=torch.float64, device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
        # Every rank has the same number now, so all ranks stop after the same repetition.
        times.append(slowest.item())
        spent += times[-1]
        left = left - 1 if spent < SECONDS_PER_SIZE else 0
    return median(times)


def once(buffer: Any, device: Any, group: Any) -> float:
    """Seconds of one all-reduce, from a barrier until the result is there."""
    import torch
    import torch.distributed as dist

    dist.barrier(group=group)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = perf_counter()
    dist.all_reduce(buffer, group=group)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())
