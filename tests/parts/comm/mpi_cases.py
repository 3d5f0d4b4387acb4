"""The backend over MPI, case by case, on 4 ranks that mpirun started without a word about addresses. Writes what failed to DIRECTORY."""

import json
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paceline.parts.comm import observer
from paceline.parts.comm.backends import register
from paceline.parts.comm.mpi import buffers

SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
SIZE = 4


def raises(kind, text, action, *args, **kwargs):
    try:
        work = action(*args, **kwargs)
        if work is not None:
            work.wait()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def case_rank_and_size_are_those_of_mpi():
    from mpi4py import MPI

    assert (RANK, dist.get_world_size()) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    assert dist.get_backend() == "paceline_mpi" and dist.group.WORLD.group_name == "0"


def case_reductions_of_numbers():
    values = [index + 1 for index in range(SIZE)]
    expected = {"SUM": 10, "PRODUCT": 24, "MIN": 1, "MAX": 4, "AVG": 2.5}
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.int8,
        torch.uint8,
    ):
        for op, result in expected.items():
            if op == "AVG" and not dtype.is_floating_point:
                continue
            tensor = torch.full((2, 3), values[RANK], dtype=dtype)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            assert tensor.tolist() == [[result if dtype.is_floating_point else int(result)] * 3] * 2, (
                dtype,
                op,
                tensor,
            )


def case_reductions_of_bits_and_truths():
    for op, result in (("BAND", 0), ("BOR", 15), ("BXOR", 15)):
        tensor = torch.tensor([1 << RANK])
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        assert tensor.item() == result, op
    for op, result in (
        ("SUM", [True, False]),
        ("MAX", [True, False]),
        ("MIN", [False, False]),
        ("BAND", [False, False]),
    ):
        tensor = torch.tensor([RANK == 1, False])
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        assert tensor.tolist() == result, op


def case_complex_numbers():
    tensor = torch.full((3,), complex(RANK, 1))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [complex(6, 4)] * 3


def case_a_tensor_that_is_not_contiguous():
    whole = torch.zeros(4, 6)
    part = whole.t()[1:3]
    part.fill_(RANK)
    dist.all_reduce(part)
    assert whole.sum().item() == 6 * 8 and whole[0].tolist() == [0, 6, 6, 0, 0, 0]


def case_nothing_in_it():
    dist.all_reduce(torch.empty(0))
    dist.broadcast(torch.empty(0, dtype=torch.int64), 2)
    dist.all_gather([torch.empty(0)] * SIZE, torch.empty(0))


def case_more_than_one_piece():
    before, buffers.PIECE_ELEMENTS = buffers.PIECE_ELEMENTS, 1000
    try:
        tensor = torch.arange(2500.0) + RANK
        dist.all_reduce(tensor)
        assert torch.equal(tensor, 4 * torch.arange(2500.0) + 6)
        tensor = torch.arange(2500.0) + RANK
        dist.reduce(tensor, 3, op=AVG)
        assert RANK != 3 or torch.equal(tensor, torch.arange(2500.0) + 1.5)
    finally:
        buffers.PIECE_ELEMENTS = before


def case_a_large_one():
    tensor = torch.full((3_000_000,), RANK, dtype=torch.int64)
    dist.all_reduce(tensor)
    assert int(tensor.min()) == int(tensor.max()) == 6


