"""What torch builds on a process group, used as scripts use it: each case returns tensors, which have to be the same on backend gloo.

run_frameworks.py runs them on one rank; test_frameworks.py compares.
"""

import tempfile
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CASES: dict[str, Callable[[int, int], list[torch.Tensor]]] = {}
STEPS = 3


def case(function: Callable) -> Callable:
    CASES[function.__name__] = function
    return function


class Wide(nn.Module):
    """Above any crossover: 2.4 MB of parameters, in tensors of very different sizes."""

    def __init__(self, width: int = 500) -> None:
        super().__init__()
        self.first = nn.Linear(40, width)
        self.inner = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 3)
        self.spare = nn.Linear(width, 7)

    def forward(self, x: torch.Tensor, spare: bool = False) -> torch.Tensor:
        hidden = self.norm(torch.relu(self.inner(torch.relu(self.first(x)))))
        hidden = torch.relu(self.second(hidden))
        return self.last(hidden).sum() + (self.spare(hidden).sum() if spare else 0)


def made(model: Callable[[], nn.Module] = Wide) -> nn.Module:
    torch.manual_seed(1)
    return model()


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model, rank, steps=STEPS, accumulate=1, **words) -> list[torch.Tensor]:
    """Steps of SGD; the parameters afterwards, and the last gradients."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            with model.no_sync() if part + 1 < accumulate else nullcontext():
                model(batch(rank, step * accumulate + part), **words).backward()
        optimizer.step()
    left = [each.detach().clone() for each in parameters]
    return left + [each.grad.clone() for each in parameters if each.grad is not None]


@case
def one_bucket(rank, size):
    return train(DDP(made(), bucket_cap_mb=100), rank, spare=True)


@case
def many_buckets(rank, size):
    return train(DDP(made(), bucket_cap_mb=0.3), rank, spare=True)


@case
def views_of_buckets(rank, size):
    return train(DDP(made(), bucket_cap_mb=0.5, gradient_as_bucket_view=True), rank, spare=True)


@case
def accumulation_without_sync(rank, size):
    return train(DDP(made(), bucket_cap_mb=0.5), rank, accumulate=3, spare=True)


@case
def unused_parameters(rank, size):
    return train(DDP(made(), find_unused_parameters=True), rank)


@case
def parameters_unused_on_some_ranks(rank, size):
    return train(DDP(made(), find_unused_parameters=True), rank, spare=rank == 0)


@case
def a_static_graph(rank, size):
    return train(DDP(made(), bucket_cap_mb=0.5, static_graph=True), rank, steps=4)


@case
def frozen_layers(rank, size):
    model = made()
    for parameter in model.inner.parameters():
        parameter.requires_grad_(False)
    return train(DDP(model), rank, spare=True)


@case
def mixed_dtypes(rank, size):
    class Mixed(Wide):
        def __init__(self) -> None:
            super().__init__()
            self.second.to(torch.float64)
            self.spare.to(torch.bfloat16)

        def forward(self, x):
            hidden = torch.relu(self.inner(torch.relu(self.first(x))))
            hidden = torch.relu(self.second(hidden.double())).float()
            return self.last(self.norm(hidden)).sum() + self.spare(hidden.bfloat16()).sum().float()

    return train(DDP(made(Mixed), bucket_cap_mb=0.5), rank)


@case
def two_models_in_turn(rank, size):
    first, second = DDP(made()), DDP(made(lambda: Wide(300)), bucket_cap_mb=0.2)
    found = []
    for _ in range(2):
        found = train(first, rank, steps=1, spare=True) + train(second, rank, steps=1, spare=True)
    return found


@case
def two_models_in_one_loss(rank, size):
    first, second = DDP(made()), DDP(made(lambda: Wide(300)))
    for step in range(2):
        (first(batch(rank, step), spare=True) + second(batch(rank, step), spare=True)).backward()
    return [each.grad.clone() for model in (first, second) for each in model.parameters()]


@case
def uneven_inputs_under_join(rank, size):
    model = DDP(made(), bucket_cap_mb=0.5)
    with model.join():
        for step in range(3 + rank):
            model.zero_grad()
            model(batch(rank, step), spare=True).backward()
    # After join, every rank has the parameters of the one that came furthest; gradients are of its last step.
    return [each.detach().clone() for each in model.parameters()]


@case
def buffers_follow_rank_zero(rank, size):
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(40, 5)
            self.register_buffer("seen", torch.zeros(100_003))

        def forward(self, x):
            self.seen += rank + 1
            return self.linear(x).sum()

    model = DDP(Counting())
    return [*train(model, rank), model.module.seen.clone()]


@case
def a_hook_of_torch(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DDP(made(), bucket_cap_mb=0.5)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    return train(model, rank, spare=True)


@case
def a_sharded_optimizer(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(made())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(rank, step), spare=True).backward()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


@case
def compiled(rank, size):
    model = torch.compile(DDP(made(), bucket_cap_mb=1.2), backend="aot_eager")
    return train(model, rank, spare=True)


@case
def compiled_collectives(rank, size):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def averaged(x):
        y = x * 2
        dist.all_reduce(y)
        return y / size

    return [averaged(batch(rank, 0)), averaged(torch.full((400_000,), rank + 1.0))]


def sharded(rank, **words) -> tuple[nn.Module, list[torch.Tensor]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = made()
    mesh = words.pop("mesh", None) or init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model.inner, model.second, model):
        fully_shard(layer, mesh=mesh, **words)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(rank, step), spare=True).backward()
        optimizer.step()
    return model, [each.full_tensor().detach().clone() for each in model.parameters()]


@case
def fully_sharded(rank, size):
    return sharded(rank)[1]


@case
def fully_sharded_in_bfloat16(rank, size):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return sharded(rank, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))[1]


@case
def sharded_and_replicated(rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    if size % 2:
        return []
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicate", "shard"))
    return sharded(rank, mesh=mesh)[1]


@case
def a_checkpoint_of_shards(rank, size):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    model, before = sharded(rank)
    place = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(place)
    checkpoint.save(get_model_state_dict(model), checkpoint_id=place[0])
    other = sharded(rank)[0]
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    state = get_model_state_dict(other)
    checkpoint.load(state, checkpoint_id=place[0])
    set_model_state_dict(other, state)
    after = [each.full_tensor().detach().clone() for each in other.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return after


@case
def distributed_tensors(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(size * 300_000.0).view(size * 3, -1)
    parts = distribute_tensor(whole, mesh, [Shard(0)])
    product = parts.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()])
    return [product.to_local(), (parts * 2).sum(0).full_tensor()]
