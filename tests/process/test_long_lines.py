"""What a rank prints, however long its lines are, holds up neither the rank nor a signal."""

import json
import signal
import time

import pytest
from patience import patient

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

# Trains a step, so that a state is kept, prints lines of many sizes, and then prints until it is told to end.
SCRIPT = """
import json, os, pathlib, signal, sys, time, zlib
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, told = dist.get_rank(), []
signal.signal(signal.SIGTERM, lambda *_: told.append(time.time()))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step != 1:
        continue
    for size in (100, 30_000, 60_000, 200_000, 5_000_000):
        print("x" * size, flush=True)
        os.write(2, b"y" * size + b"\\n")
    # A line without an end, in pieces of a byte: what is looked at again with each byte takes for ever.
    for _ in range(3_000):
        os.write(1, b"z")
    print(flush=True)
    pathlib.Path(f"printed-{rank}").touch()
    while not told:
        os.write(1, b"w" * 200_000 + b"\\n")
        time.sleep(0.02)
    pathlib.Path(f"told-{rank}").write_text(json.dumps(told[0]))
    os._exit(0)
"""
WRITTEN = {
    "out": b"".join(b"x" * size + b"\n" for size in (100, 30_000, 60_000, 200_000, 5_000_000)) + b"z" * 3_000 + b"\n",
    "err": b"".join(b"y" * size + b"\n" for size in (100, 30_000, 60_000, 200_000, 5_000_000)),
}
HOSTS = {1: ("--nproc-per-node", "2"), 2: ("--local-hosts", "2", "--nproc-per-node", "1")}


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("resume", "hosts"),
    [
        ("auto", 1),
        ("auto", 2),
        pytest.param("off", 1, marks=pytest.mark.wide),
        pytest.param("off", 2, marks=pytest.mark.wide),
    ],
)
def test_a_line_of_any_length_holds_up_neither_its_rank_nor_a_signal(paceline, resume, hosts):
    script = paceline.script("train.py", SCRIPT)
    job = paceline.start("run", "--resume", resume, "--duplicate-stdout-filters", "nowhere", *HOSTS[hosts], script)
    printed = [paceline.directory / f"printed-{rank}" for rank in (0, 1)]
    job.until(lambda: all(path.exists() for path in printed), 60)
    sent = time.time()
    job.process.send_signal(signal.SIGTERM)
    job.wait(30)
    for rank in (0, 1):
        told = json.loads((paceline.directory / f"told-{rank}").read_text())
        assert told - sent < patient(1.0)
        for name, written in WRITTEN.items():
            (log,) = paceline.directory.glob(f"**/hosts/*/attempt_0/rank_{rank}.{name}")
            assert log.read_bytes().startswith(written)
