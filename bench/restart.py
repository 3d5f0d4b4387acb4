"""Does a job come back after a rank was killed, and how soon? `paceline run` beside torchrun, in turn, on this machine.

    .venv/bin/python bench/restart.py              50 kills for paceline, as many with forks, 6 for torchrun
    .venv/bin/python bench/restart.py -n 10 --torchrun 10

One trial: 2 ranks on gloo train a small model for some seconds; then one of them sends itself SIGKILL in the middle of its collectives,
and the job may restart once. It counts as recovered when the second attempt makes a step and the job ends with 0 within the
limit; the time is from the kill to the end of the first step of the second attempt. A trial that runs into the limit is a hang, its
processes are ended, and it counts as lost. "forks" is paceline with --set fork_server=auto.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT_SECONDS = 60.0
LAUNCHERS = {
    "paceline": [sys.executable, "-m", "paceline", "run", "--set", "progress=off"],
    "forks": [sys.executable, "-m", "paceline", "run", "--set", "progress=off", "--set", "fork_server=auto"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
}
SCRIPT = """\
import os, signal, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
again = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
model = DistributedDataParallel(torch.nn.Linear(100, 100))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3 if again else 60):
    model(torch.ones(4, 100)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0 and again and not step:
        print("back", time.time_ns(), flush=True)
    time.sleep(0.1)
if dist.get_rank() == 1 and not again:
    print("kill", time.time_ns(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Trial:
    """`seconds` None: the job did not come back. `hung`: it was still there at the limit."""

    seconds: float | None
    hung: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--trials", type=int, default=50)
    parser.add_argument("--torchrun", type=int, default=6, help="trials of torchrun, which can take a minute each")
    args = parser.parse_args()
    wanted = {"paceline": args.trials, "forks": args.trials, "torchrun": args.torchrun}
    trials: dict[str, list[Trial]] = {name: [] for name in LAUNCHERS}
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        script = Path(folder) / "killed_once.py"
        script.write_text(SCRIPT)
        for turn in range(max(wanted.values())):
            for name in LAUNCHERS:
                if turn < wanted[name]:
                    trials[name].append(trial(name, script, Path(folder)))
    print(f"{'':9} {'recovered':>10} {'hung':>5}  median seconds from the kill to the next step (lowest..highest)")
    for name, results in trials.items():
        print(row(name, results))
    return 0 if all(result.seconds is not None for name in ("paceline", "forks") for result in trials[name]) else 1


def trial(name: str, script: Path, directory: Path) -> Trial:
    job = subprocess.Popen(
        [*LAUNCHERS[name], "--nproc-per-node", "2", "--max-restarts", "1", str(script)],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = job.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        end(job)
        return Trial(None, hung=True)
    stamps = {line.split()[0]: int(line.split()[1]) for line in out.splitlines() if line.startswith(("kill", "back"))}
    if job.returncode != 0 or "back" not in stamps:
        return Trial(None, hung=False)
    return Trial((stamps["back"] - stamps["kill"]) / 1e9, hung=False)


def end(job: subprocess.Popen[str]) -> None:
    """SIGTERM lets the launcher end its ranks, which are in sessions of their own; SIGKILL what is left."""
    os.killpg(job.pid, signal.SIGTERM)
    deadline = time.monotonic() + 40.0
    while job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
    job.communicate()


def row(name: str, trials: Sequence[Trial]) -> str:
    seconds = [result.seconds for result in trials if result.seconds is not None]
    times = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}..{max(seconds):.2f})" if seconds else "-"
    hung = sum(result.hung for result in trials)
    return f"{name:9} {f'{len(seconds)} of {len(trials)}':>10} {hung:>5}  {times}"


if __name__ == "__main__":
    sys.exit(main())
