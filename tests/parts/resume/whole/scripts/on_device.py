"""Mixed precision on a GPU where there is one: dropout, a fused optimizer, and the next batch copied in a stream of its own."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Ahead:
    """The batches of a loader on the device, copied while the batch before is trained on."""

    def __init__(self, loader, device):
        self.batches, self.device = iter(loader), device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.fetch()

    def fetch(self):
        self.batch = next(self.batches, None)
        if self.batch is not None:
            with torch.cuda.stream(self.stream):
                self.batch = [one.to(self.device, non_blocking=True) for one in self.batch]

    def next(self):
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        batch = self.batch
        if batch is not None:
            self.fetch()
        return batch


def on(device, state):
    """A state with its tensors in the memory of the host."""
    if isinstance(state, torch.Tensor):
        return state.to(device)
    if isinstance(state, dict):
        return {key: on(device, value) for key, value in state.items()}
    return [on(device, value) for value in state] if isinstance(state, list) else state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=64)
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    number = int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count())
    device = torch.device("cuda", number) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    # Several ranks on one GPU: NCCL would refuse.
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    inputs = torch.randn(256, 16)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=args.workers, pin_memory=on_gpu)
    width = args.hidden
    layers = (
        nn.Linear(16, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.Dropout(0.2),
        nn.Linear(width, 1),
    )
    model = DDP(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=on_gpu)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, growth_interval=5)
    generator = torch.Generator(device).manual_seed(rank)
    torch.manual_seed(6 + rank)
    step = 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(args.epochs):
            sampler.set_epoch(epoch)
            ahead = Ahead(loader, device)
            batch = ahead.next()
            while batch is not None:
                noise = 0.01 * torch.randn(batch[0].shape, generator=generator, device=device)
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = nn.functional.mse_loss(model(batch[0] + noise).float(), batch[1])
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                step += 1
                log.write(
                    f"step {step} {epoch} {loss.item()!r} {scaler.get_scale()!r} {batch[0].sum().item()!r} "
                    f"{torch.rand((), device=device).item()!r} {draws().split()[2]}\n"
                )
                log.flush()
                pause()
                batch = ahead.next()
        log.write(f"final {digest(on('cpu', model.state_dict()))} {digest(on('cpu', optimizer.state_dict()))}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
