"""One rank of a group that loses one: run_lost_rank.py BACKEND STORE_PORT RANK SIZE HOST OUT HOW END

HOW is what the ranks exchange over and over; at its 20th turn the last rank ends as END says. The others leave the words of the error,
when it came (CLOCK_MONOTONIC, one for the machine), and what later calls did.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from paceline.parts.comm import backends


def exchanges(how: str):
    large, small = torch.ones(1_000_000), torch.ones(100)
    model = DDP(torch.nn.Sequential(*[torch.nn.Linear(500, 500) for _ in range(4)])) if how == "ddp" else None

    def in_flight():
        for work in [dist.all_reduce(large, async_op=True) for _ in range(4)]:
            work.wait()

    return {
        "large": lambda: dist.all_reduce(large),
        "small": lambda: dist.all_reduce(small),
        "in_flight": in_flight,
        "ddp": lambda: model(torch.ones(4, 500)).sum().backward(),
    }[how]


def end(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("a bug in the script of one rank")


def main() -> None:
    backend, port, rank, size, host, out, how, ending = sys.argv[1:]
    torch.set_num_threads(1)
    backends.register(lambda: host)
    store = dist.TCPStore("127.0.0.1", int(port))
    dist.init_process_group(backend, store=store, rank=int(rank), world_size=int(size), timeout=timedelta(seconds=90))
    exchange, turn = exchanges(how), 0
    try:
        while True:
            turn += 1
            if turn == 20 and int(rank) == int(size) - 1:
                Path(out).write_text(json.dumps({"at": time.monotonic()}))
                end(ending)
            exchange()
    except (RuntimeError, dist.DistBackendError) as error:
        left = {"at": time.monotonic(), "error": str(error), "kind": type(error).__name__, "later": []}
    for later in (lambda: dist.all_reduce(torch.ones(3)), lambda: dist.all_reduce(torch.ones(1_000_000)), dist.barrier):
        try:
            later()
            left["later"].append("worked")
        except dist.DistBackendError as error:
            left["later"].append(str(error))
    left["took"] = time.monotonic() - left["at"]
    dist.destroy_process_group()
    Path(out).write_text(json.dumps(left))


if __name__ == "__main__":
    main()
