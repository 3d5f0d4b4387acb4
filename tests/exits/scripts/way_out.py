"""What the scripts beside this file share: a little training, and files that show which of their last steps were made."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Long enough that every stage is asked several times where the machine is not full.
STAGE_SECONDS = 0.2
_STAGES = os.open(f"{sys.argv[1]}/stages-{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_ASKED = f"{sys.argv[1]}/asked-{os.getpid()}"
_LONGEST_WAIT_SECONDS = 20.0


def stage(name: str) -> None:
    """One step of the way out: it lasts a moment, at least until somebody has asked in it, and then leaves a line."""
    began_ns = time.time_ns()
    time.sleep(STAGE_SECONDS)
    give_up = time.monotonic() + _LONGEST_WAIT_SECONDS
    while time.monotonic() < give_up and not _asked_since(began_ns):
        time.sleep(0.01)
    os.write(_STAGES, f"{name} {began_ns} {time.time_ns()}\n".encode())


def _asked_since(began_ns: int) -> bool:
    # In an interpreter that ends, `open` and `sys.argv` may be gone.
    try:
        return os.stat(_ASKED).st_mtime_ns >= began_ns
    except FileNotFoundError:
        return False


def last_stage(name: str) -> None:
    """A stage that no rank leaves before all are through it: the first rank that fails ends the others, wherever they are."""
    stage(name)
    files = [Path(sys.argv[1], f"stages-{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))]
    give_up = time.monotonic() + _LONGEST_WAIT_SECONDS
    while time.monotonic() < give_up and not all(f"{name} " in file.read_text() for file in files):
        time.sleep(0.01)


def train(steps: int = 4, data=None) -> DistributedDataParallel:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    go_on(model, steps, data)
    stage("training")
    return model


def go_on(model: DistributedDataParallel, steps: int, data=None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in data if data is not None else (torch.randn(8, 16) for _ in range(steps)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
