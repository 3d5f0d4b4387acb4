"""A sampler and a batch sampler of one's own: by weight, and by length."""

import argparse
import os
import random

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, size=240):
        rng = random.Random(7)
        self.sentences = [[rng.randrange(1, 50) for _ in range(rng.randrange(3, 12))] for _ in range(size)]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        return torch.tensor(self.sentences[i]), sum(self.sentences[i]) % 2, i


class WeightedDistributed(Sampler):
    """Each epoch other samples, with replacement; each rank takes its part of one order."""

    def __init__(self, weights, count, rank, world, seed=0):
        self.weights, self.count, self.rank, self.world, self.seed = weights, count, rank, world, seed
        self.epoch = 0

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.multinomial(self.weights, self.count * self.world, replacement=True, generator=generator)
        self.epoch += 1
        yield from order[self.rank :: self.world].tolist()

    def __len__(self):
        return self.count


class BucketBatches(Sampler):
    """Batches of sentences of nearly one length; the order of the batches comes from a generator that goes on from epoch to epoch."""

    def __init__(self, sampler, lengths, batch_size, rng):
        self.sampler, self.lengths, self.batch_size, self.rng = sampler, lengths, batch_size, rng

    def __iter__(self):
        order = sorted(self.sampler, key=lambda i: self.lengths[i])
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(batches)
        yield from batches

    def __len__(self):
        return -(-len(self.sampler) // self.batch_size)


def collate(samples):
    tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _, _ in samples], batch_first=True)
    return tokens, torch.tensor([label for _, label, _ in samples]), [i for _, _, i in samples]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    dataset = Sentences()
    lengths = [len(sentence) for sentence in dataset.sentences]
    weights = torch.tensor([1.0 / n for n in lengths])
    sampler = WeightedDistributed(weights, 120, rank, world)
    batches = BucketBatches(sampler, lengths, 6, random.Random(40 + rank))
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=args.workers)
    embedding = nn.EmbeddingBag(50, 16, padding_idx=0)
    model = DDP(nn.Sequential(embedding, nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2)))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    torch.manual_seed(21 + rank)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            for tokens, labels, chosen in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(tokens), labels)
                loss.backward()
                optimizer.step()
                step += 1
                log.write(f"step {step} {epoch} {loss.item()!r} {tuple(tokens.shape)} {chosen} {draws().split()[2]}\n")
                log.flush()
                pause()
            log.write(f"epoch {epoch} sampler {sampler.epoch}\n")
            log.flush()
        log.write(f"final {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
