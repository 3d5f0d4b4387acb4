"""One rank of bench/exchange_network.py, which starts it in each emulated host, and of bench/exchange_hooks.py. Rank 0 prints one
JSON object a line.

step --parameters N --strategies A,B --rounds R --block K    step times of plain DDP and of each strategy, in turn, block by block;
                                                             --device cuda --backend nccl: on other tensors, over another backend
train --strategy A --seed S --steps N --most-steps M         the character GPT of examples/, with its validation loss on the way
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "examples")]

import parameter_server_central  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

PLAIN = "ddp"
LAYERS = 6
BATCH = 4
MOST_DIFFERENT = 1e-9
GROUP_TIMEOUT = timedelta(minutes=5)
FAILED = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    step = modes.add_parser("step")
    step.add_argument("--parameters", type=int, required=True)
    step.add_argument("--strategies", required=True)
    step.add_argument("--rounds", type=int, required=True)
    step.add_argument("--block", type=int, required=True)
    step.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    step.add_argument("--backend", default="gloo")
    train = modes.add_parser("train")
    train.add_argument("--strategy", required=True)
    train.add_argument("--seed", type=int, required=True)
    train.add_argument("--steps", type=int, required=True)
    train.add_argument("--most-steps", type=int, required=True)
    train.add_argument("--target", type=float, default=0.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # The clocks are compared over gloo, whatever the gradients travel over.
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    (measure_steps if options.mode == "step" else train_model)(options)
    dist.destroy_process_group()
    return 0


def say(**fields: Any) -> None:
    if dist.get_rank() == 0:
        print(json.dumps(fields), flush=True)


# -- step times


@dataclass
class Runner:
    """One model under one strategy; `step` trains it once. `attached`: what paceline.parts.comm.ddp.attach gave, None for plain DDP."""

    name: str
    model: nn.Module
    step: Callable[[], None]
    attached: Any = None


def measure_steps(options: argparse.Namespace) -> None:
    """Blocks of steps, each round in another order, so that whatever else the machine does falls on all of them."""
    names = [PLAIN, *options.strategies.split(",")]
    device = device_of_rank(options.device)
    group = dist.new_group(backend=options.backend) if options.backend != "gloo" else dist.group.WORLD
    runners = [runner for name in names if (runner := made(name, options.parameters, device, group)) is not None]
    for runner in runners:
        say(at=runner.name)
        guarded(runner, options.block)
    seconds: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for number in range(options.rounds):
        order = list(runners)
        random.Random(number).shuffle(order)
        for runner in order:
            say(at=runner.name)
            seconds[runner.name].append(guarded(runner, options.block))
    for runner in runners:
        if (differ := difference(runner.model)) > MOST_DIFFERENT:
            say(
                failed=runner.name,
                text=f"the ranks' models differ by {differ:.1e} after {options.block} steps of a block",
            )
            continue
        say(
            strategy=runner.name,
            parameters=sum(parameter.numel() for parameter in model_of(options.parameters).parameters()),
            step_seconds=seconds[runner.name],
            plain_seconds=seconds[PLAIN],
            sent_bytes=getattr(runner.attached, "sent_bytes", None),
            extra_bytes=runner.attached.extra_bytes() if runner.attached is not None else None,
        )


def device_of_rank(kind: str) -> torch.device:
    """One of its own for each rank while there are enough; then they share."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def made(name: str, parameters: int, device: torch.device, group: Any) -> Runner | None:
    """The strategy at work on a model of its own; None where it refuses to, which is said."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(model_of(parameters).to(device), process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    attached = None
    try:
        if name in TORCHS_OWN:
            TORCHS_OWN[name](ddp, group)
        elif name != PLAIN:
            attached = attached_to(name, ddp, optimizer)
    except (ImportError, ValueError, TypeError, NotImplementedError) as error:
        say(failed=name, text=f"{type(error).__name__}: {error}")
        return None
    width = ddp.module[0].in_features
    batch = torch.randn(BATCH, width, generator=torch.Generator().manual_seed(dist.get_rank())).to(device)

    def step() -> None:
        optimizer.zero_grad()
        ddp(batch).square().mean().backward()
        optimizer.step()

    return Runner(name, ddp, step, attached)


def torchs_bf16(ddp: DistributedDataParallel, group: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    ddp.register_comm_hook(group, bf16_compress_hook)


def torchs_powersgd(ddp: DistributedDataParallel, group: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    ddp.register_comm_hook(PowerSGDState(group, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook)


TORCHS_OWN: dict[str, Callable[[DistributedDataParallel, Any], None]] = {
    "torch's bf16": torchs_bf16,
    "torch's powersgd": torchs_powersgd,
}


def attached_to(name: str, ddp: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> Any:
    from paceline.parts.comm.ddp.attach import use

    if name == parameter_server_central.NAME:
        return parameter_server_central.use(ddp, optimizer)
    return use(name, ddp, optimizer)


def model_of(parameters: int) -> nn.Sequential:
    """Linear layers of equal width with about so many parameters."""
    width = max(8, round((parameters / LAYERS) ** 0.5))
    layers = [nn.Linear(width, width) for _ in range(LAYERS)]
    return nn.Sequential(*[module for layer in layers for module in (layer, nn.ReLU())])


def difference(model: nn.Module) -> float:
    """How far apart the ranks' models are: of the sums of their weights' sizes, relative. Each rank trained on data of its own.

    Holds:   0 up to rounding where a strategy averages, also per step: a block is a multiple of local_sgd's steps
    """
    own = torch.stack([parameter.detach().double().abs().sum() for parameter in model.parameters()]).sum().cpu()
    least, most = own.clone(), own.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float((most - least) / most)


def guarded(runner: Runner, steps: int) -> float:
    """Seconds of one step in a block; the slowest rank's. A strategy that fails ends this program, and says so."""
    try:
        dist.barrier()
        began = time.monotonic()
        for _ in range(steps):
            runner.step()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        spent = torch.tensor([(time.monotonic() - began) / steps], dtype=torch.float64)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
    except Exception as error:
        say(failed=runner.name, text=f"{type(error).__name__}: {error}"[:500])
        sys.stdout.flush()
        # Other ranks may wait in a collective that this one will never join: no clean end.
        os._exit(FAILED)
    return float(spent)


