"""One training, its loop written in many ways: --shape names one of the functions below."""

import argparse
import asyncio
import itertools
import os
import queue
import random
import signal
import threading

import numpy as np
import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Levels(Dataset):
    """A curriculum: the script raises the level, and the order of what it gives."""

    def __init__(self, size=96):
        generator = torch.Generator().manual_seed(3)
        self.data = torch.randn(size, 6, generator=generator)
        self.level, self.order = 0, list(range(size))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        x = self.data[self.order[i]] * (1 + 0.1 * self.level)
        return x, x.sum() > 0


class Training:
    def __init__(self, out, workers, epochs):
        self.rank, self.epochs = dist.get_rank(), epochs
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(50 + self.rank)
        self.dataset = Levels()
        self.sampler = DistributedSampler(self.dataset)
        self.loader = DataLoader(self.dataset, batch_size=4, sampler=self.sampler, num_workers=workers)
        self.other = DataLoader(self.dataset, batch_size=2, shuffle=True, num_workers=workers)
        self.model = DDP(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 2)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.number = 0
        self.log = open(os.path.join(out, f"rank{self.rank}.log"), "a")  # noqa: SIM115

    def step(self, batch, *more):
        x, y = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y.long())
        loss.backward()
        self.optimizer.step()
        self.number += 1
        self.line(f"step {self.number} {loss.item()!r} {x.sum().item()!r} {more} {mean_of(loss.item())!r} {draws()}")
        pause()
        return loss.item()

    def evaluate(self, loader):
        self.model.eval()
        total = 0.0
        with torch.no_grad():
            for x, y in loader:
                total += nn.functional.cross_entropy(self.model(x), y.long()).item()
        self.model.train()
        return total

    def line(self, text):
        self.log.write(text + "\n")
        self.log.flush()


def mean_of(loss, seen=[]):  # noqa: B006
    """Keeps what it has seen in its default."""
    seen.append(loss)
    return sum(seen) / len(seen)


def zipped(t):
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for number, (batch, (other, _)) in enumerate(zip(t.loader, t.other, strict=False)):
            t.step(batch, epoch, number, other.sum().item())


def sliced(t):
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for batch in itertools.islice(t.loader, 2, 9):
            t.step(batch, epoch)
        t.line(f"epoch {epoch} {t.evaluate(itertools.islice(t.loader, 3))!r}")


def of_one_loader(t):
    """The evaluation inside the training loop reads the same loader."""
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for batch in t.loader:
            t.step(batch, epoch)
            if t.number % 5 == 0:
                t.line(f"evaluation {t.evaluate(t.loader)!r}")


def returning(t):
    def train_epoch(epoch):
        for number, batch in enumerate(t.loader):
            t.step(batch, epoch)
            if number == 4 + epoch:
                return number
        return -1

    for epoch in range(2 * t.epochs):
        t.sampler.set_epoch(epoch)
        t.line(f"epoch {epoch} {train_epoch(epoch)}")


def caught(t):
    """Exceptions in the loop, `continue`, and `else`."""
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        failed = 0
        for number, batch in enumerate(t.loader):
            try:
                if number % 4 == 1:
                    raise ValueError(number)
                t.step(batch, epoch, failed)
            except ValueError:
                failed += 1
                continue
            if number == 7 and epoch == 1:
                break
        else:
            t.line(f"epoch {epoch} whole")


def walrus(t):
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        batches = iter(t.loader)
        while (batch := next(batches, None)) is not None:
            t.step(batch, epoch)


def own_iterator(t):
    """The iterator is an attribute, and is made anew where it ends."""
    t.batches = iter(t.loader)
    for number in range(12 * t.epochs):
        try:
            batch = next(t.batches)
        except StopIteration:
            t.sampler.set_epoch(number)
            t.batches = iter(t.loader)
            batch = next(t.batches)
        t.step(batch, number)


def generator(t):
    def batches():
        for epoch in range(t.epochs):
            t.sampler.set_epoch(epoch)
            for batch in t.loader:
                yield epoch, batch

    for epoch, batch in batches():
        t.step(batch, epoch)


