"""Trains a little and says everything that it can see of the process it runs in."""

import atexit
import gc
import inspect
import json
import os
import pickle
import random
import signal
import sys
import threading
import tracemalloc
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Shorter(IterableDataset):
    """Gives more than it promises, which torch warns of where the batches are taken."""

    def __repr__(self) -> str:
        return "Shorter()"

    def __len__(self) -> int:
        return 1

    def __iter__(self):
        yield from torch.arange(12.0).view(3, 4)


class Warns(dict):
    """Warns of who saves it."""

    def __reduce__(self):
        warnings.warn("saved", stacklevel=2)
        return dict, ()


def numbers_after() -> dict:
    return {"random": random.random(), "torch": torch.rand(1).item(), "seed": torch.initial_seed()}


def descriptors() -> list[bool]:
    """Of each descriptor that a program started now would inherit."""
    return [os.get_inheritable(int(name)) for name in os.listdir("/proc/self/fd") if is_open(int(name))].count(True)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


random.seed(1)
torch.manual_seed(1)
hook, exits = sys.excepthook, []
atexit.register(exits.append, "first")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.init_process_group("gloo", timeout=timedelta(seconds=77), store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(4, 2), check_reduction=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(Shorter(), batch_size=1, pin_memory=True)
    promised = len(loader)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    loss = torch.ones(3)
    dist.all_reduce(loss)
    dist.all_reduce(loss, async_op=True).wait()
    torch.save(Warns(), os.devnull)
    torch.distributed.reduce_op  # noqa: B018 - deprecated, so it warns

replaced = (dist.init_process_group, DistributedDataParallel.__init__, torch.save, dist.all_reduce, sys.exit)
group = dist.distributed_c10d._get_default_group()
print(
    json.dumps(
        {
            "argv": sys.argv[1:],
            "warnings": [
                [str(w.message)[:60], w.category.__name__, os.path.basename(w.filename), w.lineno] for w in caught
            ],
            "numbers": numbers_after(),
            "weights": [p.sum().item() for p in model.parameters()],
            "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
            "inherited descriptors": descriptors(),
            "threads": [thread.name for thread in threading.enumerate()],
            "options": str(group._get_backend(torch.device("cpu")).options._timeout),
            "signatures": [str(inspect.signature(function)) for function in replaced],
            "names": [f"{function.__module__}.{function.__qualname__}" for function in replaced],
            "pickled": [
                pickle.loads(pickle.dumps(f)) is f for f in (dist.init_process_group, torch.save, dist.all_reduce)
            ],
            "own excepthook": sys.__excepthook__ is not None and callable(hook),
            "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.callbacks],
            "traced": [tracemalloc.is_tracing(), sys.gettrace(), sys.getprofile(), threading.gettrace()],
            "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
            "filters": len(warnings.filters),
            "path": [entry for entry in sys.path if "paceline" in entry],
            "directory": os.getcwd(),
            "umask": os.umask(0o022),
            "modules": [name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy", "random")],
            "streams": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
            "default dtype": str(torch.get_default_dtype()),
            "deterministic": [torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()],
        }
    )
)
dist.destroy_process_group()
atexit.register(lambda: print(exits, flush=True))
