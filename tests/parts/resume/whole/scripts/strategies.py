"""Several buckets whose gradients go by a strategy of paceline: by `--gradients` of paceline run, or as the script says itself."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def wrapped(name, hook):
    torch.manual_seed(21)
    net = nn.Sequential(
        nn.Linear(20, 90), nn.GELU(), nn.Linear(90, 130), nn.GELU(), nn.Linear(130, 70), nn.GELU(), nn.Linear(70, 1)
    )
    model = DDP(net, bucket_cap_mb=0.04)
    if name:
        from paceline.parts.comm.ddp.attach import use

        use(name, model)
    if hook:
        from paceline.parts.comm.ddp.hook import HookState
        from paceline.parts.comm.ddp.hook import hook as exchange

        model.register_comm_hook(HookState(hook), exchange)
    return model


def one_step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return f"{loss.item()!r} {norm.item()!r}"


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(20)
    x = torch.randn(world * 6 * args.batches, 20, generator=generator)
    dataset = TensorDataset(x, x[:, :3].prod(1, keepdim=True))
    sampler = DistributedSampler(dataset, seed=4)
    loader = DataLoader(dataset, batch_size=6, sampler=sampler)
    models = [*(wrapped(name, None) for name in args.use), *(wrapped(None, name) for name in args.hook)]
    models = models or [wrapped(None, None)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9) for model in models]
    torch.manual_seed(22 + rank)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                said = []
                if args.nested:
                    for model, optimizer in zip(models, optimizers, strict=True):
                        said.append(one_step(model, optimizer, inputs, targets))
                else:
                    said = [one_step(*each, inputs, targets) for each in zip(models, optimizers, strict=True)]
                step += 1
                log.write(f"step {step} {' '.join(said)} {inputs.sum().item()!r} {draws().split()[2]}\n")
                log.flush()
                pause()
        for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            log.write(f"final {number} {digest(model.state_dict())} {digest(optimizer.state_dict())}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20, help="of an epoch and a rank")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument(
        "--use", nargs="*", default=(), help="strategies that the script attaches itself, to a model each"
    )
    parser.add_argument(
        "--hook", nargs="*", default=(), help="strategies that the script registers with DDP, for a model each"
    )
    parser.add_argument(
        "--nested", action="store_true", help="a loop over the models, inside the loop over the batches"
    )
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    train(arguments)
    dist.destroy_process_group()
