"""SIGUSR1 or SIGUSR2 tells a job with `--resume auto` that it will be ended: the newest step is saved, the training goes on."""

import signal

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
# Both ranks stand in the middle of their loops until the handler of rank 1 is called. Rank 0 has none.
SCRIPT = """\
import os, pathlib, signal, time
import torch
told = pathlib.Path("told")
if os.environ["RANK"] == "1":
    signal.signal(signal.SIGUSR1, lambda number, frame: told.touch())
    signal.signal(signal.SIGUSR2, lambda number, frame: told.touch())
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    if step == 10:
        print("standing", flush=True)
        while not told.exists():
            time.sleep(0.01)
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_a_notice_saves_the_newest_step_and_reaches_only_the_ranks_that_have_a_handler(paceline, name):
    (paceline.directory / "train.py").write_text(SCRIPT)
    job = paceline.start("run", "--nproc-per-node", "2", "--resume", "auto", "train.py")
    job.until_printed("standing", 2)
    job.process.send_signal(signal.Signals[name])
    finished = job.wait()
    assert finished.code == 0, finished.err
    assert f"{name} at the agent: the newest kept step is saved now, the training goes on" in finished.err
    assert "restart" not in finished.err
