"""A killed rank: what the restart cost is told on the terminal, in the recording and by every verb that shows the run."""

import json

import pytest

from paceline.diagnosis.restart_costs import totals

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SCRIPT = """
import os, signal, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if "load" in sys.argv and os.path.exists("state.pt"):
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    first = state["step"]
for step in range(first, 8):
    if step == 6 and attempt == 0 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 3 and attempt == 0:
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": 4}, "state.pt")
        dist.barrier()
"""


def facts(paceline, verb, *argv):
    finished = paceline.run(verb, *argv, "--json")
    assert finished.code == 0, finished.err
    return json.loads(finished.out)


@pytest.mark.slow
def test_a_restart_from_nothing_is_told_with_the_steps_that_it_lost(paceline):
    script = paceline.script("train.py", SCRIPT)
    finished = paceline.run("run", "--nproc-per-node", "3", "--max-restarts", "1", script)
    assert finished.code == 0, finished.err
    assert "warning[F14]: attempt 1 began again from the start of the script; 6 steps are made again" in finished.err
    assert "restarts    1 restart, 6 steps lost, began again (F14)" in finished.err
    assert totals(paceline.evidence().events).lost_steps == 6
    (run,) = facts(paceline, "ps")["runs"]
    for shown in (run, facts(paceline, "why"), facts(paceline, "top", "--once")):
        assert (shown["restart_count"], shown["lost_step_count"]) == (1, 6)


def test_a_restart_from_a_checkpoint_is_told_with_the_steps_since_then(paceline):
    script = paceline.script("train.py", SCRIPT)
    finished = paceline.run("run", "--nproc-per-node", "3", "--max-restarts", "1", script, "load")
    assert finished.code == 0, finished.err
    checkpoint = paceline.directory / "state.pt"
    assert f"attempt 1 went on from a checkpoint, {checkpoint}; 2 steps are made again" in finished.err
    assert "F14" not in finished.err
    assert totals(paceline.evidence().events).lost_steps == 2
