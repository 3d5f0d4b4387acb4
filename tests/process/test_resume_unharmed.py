"""Jobs in which no rank is killed: with `--resume auto` they print, write and end as with `--resume off`."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

MODEL = """
import os, signal, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
"""
SPAWNS = """
import os, tempfile, torch, torch.distributed as dist, torch.multiprocessing as mp
def train(rank, file):
    store = dist.FileStore(file, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    left = 5
    while left:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        left -= 1
    total = sum(parameter.sum().item() for parameter in model.parameters())
    # One write: both ranks share the pipe.
    print(f"{rank} {total}\\n", end="", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    # Not in the directory that is compared: torch leaves this file behind or not, as the ranks' ends fall.
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(os.path.join(folder, "store"),), nprocs=2)
"""
WITHOUT_TORCH = """
import sys
left = 3
while left:
    left -= 1
    print(left)
for name in "ab":
    open(name, "w").write(name)
sys.exit(4)
"""
# What is run -> the script; options; the exit code.
JOBS = {
    "without torch": (WITHOUT_TORCH, (), 4),
    "without a step": (MODEL + "for _ in range(3):\n    print(model(torch.ones(1, 4)).item())\n", (), 0),
    "an exception and a restart": (
        MODEL
        + "log = open('log', 'a')\nfor n in range(9):\n    log.write(f'{step()}\\n')\n    if n == 6: raise ValueError(n)\n",
        ("--max-restarts", "1"),
        1,
    ),
    "a handler of SIGTERM": (
        MODEL
        + "asked = []\nsignal.signal(signal.SIGTERM, lambda *_: asked.append(1))\nfor n in range(99):\n    print(n, step(), flush=True)\n"
        + "    if n == 6: os.kill(os.getpid(), signal.SIGTERM)\n    if asked: sys.exit(3)\n",
        ("--set", "fork_server=off"),
        3,
    ),
    "mp.spawn": (SPAWNS, ("--on-hang", "stop"), 0),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", JOBS)
def test_a_job_does_the_same_with_resume_as_without_it(paceline, tmp_path, name):
    text, options, code = JOBS[name]
    script = paceline.script("train.py", text)
    left = []
    for way in ("off", "auto"):
        place = tmp_path / way
        place.mkdir()
        finished = paceline.run("run", "--resume", way, *options, script, cwd=place)
        assert finished.code == code, finished.err
        left.append((sorted(finished.out.splitlines()), files_of(place), finished.err.count("Traceback")))
    assert left[0] == left[1]


def files_of(place: Path) -> dict[str, bytes]:
    """What the script has left in its directory."""
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
