"""DDP as people write it. It knows of no launcher."""

import os
import time

import torch
import torch.distributed as dist
from job import Lines, Numbers, arguments, load, network, save
from torch.nn.parallel import DistributedDataParallel


def main():
    began_ns = time.time_ns()
    args = arguments()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lines = Lines(args.lines, f"rank{rank}")
    model = DistributedDataParallel(network(args.width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = load(args.checkpoint, model.module, optimizer)
    dataset = Numbers()
    sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=args.workers)
    lines.started(began_ns)
    for epoch in range(1_000_000):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            # Not in a variable: what is resumed has the variables of before.
            lines.step(int(os.environ["TORCHELASTIC_RESTART_COUNT"]), step, ranks, loss.item())
            if args.checkpoint and step % 50 == 0 and rank == 0:
                save(args.checkpoint, model.module, optimizer, step)
            if step == args.steps:
                dist.destroy_process_group()
                return


if __name__ == "__main__":
    main()
