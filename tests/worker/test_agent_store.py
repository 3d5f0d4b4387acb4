"""Where the agent could not have the store held, rank 0 serves it."""

import sys

import pytest
from ports import free_port

pytestmark = pytest.mark.process

SUMS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print(int(one), flush=True)
dist.barrier()
"""


def test_rank_0_serves_the_store_that_nobody_holds(workplace, written):
    (workplace.directory / "sockets" / "store.not_held").touch()
    port = free_port()
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True", "PACELINE_STORE_PORT": str(port), "MASTER_PORT": str(port)}
    lefts = workplace.run(sys.executable, written(SUMS), world_size=2, **variables)
    assert [(left.code, left.out) for left in lefts] == [(0, "2\n")] * 2, lefts
