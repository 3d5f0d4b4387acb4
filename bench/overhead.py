"""What paceline costs: CPU microseconds per step in the rank, CPU milliseconds per second of the agent.

    python bench/overhead.py                    both parts
    python bench/overhead.py --collectives 4    with four all_reduce calls from Python in every step
    python bench/overhead.py --backend paceline  on a process group of our own, which also tells its observer of every exchange

In the rank: one process trains a small DDP model from a data loader in blocks of steps. In a block
"with" every instrument is in place, in a block "without" torch's own functions are back where they were. Blocks alternate at random;
a pair is two neighbours. Read by the training thread's own CPU clock. The control compares blocks "without" among themselves, in the same
way; where its 95 % interval is wider than that of the comparison, the machine was too restless and the result is void.

The agent: `paceline run` with two ranks that compute for a while; CPU time of the agent from /proc/<pid>/stat, over the time between two
readings while the ranks are at work.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
SITE = SOURCE / "paceline" / "worker" / "site"
STEP_OF_INTEREST_MS = 20.0
BUDGET_US = 20.0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=10, help="steps per block")
    arguments.add_argument("--rounds", type=int, default=300, help="pairs of blocks, and as many for the control")
    arguments.add_argument("--layers", type=int, default=20, help="linear layers of the model: two parameters each")
    arguments.add_argument(
        "--collectives", type=int, default=0, help="all_reduce calls from Python in each step, beside DDP's own"
    )
    arguments.add_argument("--backend", default="gloo", help="the process group's backend (default gloo)")
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument(
        "--agent-seconds", type=float, default=10.0, help="how long to watch the agent; 0: not at all"
    )
    options = arguments.parse_args()
    if options.inside:
        print(json.dumps(measure_steps(options)))
        return 0
    rank = in_a_rank(options)
    print(in_rank_report(rank))
    if options.agent_seconds:
        print(agent_report(options.agent_seconds))
    return 0 if not rank["void"] and rank["us_per_step"][0] <= BUDGET_US else 1


# -- in the rank


def in_a_rank(options: argparse.Namespace) -> dict[str, Any]:
    """Start this file again as a worker, in the environment that the agent gives one."""
    from paceline.part import rank_modules

    with tempfile.TemporaryDirectory(prefix="pl-") as directory:
        environment = os.environ | {
            "PYTHONPATH": str(SITE),
            "PACELINE_RUN_ID": "r-bench",
            "PACELINE_RING_DIR": directory,
            "PACELINE_SOCKET_DIR": directory,
            "PACELINE_ERROR_DIR": directory,
            "PACELINE_PARTS": rank_modules(),
            "TORCH_FR_BUFFER_SIZE": "2000",
            "OMP_NUM_THREADS": "1",
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
        }
        command = [
            sys.executable,
            __file__,
            "--inside",
            *(f"--{name}={getattr(options, name)}" for name in ("steps", "rounds", "layers", "collectives", "backend")),
        ]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_steps(options: argparse.Namespace) -> dict[str, Any]:
    steps = options.steps
    train = trainer(options.layers, options.collectives, options.backend)
    with without_instruments():
        train(2 * steps)
    train(2 * steps)
    compared, control = [], []
    for _ in range(options.rounds):
        compared.append(pair(train, steps, with_instruments=True))
        # Two for one: the control is to be the narrower of the two on a machine that behaves.
        control += [pair(train, steps, with_instruments=False) for _ in range(2)]
    differences = [with_us - without_us for with_us, without_us in compared]
    ratio, control_ratio = interval([a / b for a, b in compared]), interval([a / b for a, b in control])
    return {
        "step_us": statistics.mean(without for _, without in compared),
        "us_per_step": interval(differences),
        "control_us_per_step": interval([a - b for a, b in control]),
        "ratio": ratio,
        "control_ratio": control_ratio,
        "void": control_ratio[1] > ratio[1],
    }


def pair(train: Callable[[int], float], steps: int, *, with_instruments: bool) -> tuple[float, float]:
    """CPU µs per step of two neighbouring blocks: the one under test and the one without instruments."""

    def under_test() -> float:
        if with_instruments:
            return train(steps)
        with without_instruments():
            return train(steps)

    def plain() -> float:
        with without_instruments():
            return train(steps)

    if random.random() < 0.5:
        return under_test(), plain()
    second = plain()
    return under_test(), second


def trainer(layers: int, collectives: int, backend: str) -> Callable[[int], float]:
    """A function that trains so many steps and returns the CPU µs that one took."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(layers)))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = TensorDataset(torch.randn(16 * 4096, 64))
    trainer.ddp = model  # type: ignore[attr-defined]

    def train(steps: int) -> float:
        batches = iter(DataLoader(data, batch_size=16))
        begin_ns = time.thread_time_ns()
        for _ in range(steps):
            (batch,) = next(batches)
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            for _ in range(collectives):
                dist.all_reduce(loss.detach())
        return (time.thread_time_ns() - begin_ns) / steps / 1000

    return train


