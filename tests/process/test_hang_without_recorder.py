"""Hangs and healthy pauses where torch's flight recorder shows nothing, as in older releases: stacks and CPU time decide."""

import json

import pytest
from variants import all_but

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(200)]

# What turns the recorder off.
BLIND = {"TORCH_FR_BUFFER_SIZE": "0"}
SIZES = pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.wide), 3])


def stopped_on_a_hang(paceline, script, *argv, ranks=2, **more):
    return paceline.run(
        "run", "--nproc-per-node", str(ranks), "--on-hang", "stop", script, *argv, timeout=180.0, **{**BLIND, **more}
    )


def why(paceline):
    return json.loads(paceline.run("why", "--json").out)


def confirmations(paceline):
    return [event["confirmation"] for event in paceline.evidence().events if event["event"] == "hang_confirmed"]


@SIZES
def test_the_sleeper_is_named_by_the_stacks_and_the_job_stopped(paceline, examples, ranks):
    script = str(examples / "broken" / "n01_asleep.py")
    done = stopped_on_a_hang(paceline, script, "--rank", str(ranks - 1), ranks=ranks)
    assert done.code == 202, done.err
    answer = why(paceline)
    (finding,) = answer["findings"]
    assert (finding["code"], finding["ranks"]) == ("N01", [ranks - 1])
    assert any("n01_asleep.py:14" in line for line in finding["saw"])
    assert f"rank {ranks - 1} has stood still while rank" in done.err
    assert any("flight recorder" in line for line in answer["not_judged"])


@SIZES
def test_an_evaluation_of_every_rank_is_never_stopped(paceline, examples, ranks):
    script = str(examples / "broken" / "decoy_all_evaluate.py")
    done = stopped_on_a_hang(paceline, script, "--steps", "30", ranks=ranks)
    assert done.code == 0, done.err
    assert not confirmations(paceline)


@pytest.mark.wide
def test_a_pause_of_every_rank_is_never_stopped(paceline, examples):
    script = str(examples / "broken" / "decoy_all_pause.py")
    done = stopped_on_a_hang(paceline, script, "--steps", "30")
    assert done.code == 0, done.err
    assert not confirmations(paceline)


WAITS = {
    "receives that cross": ("dist.recv(torch.ones(1), src=1 - rank)", "wait for each other"),
    "a message that is never sent": (
        "dist.recv(torch.ones(1), src=1) if rank == 0 else time.sleep(3600)",
        "rank 1 has stood still while rank 0 waits for it",
    ),
    "a key that is never set": (
        "store.get('never') if rank == 0 else dist.barrier()",
        "rank 0 has stood still while rank 1 waits for it",
    ),
}
SCRIPT = """
import time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
for step in range(20):
    dist.all_reduce(torch.ones(1))
    optimizer.step()
    time.sleep(0.02)
{}
"""


@pytest.mark.parametrize("what", all_but(["a message that is never sent"], WAITS))
def test_other_waits_are_confirmed_too(paceline, what):
    line, reason = WAITS[what]
    done = stopped_on_a_hang(paceline, paceline.script("waits.py", SCRIPT.format(line)))
    assert done.code == 202, done.err
    assert why(paceline)["findings"]
    assert reason in paceline.evidence().run.reason


def test_one_rank_that_never_comes_to_the_rendezvous_is_named(paceline):
    script = paceline.script(
        "late.py",
        "import os, time\nimport torch.distributed as dist\n"
        "if os.environ['RANK'] == '1':\n    time.sleep(3600)\n"
        "dist.init_process_group('gloo')\n",
    )
    done = stopped_on_a_hang(paceline, script)
    assert done.code == 202, done.err
    assert "rank 1 has stood still while rank 0 waits for it" in paceline.evidence().run.reason
