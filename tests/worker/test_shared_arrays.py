"""Shared memory of numpy arrays, which TensorFlow's ranks of one host use: sums, broadcasts, errors, and no torch."""

import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.distributed as dist

from paceline.parts.comm.transports.peers import PeerLost
from paceline.parts.comm.transports.shared_memory.transport import SharedMemory
from paceline.parts.sagemaker.smdistributed.tensorflow.shared_memory import SharedArrays

pytestmark = pytest.mark.timeout(60)


def of_each_rank(size, call, kind=SharedArrays):
    """What `call(memory, rank)` gives on each rank of one host."""
    store = dist.HashStore()

    def rank(number):
        memory = kind(store, number, size, timeout_seconds=30)
        try:
            return call(memory, number)
        finally:
            memory.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, range(size)))


def values(rank, count, dtype):
    return np.random.default_rng(rank).normal(size=count).astype(dtype)


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize("count", (0, 1, 1000, 3_000_001))
def test_a_mean_is_to_the_last_bit_what_torch_ranks_get(size, count):
    found = of_each_rank(size, lambda memory, rank: memory.all_reduce(values(rank, count, np.float32), "average"))

    def by_torch(memory, rank):
        tensor = torch.from_numpy(values(rank, count, np.float32))
        memory.all_reduce(tensor, "avg")
        return tensor.numpy()

    expected = of_each_rank(size, by_torch, SharedMemory)
    assert all(np.array_equal(array, expected[0]) for array in found + expected)


@pytest.mark.parametrize("dtype", (np.float64, np.float16, np.int32, np.uint8))
@pytest.mark.parametrize(("op", "expected"), [("sum", np.add), ("min", np.minimum), ("max", np.maximum)])
def test_ops_and_types(dtype, op, expected):
    sources = [(values(rank, 7, np.float64) * 9).astype(dtype) for rank in range(2)]
    for found in of_each_rank(2, lambda memory, rank: memory.all_reduce(sources[rank], op)):
        assert found.dtype == dtype and np.array_equal(found, expected(*sources))


def test_shapes_are_kept_and_what_was_given_is_not_changed():
    given = [np.full((2, 3), float(rank)) for rank in range(2)]
    numbers = [np.float32(rank) for rank in range(2)]
    found = of_each_rank(
        2, lambda memory, rank: (memory.all_reduce(given[rank], "sum"), memory.all_reduce(numbers[rank], "sum"))
    )
    assert all(array.shape == (2, 3) and (array == 1.0).all() and number.shape == () for array, number in found)
    assert [array[0, 0] for array in given] == [0.0, 1.0]


@pytest.mark.parametrize("root", (0, 2))
@pytest.mark.parametrize("dtype", (np.bool_, np.int8, np.complex128))
def test_a_broadcast_gives_every_rank_the_array_of_the_root(root, dtype):
    sources = [np.full((2, 2), rank).astype(dtype) for rank in range(3)]
    for found in of_each_rank(3, lambda memory, rank: memory.broadcast(sources[rank], root)):
        assert found.dtype == dtype and np.array_equal(found, sources[root])


def test_ranks_that_call_different_things_are_told_so():
    def call(memory, rank):
        with pytest.raises((ValueError, PeerLost), match="call different things"):
            memory.all_reduce(np.zeros(4 + rank), "sum")

    of_each_rank(2, call)


def test_a_rank_that_leaves_is_named():
    def call(memory, rank):
        if rank == 0:
            with pytest.raises(PeerLost, match="rank 1, on this host, ended in the middle of an exchange"):
                memory.all_reduce(np.zeros(4), "sum")

    of_each_rank(2, call)


def test_a_wait_may_have_no_limit():
    begun = threading.Event()

    def call(memory, rank):
        memory.timeout_seconds = math.inf
        begun.set() if rank == 0 else begun.wait(30)
        return memory.all_reduce(np.full(4, rank + 1.0), "sum")

    assert [array.tolist() for array in of_each_rank(2, call)] == [[3.0] * 4] * 2


def test_nothing_of_torch_is_loaded():
    script = (
        "import sys, paceline.parts.sagemaker.smdistributed.tensorflow.shared_memory; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "False\n"
