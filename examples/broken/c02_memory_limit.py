"""C02: rank 1 takes more memory than its control group may hold, and the kernel kills it. Needs root and a writable cgroup.

paceline run --nproc-per-node 2 examples/broken/c02_memory_limit.py
"""

import os
from pathlib import Path

import torch
from training import Training, arguments

args = arguments(__doc__, limit_mib=600)
ROOT = Path("/sys/fs/cgroup")
UNIFIED = (ROOT / "cgroup.controllers").exists()


def limited(mib: int) -> None:
    """Move this process into a memory control group of its own below the one it is in."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    below = next(path for _, names, path in lines if (names == "" and UNIFIED) or "memory" in names.split(","))
    base = ROOT if UNIFIED else ROOT / "memory"
    parent = base / below.lstrip("/") if (base / below.lstrip("/")).exists() else base
    group = parent / f"paceline-broken-{os.getpid()}"
    group.mkdir()
    # The group can only go once nobody is in it any more, so a process that outlives this one removes it.
    if os.fork() == 0:
        os.setsid()
        os.execlp(
            "sh", "sh", "-c", f"while kill -0 {os.getppid()} 2>/dev/null; do sleep 0.2; done; sleep 1; rmdir {group}"
        )
    (group / ("memory.max" if UNIFIED else "memory.limit_in_bytes")).write_text(str(mib * 2**20))
    (group / "cgroup.procs").write_text(str(os.getpid()))


held = []
with Training(args) as training:
    if training.is_broken:
        limited(args.limit_mib)
    for step in training.steps():
        if training.is_broken and step >= args.at_step:
            held.append(torch.ones(16 * 2**20))
        training.step()
