"""The same training for nvidia-resiliency-ext's in-process restart: all of it in one function that can be called again."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from job import Lines, Numbers, arguments, load, network, save
from nvidia_resiliency_ext import inprocess
from torch.nn.parallel import DistributedDataParallel

ARGS = arguments()
NAME = f"rank{os.environ['RANK']}"


@inprocess.Wrapper(
    store_kwargs={"port": int(os.environ["MASTER_PORT"]) + 1, "timeout": timedelta(seconds=60)},
    health_check=None,
)
def train(call: inprocess.CallWrapper = None):
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(
            str(call.iteration),
            dist.TCPStore(
                "127.0.0.1",
                int(os.environ["MASTER_PORT"]) + 2 + call.iteration,
                is_master=os.environ["RANK"] == "0",
                wait_for_workers=False,
            ),
        ),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=30),
    )
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lines = Lines(ARGS.lines, NAME)
    model = DistributedDataParallel(network(ARGS.width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = load(ARGS.checkpoint, model.module, optimizer)
    dataset = Numbers()
    sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
    for epoch in range(1_000_000):
        sampler.set_epoch(epoch)
        for x, y in loader:
            call.ping()
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            lines.step(call.iteration, step, ranks, loss.item())
            if ARGS.checkpoint and step % 50 == 0 and rank == 0:
                save(ARGS.checkpoint, model.module, optimizer, step)
            if step == ARGS.steps:
                return


if __name__ == "__main__":
    train()
