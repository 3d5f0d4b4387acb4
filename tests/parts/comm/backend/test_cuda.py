"""Which backend carries a CUDA tensor, decided from the devices that ranks use; and the whole of it where there is a GPU."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from ranks import Ranks, environment_of_ranks
from torch._C._distributed_c10d import HashStore

from paceline.parts.comm.backend.cuda import Devices

TENSOR = torch.zeros(1)


def chosen(devices, ask, nccl="nccl"):
    """What each rank chooses, all of them asking at once."""
    store = HashStore()
    ranks = [
        Devices(store, rank, len(devices), "gloo", nccl, lambda _, own=own: own) for rank, own in enumerate(devices)
    ]
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(ask, ranks, timeout=30))


@pytest.mark.parametrize(
    ("devices", "nccl", "backend"),
    [("abcd", "nccl", "nccl"), ("aab", "nccl", "gloo"), ("a", "nccl", "nccl"), ("ab", None, "gloo")],
)
def test_nccl_needs_a_device_for_each_rank(devices, nccl, backend):
    assert chosen(devices, lambda rank: rank.for_all(TENSOR), nccl) == [backend] * len(devices)


def test_two_ranks_that_exchange_do_not_wait_for_a_third():
    store = HashStore()
    first, second = (Devices(store, rank, 3, "gloo", "nccl", lambda _, own=own: own) for rank, own in enumerate("ab"))
    with ThreadPoolExecutor(2) as pool:
        both = pool.submit(first.for_peer, TENSOR, 1), pool.submit(second.for_peer, TENSOR, 0)
        assert [choice.result(30) for choice in both] == ["nccl", "nccl"]


@pytest.mark.gpu
@pytest.mark.process
@pytest.mark.parametrize(("hosts", "backend"), [("a", "nccl"), ("aa", "gloo")])
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_tensors_over_nccl_alone_and_over_gloo_on_one_device(hosts, backend, tmp_path, user_environment):
    ranks = Ranks("run_cuda.py", "paceline", hosts, tmp_path, environment_of_ranks(user_environment))
    ranks.start()
    ranks.wait(110)
    for rank in ranks.ranks:
        left = json.loads(rank.left.read_text())
        assert left["failed"] == {} and left["carried_by"] == backend
