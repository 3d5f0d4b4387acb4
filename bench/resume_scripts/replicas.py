"""The same training for torchft: each process is a replica group of its own, with its manager, its store, and the lighthouse outside."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from job import Lines, Numbers, arguments, network
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo


def main():
    args = arguments()
    replica = int(os.environ["REPLICA_GROUP_ID"])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model = network(args.width)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def state():
        return {"model": model.state_dict(), "optimizer": inner.state_dict()}

    def put_back(kept):
        model.load_state_dict(kept["model"])
        inner.load_state_dict(kept["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=put_back,
        state_dict=state,
        min_replica_size=1,
        replica_id=f"replica{replica}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=timedelta(seconds=10),
    )
    wrapped, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, inner)
    lines = Lines(args.lines, f"rank{replica}")
    dataset = Numbers()
    sampler = DistributedSampler(dataset, replica_rank=replica, num_replica_groups=2, group_rank=0, num_replicas=1)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
    while manager.current_step() < args.steps:
        for x, y in loader:
            optimizer.zero_grad()
            loss = (wrapped(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            lines.step(manager.num_participants(), manager.current_step(), manager.num_participants(), loss.item())
            if manager.current_step() >= args.steps:
                break
    manager.shutdown()


if __name__ == "__main__":
    main()
