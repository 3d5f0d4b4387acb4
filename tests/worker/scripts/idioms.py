"""Right programs whose ranks stand at different places of the code: nothing in here is a divergence."""

import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def one_after_the_other():
    if rank != 0:
        dist.barrier()
    if rank == 0:
        dist.barrier()


def values_of_its_own():
    if rank == 0:
        dist.all_reduce(torch.ones(3))
    else:
        value = torch.zeros(3)
        dist.all_reduce(value)


def objects():
    gathered = [None] * world_size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * 100 * rank})
    dist.broadcast_object_list([gathered], src=0)
    dist.gather_object(rank, [None] * world_size if rank == 0 else None, dst=0)


def tensors():
    ones = torch.ones(2)
    dist.reduce(ones, dst=0)
    dist.gather(ones, [torch.empty(2) for _ in range(world_size)] if rank == 0 else None, dst=0)
    dist.scatter(ones, [torch.empty(2) for _ in range(world_size)] if rank == 0 else None, src=0)
    sizes = [other + 1 for other in range(world_size)]
    given = torch.ones(sizes[rank] * world_size)
    dist.all_to_all_single(torch.empty(sum(sizes)), given, sizes, [sizes[rank]] * world_size)
    if rank == 0:
        dist.send(ones, dst=1)
    elif rank == 1:
        dist.recv(ones, src=0)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(ones, group=pair)
    dist.monitored_barrier()


def uneven(**options):
    model = DistributedDataParallel(torch.nn.Linear(4, 4), **options)
    if not options:
        model.register_comm_hook(None, allreduce_hook)
    with Join([model]):
        for _ in range(3 + 2 * rank):
            model(torch.randn(2, 4)).sum().backward()


for again in range(2):
    if again:
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    dist.init_process_group("gloo")
    for _ in range(3):
        one_after_the_other()
        values_of_its_own()
        objects()
        tensors()
    uneven()
    uneven(find_unused_parameters=True)
    dist.barrier()
    dist.destroy_process_group()
