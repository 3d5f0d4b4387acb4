"""A small character-level GPT learns to write Python from Python's own standard library. Minutes on two CPU cores.

    paceline run --nproc-per-node 2 examples/gpt_stdlib.py
    paceline run --nproc-per-node 2 --max-restarts 3 examples/gpt_stdlib.py --steps 3000

Nothing is downloaded: the text is the library of the Python that runs this. Rank 0 writes a checkpoint every N steps; a run that is
started again in the same directory goes on from there, and at the end it prints a sample.
"""

import argparse
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
ENCODE = {character: index for index, character in enumerate(ALPHABET)}


def standard_library(limit_bytes: int) -> str:
    """The source text of the standard library, in a fixed order, printable ASCII only, cut at `limit_bytes`."""
    root = Path(sysconfig.get_path("stdlib"))
    parts, size = [], 0
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "dist-packages", "test", "tests", "idle_test"} & set(path.relative_to(root).parts):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore").replace("\t", "    ")
        parts.append("".join(character for character in text if character in ENCODE))
        size += len(parts[-1])
        if size >= limit_bytes:
            break
    return "\n".join(parts)[:limit_bytes]


class Windows(Dataset):
    """Non-overlapping windows of `context` characters, each with the same window one character further on."""

    def __init__(self, text: str, context: int) -> None:
        self.codes = torch.tensor([ENCODE[character] for character in text], dtype=torch.uint8)
        self.context = context

    def __len__(self) -> int:
        return (len(self.codes) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context
        window = self.codes[start : start + self.context + 1].long()
        return window[:-1], window[1:]


@dataclass(frozen=True)
class Shape:
    """The size of the network."""

    layers: int
    heads: int
    width: int
    context: int


class Block(nn.Module):
    """One layer: causal self-attention, then a network of two linear layers, each added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.before_feed_forward = nn.LayerNorm(shape.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.feed_forward(self.before_feed_forward(x))


class GPT(nn.Module):
    """Characters in, a score for every next character out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.context = shape.context
        self.characters = nn.Embedding(len(ALPHABET), shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.last_norm = nn.LayerNorm(shape.width)
        self.scores = nn.Linear(shape.width, len(ALPHABET), bias=False)
        self.apply(small_weights)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.characters(codes) + self.positions(torch.arange(codes.shape[1], device=codes.device))
        return self.scores(self.last_norm(self.blocks(x)))


def small_weights(module: nn.Module) -> None:
    """GPT-2's start: normal with deviation 0.02, biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def sample(model: GPT, prompt: str, length: int, device: torch.device) -> str:
    """`prompt` and the `length` characters that the model writes after it."""
    model.eval()
    codes = torch.tensor([[ENCODE[character] for character in prompt]], device=device)
    for _ in range(length):
        scores = model(codes[:, -model.context :])[:, -1] / 0.8
        codes = torch.cat([codes, torch.multinomial(scores.softmax(dim=-1), 1)], dim=1)
    return "".join(ALPHABET[code] for code in codes[0].tolist())


def save(path: Path, model: GPT, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write beside the old checkpoint and rename, so that a kill in between leaves a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, partial)
    partial.rename(path)


def load(path: Path, model: GPT, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """The step to go on from; 0 without a checkpoint."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def batches(loader: DataLoader, sampler: DistributedSampler) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end, shuffled anew in every epoch."""
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, args: argparse.Namespace, device: torch.device
) -> None:
    """From the last checkpoint to `args.steps`."""
    data = Windows(standard_library(args.text_bytes), args.context)
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    checkpoint = args.checkpoint_dir / "gpt.pt"
    first_step = load(checkpoint, model.module, optimizer, device)
    if dist.get_rank() == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(f"{parameters:,} parameters, {len(data.codes):,} characters, from step {first_step}", flush=True)
    since = time.monotonic()
    for step, (inputs, targets) in zip(range(first_step + 1, args.steps + 1), batches(loader, sampler), strict=False):
        loss = loss_of(model, inputs.to(device), targets.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if dist.get_rank() != 0:
            continue
        if step % args.log_every == 0:
            elapsed, since = time.monotonic() - since, time.monotonic()
            print(
                f"step {step:5}/{args.steps}  loss {loss.item():.3f}  {args.log_every / elapsed:.1f} steps/s",
                flush=True,
            )
        if step % args.checkpoint_every == 0 or step == args.steps:
            save(checkpoint, model.module, optimizer, step)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=16, help="windows per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=128, help="characters that the network sees at once")
    parser.add_argument("--text-bytes", type=int, default=4_000_000, help="how much of the library to read")
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--checkpoint-every", type=int, default=250)
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("checkpoints"))
    parser.add_argument("--sample-length", type=int, default=400, help="characters to write at the end")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")

    torch.manual_seed(0)
    gpt = GPT(Shape(args.layers, args.heads, args.width, args.context)).to(device)
    model = DistributedDataParallel(gpt, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    train(model, optimizer, args, device)

    if dist.get_rank() == 0 and args.sample_length:
        print(sample(gpt, "def ", args.sample_length, device))
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