class Wrapped:
    """One batch ahead, as timm's PrefetchLoader is. It has a loop of its own, which makes no steps."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        before = None
        for x, y in self.loader:
            if before is not None:
                yield before
            before = x.mul(0.5), y
        yield before


def wrapped(t):
    batches = Wrapped(t.loader)
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for number, batch in enumerate(batches):
            t.step(batch, epoch, number)


def yielding(t):
    """A generator trains, and who takes its losses only writes them down."""

    def train(epoch):
        for batch in t.loader:
            yield t.step(batch, epoch)

    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for number, loss in enumerate(train(epoch)):
            t.line(f"loss {t.number} {epoch} {number} {loss!r} {random.random()!r}")


def yielding_zipped(t):
    """As above, beside something else."""

    def train(epoch):
        for batch in t.loader:
            yield t.step(batch, epoch)

    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for number, loss in zip(range(100), train(epoch), strict=False):
            t.line(f"loss {t.number} {epoch} {number} {loss!r}")


def coroutine(t):
    async def train():
        for epoch in range(t.epochs):
            t.sampler.set_epoch(epoch)
            for batch in t.loader:
                t.step(batch, epoch)
                await asyncio.sleep(0)

    asyncio.run(train())


def comprehension(t):
    for epoch in range(2 * t.epochs):
        t.sampler.set_epoch(epoch)
        losses = [t.step(batch, epoch) for batch in t.loader]
        t.line(f"epoch {epoch} {sum(losses)!r}")


def two_loops(t):
    """Each epoch has two training loops."""
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for batch in itertools.islice(t.loader, 6):
            t.step(batch, epoch, "first")
        for batch in itertools.islice(t.other, 7):
            t.step(batch, epoch, "second")


def curriculum(t):
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        t.dataset.level += 1
        t.dataset.order.reverse()
        t.dataset.order.append(t.dataset.order.pop(3))
        for batch in t.loader:
            t.step(batch, epoch)


def signals(t):
    """A timer's handler counts and raises in the middle of whatever is done."""
    counted = 0

    class Late(Exception):
        pass

    def handler(number, frame):
        nonlocal counted
        counted += 1

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.003)
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        for batch in t.loader:
            try:
                t.step(batch, epoch)
            except Late:
                continue
    signal.setitimer(signal.ITIMER_REAL, 0)


def forked(t):
    """Children that train nothing, a change of directory, and descriptors that the script has not opened are closed."""
    os.closerange(200, 300)
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        os.chdir("/" if epoch % 2 else os.path.dirname(os.path.abspath(__file__)))
        for batch in t.loader:
            if t.number % 6 == 0:
                child = os.fork()
                if not child:
                    for _ in range(3):
                        t.number += 1
                    os._exit(0)
                os.waitpid(child, 0)
            t.step(batch, epoch)


def held_zip(t):
    """`next` of an iterator of Python around loaders."""
    both = zip(t.loader, t.other, strict=False)
    for number in range(12):
        batch, (other, _) = next(both)
        t.step(batch, number, other.sum().item())


def held_cycle(t):
    batches = itertools.cycle(t.loader)
    for number in range(12 * t.epochs):
        t.step(next(batches), number)


def ahead(t):
    """A thread reads the loader."""
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        ready = queue.Queue(2)

        def read(ready=ready):
            for batch in t.loader:
                ready.put(batch)
            ready.put(None)

        threading.Thread(target=read, daemon=True).start()
        while (batch := ready.get()) is not None:
            t.step(batch, epoch)


def in_a_thread(t):
    """A thread trains."""
    trainer = threading.Thread(target=zipped, args=(t,))
    trainer.start()
    trainer.join()


def hooked(t):
    """A hook that is added while the script trains changes what a layer gives."""
    for epoch in range(t.epochs):
        t.sampler.set_epoch(epoch)
        if epoch == 1:
            t.model.module[0].register_forward_hook(lambda module, given, made: made * 0.9)
        for batch in t.loader:
            t.step(batch, epoch)


SHAPES = (
    zipped, sliced, of_one_loader, returning, caught, walrus, own_iterator, generator, wrapped, yielding,
    yielding_zipped, coroutine, comprehension, two_loops, curriculum, signals, forked, held_zip, held_cycle, ahead, in_a_thread, hooked,
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--shape", required=True, choices=[shape.__name__ for shape in SHAPES])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    training = Training(args.out, args.workers, args.epochs)
    next(shape for shape in SHAPES if shape.__name__ == args.shape)(training)
    training.line(f"final {digest(training.model.state_dict())} {digest(training.optimizer.state_dict())}")
    training.log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
