"""A rank that is killed inside an exchange of ours: the others end soon with the cause, and no shared memory stays."""

import json
import os
import time

import pytest
from patience import patient

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.fault, pytest.mark.timeout(120)]

# 16 MiB of gradients: an exchange lasts several milliseconds, and the rank dies two after its own began.
KILLED = """
import os, signal, sys, threading, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group(sys.argv[1])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2048, 2048, bias=False), bucket_cap_mb=100)
for step in range(1000):
    loss = model(torch.ones(1, 2048)).sum()
    if dist.get_rank() == 1 and step == 5:
        print("killed at", time.time_ns(), flush=True)
        threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGKILL)).start()
    loss.backward()
    time.sleep(0.02)
"""


def shared_memory() -> set[str]:
    """Files; the directories are the rings of runs, which go with their agents."""
    return {entry.name for entry in os.scandir("/dev/shm") if entry.is_file(follow_symlinks=False)}


@pytest.mark.parametrize(
    "way",
    [("--backend", "paceline"), pytest.param(("--gradients", "direct"), marks=pytest.mark.wide)],
    ids=lambda way: way[1],
)
def test_the_others_end_within_five_seconds_with_the_cause_and_no_memory_is_left(paceline, way):
    before = shared_memory()
    backend, options = ("paceline", ()) if way[0] == "--backend" else ("gloo", way)
    script = paceline.script("killed.py", KILLED)
    job = paceline.start("run", *options, "--nproc-per-node", "2", script, backend)
    finished = job.wait()
    ended = time.time()
    killed = int(next(line for line in finished.out.splitlines() if "killed at" in line).split()[-1]) / 1e9
    assert ended - killed < 5.0, f"{ended - killed:.1f} s\n{finished.err}"
    assert finished.code == 137
    assert "rank 1" in finished.err and "SIGKILL" in finished.err
    assert shared_memory() <= before
    deadline = time.monotonic() + patient(5.0)
    while paceline.left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not paceline.left()
    (run,) = (paceline.directory / ".paceline" / "runs").iterdir()
    told = json.loads(paceline.run("why", str(run), "--json").out)["findings"]
    assert [(finding["code"], finding["ranks"]) for finding in told] == [("C04", [1])]