def case_several_at_once():
    tensors = [torch.full((index + 1,), float(RANK)) for index in range(3)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert [tensor.tolist() for tensor in tensors] == [[6.0], [6.0] * 2, [6.0] * 3]


def case_reduce_to_each_root():
    for root in range(SIZE):
        tensor = torch.full((3,), RANK, dtype=torch.bfloat16)
        dist.reduce(tensor, root)
        assert tensor.tolist() == [6 if root == RANK else RANK] * 3


def case_broadcast_from_each_root():
    for root in range(SIZE):
        for dtype in (torch.float32, torch.bool, torch.complex64, torch.int16):
            tensor = torch.full((3, 2), root == RANK).to(dtype)
            dist.broadcast(tensor.t(), root)
            assert bool(tensor.bool().all()), (root, dtype)


def case_gather_and_scatter():
    for root in range(SIZE):
        parts = [torch.zeros(2) for _ in range(SIZE)] if root == RANK else None
        dist.gather(torch.full((2,), float(RANK)), parts, dst=root)
        assert parts is None or [part.tolist() for part in parts] == [[index] * 2 for index in range(SIZE)]
        mine = torch.zeros(2)
        dist.scatter(
            mine, [torch.full((2,), float(index)) for index in range(SIZE)] if root == RANK else None, src=root
        )
        assert mine.tolist() == [RANK] * 2


def case_all_gather():
    parts = [torch.zeros(index + 1) for index in range(SIZE)]
    dist.all_gather(parts, torch.full((RANK + 1,), float(RANK)))
    assert [part.tolist() for part in parts] == [[index] * (index + 1) for index in range(SIZE)]
    whole = torch.zeros(SIZE * 2, dtype=torch.float16)
    dist.group.WORLD._allgather_base(whole, torch.full((2,), RANK, dtype=torch.float16)).wait()
    assert whole.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    lists = [[torch.zeros(2), torch.zeros(1)] for _ in range(SIZE)]
    dist.group.WORLD.allgather_coalesced(lists, [torch.full((2,), float(RANK)), torch.tensor([10.0 + RANK])]).wait()
    assert [[part.tolist() for part in parts] for parts in lists] == [[[i, i], [10 + i]] for i in range(SIZE)]


def case_reduce_scatter():
    inputs = [torch.full((index + 1,), float(RANK)) for index in range(SIZE)]
    output = torch.zeros(RANK + 1)
    dist.reduce_scatter(output, inputs)
    assert output.tolist() == [6] * (RANK + 1)
    output = torch.zeros(2, dtype=torch.bfloat16)
    dist.group.WORLD._reduce_scatter_base(output, torch.arange(8, dtype=torch.bfloat16)).wait()
    assert output.tolist() == [8 * RANK, 8 * RANK + 4]
    output = torch.zeros(1)
    dist.reduce_scatter(output, list(torch.arange(4.0).split(1)), op=AVG)
    assert output.tolist() == [RANK]


def case_all_to_all():
    output = torch.zeros(SIZE, 2, dtype=torch.int32)
    dist.all_to_all_single(output, torch.tensor([[10 * RANK + index] * 2 for index in range(SIZE)], dtype=torch.int32))
    assert output[:, 0].tolist() == [10 * index + RANK for index in range(SIZE)]
    output = torch.zeros(SIZE * RANK)
    dist.all_to_all_single(output, torch.full((6,), float(RANK)), [RANK] * SIZE, [0, 1, 2, 3])
    assert output.tolist() == [index for index in range(SIZE) for _ in range(RANK)]
    outputs = [torch.zeros(RANK + 1) for _ in range(SIZE)]
    dist.all_to_all(outputs, [torch.full((index + 1,), float(RANK)) for index in range(SIZE)])
    assert [part.tolist() for part in outputs] == [[index] * (RANK + 1) for index in range(SIZE)]


def case_from_one_to_another():
    following, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    first, second = torch.zeros(2), torch.zeros(2)
    works = [
        dist.isend(torch.full((2,), RANK + 10.0), following, tag=7),
        dist.isend(torch.full((2,), float(RANK)), following, tag=3),
    ]
    dist.recv(second, before, tag=3)
    dist.recv(first, before, tag=7)
    for work in works:
        work.wait()
    assert (first[0].item(), second[0].item()) == (before + 10, before)
    if RANK == 0:
        tensor, senders = torch.zeros(1), []
        for _ in range(SIZE - 1):
            senders.append(dist.recv(tensor))
            assert tensor.item() == senders[-1]
        assert sorted(senders) == [1, 2, 3]
    else:
        dist.send(torch.tensor([float(RANK)]), 0)


def case_a_message_longer_than_the_tensor_for_it():
    if RANK == 0:
        dist.send(torch.zeros(4), 1)
    elif RANK == 1:
        raises(dist.DistBackendError, "truncated", dist.recv, torch.zeros(2), 0)
    dist.barrier()


def case_objects():
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * RANK})
    assert gathered == [{"rank": index, "text": "x" * index} for index in range(SIZE)]
    said = ["hello"] if RANK == 2 else [None]
    dist.broadcast_object_list(said, src=2)
    assert said == ["hello"]


