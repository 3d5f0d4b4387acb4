"""The healthy training that every script of this folder breaks in one place: DDP on a small network, made-up data, on the CPU with gloo.

`--backend nccl` trains on GPUs instead.

    args = arguments(__doc__, seconds=3600)        # every script takes the same options; more as NAME=DEFAULT
    with Training(args) as training:
        for step in training.steps():
            if training.breaks(step):              # this is rank args.rank and step args.at_step
                time.sleep(args.seconds)
            training.step()

`training.step()` is one whole optimizer step; where the fault belongs inside it, call its parts: `batch`, `loss`, `backward`, `update`.
Before a process group exists, `RANK` and `WORLD_SIZE` say who this is.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
FEATURES, CLASSES, BATCH = 32, 8, 16


def arguments(description: str | None, **more: Any) -> argparse.Namespace:
    """The options of every broken script; `more` adds some of its own: seconds=3600 is `--seconds`, an int, 3600 unless told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, default=1, help="which rank is broken (default 1)")
    parser.add_argument("--at-step", type=int, default=12, help="from which step on (default 12)")
    parser.add_argument("--steps", type=int, default=200, help="how many steps there are (default 200)")
    parser.add_argument("--step-ms", type=float, default=20, help="how long a step lasts at least (default 20)")
    parser.add_argument(
        "--timeout-seconds", type=int, default=1800, help="the process group's timeout (default torch's, 1800)"
    )
    parser.add_argument("--backend", default="gloo", help="the process group's backend (default gloo; nccl: on GPUs)")
    parser.add_argument(
        "--width", type=int, default=64, help="of the network's layers, where the script does not set it (default 64)"
    )
    for name, default in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser.parse_args()


def network(hidden: int = 64, layers: int = 2) -> nn.Sequential:
    """A perceptron with `layers` hidden layers, the same on every rank that asks for the same one."""
    torch.manual_seed(0)
    widths = [FEATURES, *[hidden] * layers]
    blocks = [part for i, o in itertools.pairwise(widths) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*blocks, nn.Linear(hidden, CLASSES))


def samples(count: int, seed: int = 0) -> TensorDataset:
    """`count` made-up samples for a DataLoader."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, FEATURES, generator=generator)
    return TensorDataset(inputs, torch.randint(CLASSES, (count,), generator=generator))


def broken() -> None:
    """Say that the fault is there from now on: what measures how long it takes to be noticed counts from this line."""
    print(f"broken at {time.time_ns()}", flush=True)


class Training:
    """A process group, a DDP model and its optimizer on `device`. `model` builds the network, `ddp` goes to DistributedDataParallel."""

    def __init__(self, args: argparse.Namespace, model: Callable[[], nn.Module] | None = None, **ddp: Any) -> None:
        torch.set_num_threads(1)
        self.args = args
        self.device = torch.device("cpu")
        if args.backend.startswith("nccl"):
            self.device = torch.device("cuda", LOCAL_RANK)
            torch.cuda.set_device(self.device)
        if not dist.is_initialized():
            dist.init_process_group(args.backend, timeout=timedelta(seconds=args.timeout_seconds))
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        alone = model() if model is not None else network(args.width)
        self.model = DistributedDataParallel(alone.to(self.device), **ddp)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.generator = torch.Generator().manual_seed(self.rank)
        self.updates = 0

    def steps(self) -> Iterator[int]:
        """The numbers of the steps, from 0."""
        for step in range(self.args.steps):
            yield step
            if self.rank == 0 and (step + 1) % 50 == 0:
                print(f"step {step + 1}/{self.args.steps}", flush=True)

    def breaks(self, step: int) -> bool:
        """Whether the fault is due here and now: on the broken rank, at the one step."""
        return self.is_broken and step == self.args.at_step

    @property
    def is_broken(self) -> bool:
        return self.rank == self.args.rank

    def step(self, batch: tuple[Tensor, Tensor] | None = None) -> None:
        """One step, at least `--step-ms` after the one before."""
        self.backward(self.loss(batch))
        self.update()

    def batch(self) -> tuple[Tensor, Tensor]:
        """The next batch of this rank."""
        inputs = torch.randn(BATCH, FEATURES, generator=self.generator)
        labels = torch.randint(CLASSES, (BATCH,), generator=self.generator)
        return inputs.to(self.device), labels.to(self.device)

    def loss(self, batch: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The forward pass and the loss, after the pause that makes a step as long as it should be."""
        # As long in each step, whenever the one before ended: a rank that made up for lost time would hide who waits for whom.
        time.sleep(self.args.step_ms / 1000)
        inputs, labels = (part.to(self.device) for part in (batch if batch is not None else self.batch()))
        return nn.functional.cross_entropy(self.model(inputs), labels)

    def backward(self, loss: Tensor) -> None:
        """The backward pass, in which DDP exchanges the gradients."""
        self.optimizer.zero_grad()
        loss.backward()

    def update(self) -> None:
        """The optimizer's step, the last thing of a step. On the broken rank the one before `--at-step` says that the fault is next."""
        self.optimizer.step()
        self.updates += 1
        if self.is_broken and self.updates == self.args.at_step:
            broken()

    def loader(self, dataset: Any = None, **options: Any) -> DataLoader:
        """A DataLoader of as many batches as there are steps, or over `dataset`."""
        dataset = samples(self.args.steps * BATCH, self.rank) if dataset is None else dataset
        return DataLoader(dataset, batch_size=BATCH, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and dist.is_initialized():
            dist.destroy_process_group()
