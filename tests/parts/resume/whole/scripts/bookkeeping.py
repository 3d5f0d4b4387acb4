"""Keeps books in every way that Python has: lists, counters, dataclasses, deques, closures, class attributes, own generators."""

import argparse
import os
import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Progress:
    steps: int = 0
    best: float = float("inf")
    best_at: tuple = ()
    marks: list = field(default_factory=list)


class RunningStatistics:
    def __init__(self, size):
        self.mean, self.m2, self.count = np.zeros(size), np.zeros(size), 0

    def update(self, batch):
        for row in batch:
            self.count += 1
            delta = row - self.mean
            self.mean += delta / self.count
            self.m2 += delta * (row - self.mean)


class Tracker:
    calls = 0
    instances = []  # noqa: RUF012
    __slots__ = ("history", "name")

    def __init__(self, name):
        self.name, self.history = name, []
        Tracker.instances.append(self)

    def __call__(self, value):
        Tracker.calls += 1
        self.history.append(value)
        return sum(self.history[-3:])


def make_counter():
    count = 0

    def increment(by=1):
        nonlocal count
        count += by
        return count

    return increment


def moving_average(momentum, _kept={}):  # noqa: B006
    def update(value):
        _kept["value"] = momentum * _kept.get("value", value) + (1 - momentum) * value
        return _kept["value"]

    return update


total_tokens = 0


def main():
    global total_tokens
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(13)
    py_rng = random.Random(5 + rank)
    torch_rng = torch.Generator().manual_seed(6 + rank)
    np_rng = np.random.default_rng(7 + rank)
    old_np_rng = np.random.RandomState(8 + rank)

    x = torch.randn(256, 6)
    dataset = TensorDataset(x, (x > 0).sum(1), torch.arange(256))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 7)))
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)

    losses = []
    by_label = defaultdict(list)
    label_counts = Counter()
    recent = deque(maxlen=5)
    progress = Progress()
    statistics = RunningStatistics(6)
    track, other_track = Tracker("loss"), Tracker("norm")
    ordered = OrderedDict()
    increment = make_counter()
    ema = moving_average(0.9)
    seen = set()
    confusion = torch.zeros(7, 7, dtype=torch.long)
    order_by_label = np.zeros((7, 4), dtype=np.int64)
    alias = losses
    nested = {"a": {"b": [0, (1, 2)]}, "progress": progress}

    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for inputs, labels, index in loader:
                noise = 0.01 * torch.randn(inputs.shape, generator=torch_rng)
                scale = 1 + 0.01 * np_rng.standard_normal() + 0.01 * float(old_np_rng.rand()) + 0.01 * py_rng.random()
                logits = model(inputs * scale + noise)
                loss = nn.functional.cross_entropy(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0).item()
                optimizer.step()
                value = loss.item()
                losses.append(value)
                recent.append(value)
                label_counts.update(labels.tolist())
                for label in labels.tolist():
                    by_label[label].append(value)
                statistics.update(inputs.numpy())
                seen.update(index.tolist())
                confusion.index_put_((labels, logits.argmax(1)), torch.ones(1, dtype=torch.long), accumulate=True)
                order_by_label[labels.numpy(), epoch] += 1
                progress.steps += 1
                if value < progress.best:
                    progress.best, progress.best_at = value, (epoch, progress.steps)
                    progress.marks.append(progress.steps)
                ordered[progress.steps % 5] = value
                ordered.move_to_end(progress.steps % 5, last=bool(progress.steps % 2))
                nested["a"]["b"][0] += len(inputs)
                total_tokens += inputs.numel()
                log.write(
                    f"step {progress.steps} {epoch} {value!r} {track(value)!r} {other_track(norm)!r} {increment(2)} "
                    f"{ema(value)!r} {sum(alias)!r} {list(recent)} {sorted(label_counts.items())} {nested['a']} "
                    f"{nested['progress'].best!r} {progress.best_at} {statistics.mean.tolist()} {Tracker.calls} "
                    f"{len(Tracker.instances)} {len(seen)} {int(confusion.trace())} {order_by_label.sum(1).tolist()} "
                    f"{total_tokens} {list(ordered)} {py_rng.random()!r} {float(np_rng.random())!r} "
                    f"{float(old_np_rng.rand())!r} {torch.rand((), generator=torch_rng).item()!r} {draws().split()[2]}\n"
                )
                log.flush()
                pause()
            log.write(
                f"epoch {epoch} { ({k: sum(v) for k, v in sorted(by_label.items())}) } {statistics.m2.tolist()}\n"
            )
            log.flush()
        log.write(
            f"final {digest(model.state_dict())} {digest(optimizer.state_dict())} {len(losses)} {alias is losses} "
            f"{progress} {confusion.tolist()}\n"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