@contextmanager
def without_instruments() -> Iterator[None]:
    """torch as it came: every wrapper replaced by what it wraps, no hook, DDP's own sample rate."""
    import torch
    from torch._C import _distributed_c10d as c10d

    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    owners: list[Any] = [c10d.Work, c10d.ProcessGroup, torch.utils.data.dataloader._BaseDataLoaderIter]
    for base in (c10d.Work, c10d.ProcessGroup):
        owners += sys.modules["paceline.worker.our_groups"].loaded_classes(base)
    comm = sys.modules["paceline.parts.comm.observer"]
    observer = comm.observer()
    wrapped = [
        (owner, name, member)
        for owner in owners
        for name, member in vars(owner).items()
        if "paceline" in getattr(getattr(member, "__code__", None), "co_filename", "")
        and hasattr(member, "__wrapped__")
    ]
    assert len(wrapped) > 3 and len(hooks) == 1, "the instruments are not in place"
    kept = dict(hooks)
    reducer = trainer.ddp.reducer  # type: ignore[attr-defined]
    hooks.clear()
    comm.observe(comm.Unobserved())
    for owner, name, member in wrapped:
        setattr(owner, name, member.__wrapped__)
    sampled = _sample_rate()
    reducer._set_ddp_runtime_logging_sample_rate(100)
    try:
        yield
    finally:
        reducer._set_ddp_runtime_logging_sample_rate(sampled)
        for owner, name, member in wrapped:
            setattr(owner, name, member)
        comm.observe(observer)
        hooks.update(kept)


def _sample_rate() -> int:
    return sys.modules["paceline.worker.instruments.ddp"].sample_every(trainer.ddp)  # type: ignore[attr-defined]


def interval(values: list[float]) -> tuple[float, float]:
    """Mean without the outer tenth on each side (a pair in which the machine did something else), and half its 95 % interval."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    kept = ordered[cut : len(ordered) - cut]
    # Winsorised deviation: the interval of a trimmed mean (Tukey and McLaughlin).
    clipped = [min(max(value, kept[0]), kept[-1]) for value in ordered]
    half = 1.96 * statistics.stdev(clipped) / (len(kept) / len(ordered) * math.sqrt(len(ordered)))
    return statistics.mean(kept), half


def in_rank_report(rank: dict[str, Any]) -> str:
    def shown(name: str, digits: int) -> str:
        mean, half = rank[name]
        return f"{mean:.{digits}f} ± {half:.{digits}f}"

    share = rank["us_per_step"][0] / (STEP_OF_INTEREST_MS * 1000)
    return "\n".join(
        [
            f"in the rank    {shown('us_per_step', 1)} µs CPU per step (wanted: at most {BUDGET_US:.0f}), of {rank['step_us']:.0f} µs",
            f"  control      {shown('control_us_per_step', 1)} µs",
            f"  ratio        {shown('ratio', 4)}   control {shown('control_ratio', 4)}   (95 % intervals)",
            f"  share        {share:.3%} of a step of {STEP_OF_INTEREST_MS:.0f} ms",
            *(["  VOID         the control is wider than the comparison"] if rank["void"] else []),
        ]
    )


# -- the agent

WORKER = "import time\nend = time.time() + {seconds}\nwhile time.time() < end: sum(range(10000))\n"


def agent_report(seconds: float) -> str:
    """CPU ms per second of the agent while two ranks are at work, and the same as a share of the ranks' cores."""
    with tempfile.TemporaryDirectory(prefix="pl-") as directory:
        script = Path(directory) / "busy.py"
        script.write_text(WORKER.format(seconds=seconds + 4))
        environment = os.environ | {"PYTHONPATH": str(SOURCE), "PACELINE_HOME": directory}
        command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", str(script)]
        agent = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            time.sleep(2)
            if agent.poll() is not None:
                assert agent.stderr is not None
                return f"agent          not measured: paceline run ended at once: {agent.stderr.read().decode()[-300:]}"
            begin, begin_seconds = time.monotonic(), cpu_seconds(agent.pid)
            time.sleep(seconds)
            spent, passed = cpu_seconds(agent.pid) - begin_seconds, time.monotonic() - begin
        finally:
            agent.terminate()
            agent.communicate()
    return f"agent          {spent / passed * 1000:.2f} ms CPU per second, {spent / passed / 2:.3%} of the two ranks' cores"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main())
