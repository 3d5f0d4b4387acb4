"""`--gradients auto` beside plain DDP, step for step: what it chooses, when, and what a step takes from then on.

    python bench/tuner.py                                one host, 2 ranks: a model that computes, and one that exchanges
    python bench/tuner.py --hosts 4 --delay-ms 10        4 hosts 10 ms apart (--rate-mbit 100: at 100 Mbit/s); needs root

Every rank trains two equal models in turn, one under plain DDP and one under `auto`, so that whatever else the machine does falls on
both. `auto` is not shown the time of the other model. Until it is decided its steps are its own price; after that, what counts is the
ratio of the medians, and the interval in which the median of the ratios of neighbouring steps lies (95 %, bootstrap). Wanted: at most
1.01, or the interval reaches below it.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
sys.path.insert(0, str(SOURCE))
MOST_SLOWER = 1.01
RANKS_ON_ONE_HOST = 2
GIVE_UP_SECONDS = 600
# Name -> (width, layers, batch): what it is for.
MODELS = {
    "computes": (512, 6, 512),
    "exchanges": (1024, 8, 8),
    "small": (256, 8, 32),
}


@dataclass(frozen=True)
class Outcome:
    """One model on one network. Units: seconds; `price_seconds`: what measuring cost beyond as many steps of plain DDP."""

    model: str
    said: list[str]
    strategy: str
    steps_until_decided: int
    price_seconds: float
    plain_seconds: float
    auto_seconds: float
    ratio: float
    interval: tuple[float, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--hosts", type=int, default=1, help="hosts with networks of their own, one rank each (1: none, 2 ranks)"
    )
    parser.add_argument("--delay-ms", type=float, default=0.0, help="one way from host to host")
    parser.add_argument("--rate-mbit", type=float, default=0.0, help="of each host's link; 0: not limited")
    parser.add_argument("--models", default="", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=100, help="pairs of steps after the decision")
    parser.add_argument("--allow-lossy", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.models = options.models or ("computes,exchanges" if options.hosts == 1 else "small")
    if options.inside:
        inside(options)
        return 0
    found = measured(options)
    if options.json:
        print(
            json.dumps(
                {"schema": "paceline.bench.tuner/1", "results": [asdict(outcome) for outcome in found]}, indent=2
            )
        )
    else:
        print("\n\n".join(as_text(outcome) for outcome in found))
    return 0 if all(outcome.interval[0] <= MOST_SLOWER for outcome in found) else 1


def measured(options: argparse.Namespace) -> list[Outcome]:
    """Start this file again as every rank, and take the first one's word."""
    from paceline.parts.lab.emulate.hosts import Hosts

    argv = [sys.executable, os.path.abspath(__file__), "--inside", *sys.argv[1:]]
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts(options.hosts)) if options.hosts > 1 else None
        if hosts is not None:
            for index in range(options.hosts):
                # Half of it on each of the two links that a message passes.
                hosts.shape(index, rate_mbit=options.rate_mbit or None, delay_ms=options.delay_ms / 2 or None)
        count = options.hosts if hosts is not None else RANKS_ON_ONE_HOST
        ranks = []
        for rank in range(count):
            environment = os.environ | {
                "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": "29571", "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1" if hosts is None else hosts.address(0),
                "PACELINE_HOST": "here" if hosts is None else hosts.names[rank],
            }  # fmt: skip
            prefix = () if hosts is None else hosts.prefix(rank)
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            ranks.append(subprocess.Popen([*prefix, *argv], env=environment, stdout=out, text=True))
            stack.callback(ranks[-1].kill)
        said, _ = ranks[0].communicate(timeout=GIVE_UP_SECONDS)
        codes = [rank.wait(timeout=60) for rank in ranks]
    if any(codes):
        raise SystemExit(f"the ranks ended with {codes}")
    return [Outcome(**line) for line in map(json.loads, said.splitlines())]


# -- in the ranks


def inside(options: argparse.Namespace) -> None:
    """Train every model in both ways; rank 0 prints one line of JSON for each."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in options.models.split(","):
        outcome = beside_plain(name, options)
        if dist.get_rank() == 0:
            print(json.dumps(asdict(outcome)), flush=True)
    dist.barrier()
    dist.destroy_process_group()


class OwnClock:
    """Time that passes in one of two models only."""

    def __init__(self) -> None:
        self.elsewhere = 0.0

    def __call__(self) -> float:
        return time.monotonic() - self.elsewhere


def beside_plain(name: str, options: argparse.Namespace) -> Outcome:
    """Step the two models in turn until `auto` has decided, and `rounds` times more."""
    from paceline.parts.comm.auto.tuner import tune

    clock, said = OwnClock(), list[str]()
    (_, plain), (model, auto) = trained(*MODELS[name]), trained(*MODELS[name])
    began = time.monotonic()
    host = os.environ["PACELINE_HOST"]
    tuner = tune(model, host_key=host, allow_lossy=options.allow_lossy, say=said.append, clock=clock)
    price = time.monotonic() - began
    assert tuner is not None
    count, pairs = 0, list[tuple[float, float]]()
    while len(pairs) < options.rounds:
        undecided, before, after = not tuner.is_over, 0.0, 0.0
        # In turn first: whoever comes second finds the other ranks where the first one left them.
        for step in (plain, auto) if len(pairs) % 2 else (auto, plain):
            seconds = step()
            if step is plain:
                before, clock.elsewhere = seconds, clock.elsewhere + seconds
            else:
                after = seconds
        if undecided:
            count, price = count + 1, price + after - before
        else:
            pairs.append((before, after))
    plains, autos = zip(*pairs, strict=True)
    return Outcome(
        model=name,
        said=said,
        strategy=tuner.strategy,
        steps_until_decided=count,
        price_seconds=price,
        plain_seconds=statistics.median(plains),
        auto_seconds=statistics.median(autos),
        ratio=statistics.median(autos) / statistics.median(plains),
        interval=bootstrap([after / before for before, after in pairs]),
    )


def trained(width: int, layers: int, batch: int) -> tuple[Any, Any]:
    """A model under plain DDP, and a function that makes one step of it and returns its seconds."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    inputs = torch.randn(batch, width)

    def step() -> float:
        began = time.monotonic()
        optimizer.zero_grad()
        ddp(inputs).pow(2).mean().backward()
        optimizer.step()
        return time.monotonic() - began

    return ddp, step


def bootstrap(ratios: list[float], *, samples: int = 2000) -> tuple[float, float]:
    """Where the median lies with 95 %."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(samples))
    return medians[samples // 40], medians[-samples // 40]


def as_text(outcome: Outcome) -> str:
    low, high = outcome.interval
    return "\n".join(
        [
            f"{outcome.model}: {outcome.strategy}, decided after {outcome.steps_until_decided} steps "
            f"and {outcome.price_seconds:.2f} s more than plain DDP took for them",
            *(f"  {text}" for text in outcome.said),
            f"  a step after that: plain DDP {outcome.plain_seconds * 1e3:.1f} ms, auto {outcome.auto_seconds * 1e3:.1f} ms, "
            f"ratio {outcome.ratio:.3f} (of neighbours {low:.3f} to {high:.3f})",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
