"""One rank of bench/exchange_host.py, which starts it: PORT SIZE OPTIONS, the last as JSON; its rank from --rank or from mpirun.

Rank 0 prints one line of JSON for each size: {"what": "bare" or "DDP", "bytes", "seconds": {contender: [of each round]}}.
"""

import argparse
import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parts.comm.backends import register
from paceline.parts.comm.transports.shared_memory.transport import SharedMemory

TIMEOUT = timedelta(minutes=5)
# What a contender's buffers amount to, so that none comes from a cache: a gradient was last touched a whole step ago.
COLD_BYTES = 96 << 20
MOST_BUFFERS = 64
ROUND_SECONDS = 0.02
LAYERS = 8
BATCH = 4

Exchange = Callable[[torch.Tensor], object]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("options", type=json.loads)
    parser.add_argument("--rank", type=int, default=int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.options["pin"]:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[arguments.rank % len(cores)]})
    store = dist.TCPStore("127.0.0.1", arguments.port, arguments.size, arguments.rank == 0, TIMEOUT)
    dist.init_process_group("gloo", store=store, rank=arguments.rank, world_size=arguments.size, timeout=TIMEOUT)
    register(lambda: "this host")
    memory = SharedMemory(
        dist.PrefixStore("bench", store), arguments.rank, arguments.size, timeout_seconds=TIMEOUT.total_seconds()
    )
    paceline = dist.new_group(backend="paceline")
    for size_bytes in arguments.options["sizes"]:
        bare(memory, paceline, size_bytes, arguments.options)
    for size_bytes in arguments.options["ddp_sizes"]:
        inside_ddp(paceline, size_bytes, arguments.options)
    dist.destroy_process_group()
    return 0


# -- bare


def bare(memory: SharedMemory, paceline: Any, size_bytes: int, options: dict[str, Any]) -> None:
    """Rounds of each contender, in another order each time, the same on all ranks."""
    exchanges: dict[str, Exchange] = {
        "gloo": dist.all_reduce,
        "shared memory": lambda tensor: memory.all_reduce(tensor, "sum"),
        "paceline": lambda tensor: dist.all_reduce(tensor, group=paceline),
        "paceline, asynchronous": lambda tensor: dist.all_reduce(tensor, group=paceline, async_op=True).wait(),
        **mpi(),
        **deepspeed(),
    }
    exchanges = {name: exchange for name, exchange in exchanges.items() if name not in options["without"]}
    count = 1 if options["same_buffer"] else max(2, min(MOST_BUFFERS, COLD_BYTES // size_bytes))
    buffers = [torch.zeros(size_bytes // 4).fill_(0.0) for _ in range(count)]
    beside = [torch.ones(size_bytes // 4) for _ in range(count)]
    number = 0

    def copy(tensor: torch.Tensor) -> None:
        beside[number % count].copy_(tensor)

    contenders = {"copy": copy, **exchanges}
    times = {
        name: how_often(exchange, buffers[0], timed=name != "copy", memory=memory)
        for name, exchange in contenders.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(options["rounds"]):
        for name in random.Random(turn).sample(sorted(contenders), len(contenders)):
            exchange = contenders[name]
            memory.all_reduce(torch.zeros(1), "sum")
            exchange(buffers[number % count])
            memory.all_reduce(torch.zeros(1), "sum")
            began = time.perf_counter()
            for _ in range(times[name]):
                number += 1
                exchange(buffers[number % count])
            seconds[name].append((time.perf_counter() - began) / times[name])
    say("bare", size_bytes, seconds)


def mpi() -> dict[str, Exchange]:
    """OpenMPI through mpi4py, where mpirun started this rank."""
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return {}
    from mpi4py import MPI

    return {"OpenMPI": lambda tensor: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, tensor)}


def deepspeed() -> dict[str, Exchange]:
    """DeepSpeed's shared memory collective for inference, a C++ extension that it builds at its first use; its waiting never sleeps."""
    if importlib.util.find_spec("deepspeed") is None or dist.get_world_size() > (os.cpu_count() or 1):
        return {}
    from deepspeed.ops.op_builder import ShareMemCommBuilder

    os.environ.setdefault("LOCAL_SIZE", str(dist.get_world_size()))
    ShareMemCommBuilder().load(verbose=False).initialize(dist.get_world_size(), dist.get_rank())
    return {"DeepSpeed": torch.ops.deepspeed.inference_all_reduce_}


def how_often(exchange: Exchange, buffer: torch.Tensor, *, timed: bool, memory: SharedMemory) -> int:
    """Calls a round: as many as the slowest rank does in the time of a round, the same on all ranks."""
    longest = 0.0
    for _ in range(3):
        began = time.perf_counter()
        exchange(buffer)
        longest = time.perf_counter() - began
    agreed = torch.tensor([longest])
    memory.all_reduce(agreed, "max")
    return max(1, min(200, int(ROUND_SECONDS / agreed.item())))


# -- inside the backward of DistributedDataParallel


def inside_ddp(paceline: Any, size_bytes: int, options: dict[str, Any]) -> None:
    """Steps of one model under DDP, over each backend and with a hook that exchanges nothing; that much in gradients, in
    torch's buckets.
    """
    width = max(8, int((size_bytes / 4 / LAYERS) ** 0.5))
    alone = DistributedDataParallel(layers(width))
    alone.register_comm_hook(None, unexchanged)
    plain = DistributedDataParallel(layers(width))
    ours = DistributedDataParallel(layers(width), process_group=paceline)
    batch = torch.randn(BATCH, width)

    contenders: dict[str, Exchange] = {
        "no exchange": lambda _: alone(batch).sum().backward(),
        "gloo": lambda _: plain(batch).sum().backward(),
        "paceline": lambda _: ours(batch).sum().backward(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    nothing = torch.zeros(1)
    for turn in range(options["rounds"] + 1):
        for name in random.Random(turn).sample(sorted(contenders), len(contenders)):
            contenders[name](nothing)
            dist.barrier()
            began = time.perf_counter()
            for _ in range(options["steps"]):
                contenders[name](nothing)
            # The first round fills what DDP rebuilds after its first backward.
            if turn:
                seconds[name].append((time.perf_counter() - began) / options["steps"])
    say("DDP", LAYERS * (width * width + width) * 4, seconds)


def unexchanged(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook of DDP after which all that DDP does by itself is done, and nothing else."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def layers(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))


def say(what: str, size_bytes: int, seconds: dict[str, list[float]]) -> None:
    """Of each round the slowest rank's time."""
    slowest = {}
    for name, values in seconds.items():
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        slowest[name] = tensor.tolist()
    if dist.get_rank() == 0:
        print(json.dumps({"what": what, "bytes": size_bytes, "seconds": slowest}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