# -- time to a validation loss

LETTERS = 2_000_000
VALIDATION_WINDOWS = 128
SEQUENCES = 4
LEARNING_RATE = 2e-3
WARM_UP_STEPS = 60
EVERY = 16
MEAN_OF = 5


def train_model(options: argparse.Namespace) -> None:
    """Train for `--steps`, and on to `--most-steps` where the validation loss is still above `--target`.

    The clock stands still while the loss is looked at. The loss that counts is the mean of the last five looks.
    """
    import gpt_stdlib as gpt

    shape = gpt.Shape(layers=3, heads=4, width=160, context=64)
    text = gpt.standard_library(LETTERS)
    held_out = shape.context * VALIDATION_WINDOWS + 1
    training, validation = gpt.Windows(text[:-held_out], shape.context), gpt.Windows(text[-held_out:], shape.context)
    torch.manual_seed(options.seed)
    ddp = DistributedDataParallel(gpt.GPT(shape))
    optimizer = torch.optim.AdamW(ddp.parameters(), LEARNING_RATE)
    if options.strategy != PLAIN:
        attached_to(options.strategy, ddp, optimizer)
    # A rate that does not depend on how long the training will be, since that is what is looked for.
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP_STEPS, (WARM_UP_STEPS / (step + 1)) ** 0.5)
    )
    chosen = random.Random(options.seed * 1000 + dist.get_rank())
    curve: list[tuple[int, float, float]] = []
    seconds = 0.0
    for first in range(0, options.most_steps, EVERY):
        dist.barrier()
        began = time.monotonic()
        for _ in range(EVERY):
            pairs = [training[chosen.randrange(len(training))] for _ in range(SEQUENCES)]
            inputs, targets = (torch.stack(each) for each in zip(*pairs, strict=True))
            optimizer.zero_grad()
            gpt.loss_of(ddp, inputs, targets).backward()
            optimizer.step()
            rate.step()
        seconds += time.monotonic() - began
        curve.append((first + EVERY, seconds, validation_loss(gpt, ddp.module, validation)))
        say(at=options.strategy, step=first + EVERY, seconds=seconds, loss=curve[-1][2])
        if first + EVERY >= options.steps and smooth(curve, len(curve) - 1) <= options.target:
            break
        if first + EVERY >= options.steps and not options.target:
            break
    if (differ := difference(ddp)) > MOST_DIFFERENT:
        say(failed=options.strategy, text=f"the ranks' models differ by {differ:.1e} after {curve[-1][0]} steps")
        return
    say(
        strategy=options.strategy,
        seed=options.seed,
        parameters=sum(parameter.numel() for parameter in ddp.parameters()),
        curve=curve,
        loss=smooth(curve, options.steps // EVERY - 1),
        **reached(curve, options.target),
    )


def validation_loss(gpt: Any, model: nn.Module, validation: Any) -> float:
    """Mean loss over the held-out windows, of which each rank takes its share."""
    mine = range(dist.get_rank(), len(validation), dist.get_world_size())
    inputs, targets = (torch.stack(each) for each in zip(*(validation[index] for index in mine), strict=True))
    with torch.no_grad():
        loss = gpt.loss_of(model, inputs, targets).double()
    dist.all_reduce(loss)
    return float(loss) / dist.get_world_size()


def smooth(curve: list[tuple[int, float, float]], place: int) -> float:
    return statistics.mean(loss for _, _, loss in curve[max(0, place - MEAN_OF + 1) : place + 1])


def reached(curve: list[tuple[int, float, float]], target: float) -> dict[str, float | None]:
    """When the loss first was at the target; None: not within the steps."""
    for place in range(MEAN_OF - 1, len(curve)):
        if target and smooth(curve, place) <= target:
            return {"target": target, "target_step": curve[place][0], "target_seconds": curve[place][1]}
    return {"target": target or None, "target_step": None, "target_seconds": None}


if __name__ == "__main__":
    raise SystemExit(main())
