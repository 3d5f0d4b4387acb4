"""Where the agent could not have the store held, rank 0 serves it."""

import os
import sys

import pytest
from ports import free_port

from paceline.worker.agent_store import let_ranks_serve_their_own

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


class Rendezvous:
    """torch.distributed.rendezvous as far as it is replaced; its store says whether the agent's is meant, by Python and by C++."""

    @staticmethod
    def _torchelastic_use_agent_store():
        return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"

    @classmethod
    def _create_c10d_store(cls, hostname, port, rank):
        return cls._torchelastic_use_agent_store(), "TORCHELASTIC_USE_AGENT_STORE" in os.environ


@pytest.mark.parametrize("is_fork", [False, True])
@pytest.mark.parametrize(("port", "of_agent"), [(29401, True), (29402, False)])
def test_a_store_is_the_agents_on_its_port_alone_also_in_a_fork_of_no_rank(monkeypatch, is_fork, port, of_agent):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    rendezvous = type("OfTest", (Rendezvous,), {})
    if is_fork:
        # The fork server has no rank's environment when it loads torch.
        monkeypatch.delenv("PACELINE_STORE_PORT", raising=False)
        let_ranks_serve_their_own(rendezvous)
    monkeypatch.setenv("PACELINE_STORE_PORT", "29401")
    if not is_fork:
        let_ranks_serve_their_own(rendezvous)
    assert rendezvous._create_c10d_store("127.0.0.1", port, 1) == (of_agent, of_agent)
    assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"