def case_groups():
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = pairs[RANK % 2]
    tensor = torch.tensor([float(RANK)])
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == [2, 4][RANK % 2]
    named = dist.new_group([3, 1], backend="mpi")
    if RANK in (1, 3):
        assert dist.get_backend(named) == "paceline_mpi" and dist.get_group_rank(named, RANK) == (RANK == 3)
        dist.broadcast(tensor, 3, group=named)
    with_gloo = dist.new_group(backend="gloo")
    dist.barrier(group=with_gloo)


def case_two_groups_in_opposite_orders():
    groups = [dist.new_group(), dist.new_group()]
    tensors = [torch.full((10_000,), float(RANK)) for _ in groups]
    order = (0, 1) if RANK % 2 else (1, 0)
    works = [dist.all_reduce(tensors[index], group=groups[index], async_op=True) for index in order]
    for work in works:
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [6, 6]


def case_later():
    tensor = torch.full((100,), float(RANK))
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True and work.is_completed() and work.is_success() and work.exception() is None
    assert work.result()[0] is not None and tensor[0].item() == 6
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    assert doubled.wait()[0].item() == 48
    dist.barrier(async_op=True).wait(timedelta(seconds=30))


def case_ddp():
    torch.manual_seed(RANK)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.Linear(50, 1)), bucket_cap_mb=0.005
    )
    with model.no_sync():
        model(torch.ones(1, 50)).sum().backward()
    model(torch.full((1, 50), float(RANK))).sum().backward()
    for parameter in model.parameters():
        parts = [torch.zeros_like(parameter) for _ in range(SIZE)]
        dist.all_gather(parts, parameter.grad)
        assert all(torch.equal(parts[0], part) for part in parts)


def case_what_cannot_be():
    raises(ValueError, "dense", dist.all_reduce, torch.ones(2).to_sparse())
    raises(ValueError, "integers", dist.all_reduce, torch.ones(2), op=dist.ReduceOp.BAND)
    raises(ValueError, "floating point", dist.all_reduce, torch.ones(2, dtype=torch.int64), op=AVG)
    raises(ValueError, "on meta", dist.all_reduce, torch.ones(2, device="meta"))
    raises(
        ValueError, "add up to 3", dist.all_to_all_single, torch.zeros(4), torch.zeros(4), [1, 1, 1, 0], [1, 1, 1, 1]
    )
    raises(ValueError, "not 4 x 1", dist.group.WORLD._allgather_base, torch.zeros(3), torch.zeros(1))
    raises(ValueError, "3 outputs for 4 ranks", dist.group.WORLD.allgather, [[torch.zeros(1)] * 3], [torch.zeros(1)])


def case_what_is_told():
    told = []

    class Ear:
        def formed(self, *arguments):
            pass

        def enqueued(self, group, seq, op, dtype, numel):
            told.append((group == dist.group.WORLD.group_name, op, dtype, numel))

        def completed(self, group, seq):
            told.append(("over", group == dist.group.WORLD.group_name))

    observer.observe(Ear())
    dist.all_reduce(torch.zeros(5))
    dist.barrier()
    observer.observe(observer.Unobserved())
    assert told == [(True, "allreduce", "float32", 5), ("over", True), (True, "barrier", "", 0), ("over", True)], told


def case_a_rank_that_does_not_come():
    group = dist.new_group(timeout=timedelta(seconds=1))
    tensor = torch.ones(2)
    if RANK:
        raises(dist.DistBackendError, "not over after 1 s", dist.all_reduce, tensor, group=group)
        raises(dist.DistBackendError, "an earlier exchange failed", dist.all_reduce, tensor, group=group)
    dist.barrier()
    if not RANK:
        # The others' part still stands in MPI.
        dist.all_reduce(tensor, group=group)
    dist.barrier()


def case_once_more_from_the_beginning():
    dist.destroy_process_group()
    dist.init_process_group("cpu:mpi", init_method="mpi://")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == SIZE and not hasattr(dist.group.WORLD, "gloo")


register(lambda: "one host")
dist.init_process_group("mpi", timeout=timedelta(seconds=60))
RANK = dist.get_rank()
failed = {}
for name in [name for name in globals() if name.startswith("case_")]:
    try:
        globals()[name]()
    except BaseException:
        failed[name] = traceback.format_exc()
        break
Path(sys.argv[1], f"{RANK}.json").write_text(json.dumps({"failed": failed, "last": name}))
dist.destroy_process_group()
sys.exit(bool(failed))
