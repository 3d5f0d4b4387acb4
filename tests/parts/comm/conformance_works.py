"""Cases of what a caller holds meanwhile: async_op, wait, Future, order, barrier; and of the ways in which torch itself calls a group."""

from datetime import timedelta

import torch
from conformance import LARGE, case, everyone, given, reduced, refused, same

COUNTS = (1000, 400_000)


@case(count=COUNTS)
def an_asynchronous_all_reduce(dist, group, rank, size, count):
    tensor = given(rank, count)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is not False
    assert work.is_completed() and work.is_success()
    same(tensor, reduced("SUM", everyone(size, count)))


@case(count=COUNTS)
def a_wait_with_a_limit(dist, group, rank, size, count):
    tensor = given(rank, count)
    dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=20))
    same(tensor, reduced("SUM", everyone(size, count)))


@case("futures", count=COUNTS)
def a_future_holds_the_tensors(dist, group, rank, size, count):
    tensor = given(rank, count)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(future.wait()[0], reduced("SUM", everyone(size, count)))
    same(doubled.wait(), reduced("SUM", everyone(size, count)) * 2)
    assert future.done()


@case("futures", count=COUNTS)
def a_future_taken_after_the_end(dist, group, rank, size, count):
    tensor = given(rank, count)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    same(work.get_future().wait()[0], reduced("SUM", everyone(size, count)))


@case("futures", count=COUNTS)
def futures_of_the_other_collectives(dist, group, rank, size, count):
    gathered = torch.empty(size * count)
    tensor = given(rank, count)
    futures = [
        dist.broadcast(tensor, 0, async_op=True).get_future(),
        dist.all_gather_into_tensor(gathered, given(rank, count), async_op=True).get_future(),
        dist.barrier(async_op=True).get_future(),
    ]
    torch.futures.wait_all(futures)
    same(tensor, given(0, count))
    same(gathered.view(size, count), everyone(size, count))


@case()
def many_sizes_under_way_and_waited_for_backwards(dist, group, rank, size):
    counts = [1 + (index * 7919) % 50_000 for index in range(20)] + list(LARGE) + [3, 400_000, 5]
    tensors = [given(rank, count, salt=index) for index, count in enumerate(counts)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for index, work in reversed(list(enumerate(works))):
        work.wait()
        same(tensors[index], reduced("SUM", everyone(size, counts[index], salt=index)))


@case("futures")
def different_collectives_under_way_at_once(dist, group, rank, size):
    for count in COUNTS:
        summed, told, gathered, mine = (
            given(rank, count),
            given(rank, count),
            torch.empty(size * count),
            torch.empty(count),
        )
        works = [
            dist.broadcast(told, size - 1, async_op=True),
            dist.all_reduce(summed, async_op=True),
            dist.reduce_scatter_tensor(mine, given(rank, size * count), async_op=True),
            dist.all_gather_into_tensor(gathered, given(rank, count), async_op=True),
        ]
        for work in works:
            work.wait()
        same(told, given(size - 1, count))
        same(summed, reduced("SUM", everyone(size, count)))
        same(mine, reduced("SUM", everyone(size, size * count)).view(size, count)[rank])
        same(gathered.view(size, count), everyone(size, count))


@case()
def a_thousand_small_ones(dist, group, rank, size):
    tensors = [torch.tensor([float(index + rank)]) for index in range(1000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for index, (tensor, work) in enumerate(zip(tensors, works, strict=True)):
        work.wait()
        assert tensor.item() == index * size + size * (size - 1) / 2


@case()
def a_hundred_large_ones_in_a_row(dist, group, rank, size):
    tensor = torch.full((100_000,), 1.0)
    for _ in range(100):
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, torch.full((100_000,), 1.0))


@case(count=(100, 400_000))
def a_barrier_waits_for_what_was_asked_before(dist, group, rank, size, count):
    tensors = [given(rank, count, salt=index) for index in range(8)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    for index, tensor in enumerate(tensors):
        same(tensor, reduced("SUM", everyone(size, count, salt=index)))


@case("monitored")
def a_monitored_barrier(dist, group, rank, size):
    group.monitored_barrier(timedelta(seconds=20))
    group.monitored_barrier()


@case()
def calls_with_single_tensors_and_keywords(dist, group, rank, size):
    for count in (10, 400_000):
        tensor = given(rank, count)
        group.allreduce(tensor).wait()
        same(tensor, reduced("SUM", everyone(size, count)))
        tensor = given(rank, count)
        group.allreduce(tensor, op=dist.ReduceOp.MAX).wait()
        same(tensor, reduced("MAX", everyone(size, count)))
        tensor = given(rank, count)
        group.broadcast(tensor, root=size - 1).wait()
        same(tensor, given(size - 1, count))
        outputs = [torch.empty(count) for _ in range(size)]
        group.allgather(outputs, given(rank, count)).wait()
        same(torch.stack(outputs), everyone(size, count))
        tensor = given(rank, count)
        group.reduce(tensor, root=0).wait()
        if rank == 0:
            same(tensor, reduced("SUM", everyone(size, count)))
        output = torch.empty(count)
        group.reduce_scatter(output, list(everyone(size, count))).wait()
        same(output, given(rank, count) * size)
    group.barrier().wait()


FUNCTIONAL = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast")


@case("futures", op=FUNCTIONAL, count=(12, 120_000))
def functional_collectives(dist, group, rank, size, op, count):
    ops, name = torch.ops._c10d_functional, group.group_name
    rows = given(rank, size * count).view(size, count)
    if op == "all_reduce":
        found, expected = ops.all_reduce(rows, "sum", name), reduced("SUM", everyone(size, size * count))
    elif op == "broadcast":
        found, expected = ops.broadcast(rows, 0, name), given(0, size * count)
    elif op == "all_gather_into_tensor":
        found, expected = ops.all_gather_into_tensor(rows[0], size, name), everyone(size, size * count)[:, :count]
    elif op == "reduce_scatter_tensor":
        found = ops.reduce_scatter_tensor(rows, "avg", size, name)
        expected = reduced("AVG", everyone(size, size * count)).view(size, count)[rank]
    else:
        found = ops.all_to_all_single(rows.view(-1), [count] * size, [count] * size, name)
        expected = everyone(size, size * count).view(size, size, count)[:, rank]
    found = ops.wait_tensor(found)
    torch.testing.assert_close(found.reshape(-1), expected.reshape(-1))
    same(rows.view(-1), given(rank, size * count))


@case("futures", count=(12, 120_000))
def functional_collectives_coalesced(dist, group, rank, size, count):
    ops, name = torch.ops._c10d_functional, group.group_name
    for found, salt in zip(
        ops.all_reduce_coalesced([given(rank, count), given(rank, count, salt=1)], "sum", name), (0, 1), strict=True
    ):
        same(ops.wait_tensor(found), reduced("SUM", everyone(size, count, salt=salt)))
    inputs = [given(rank, size * count), given(rank, size * count, salt=1)]
    for found, salt in zip(ops.reduce_scatter_tensor_coalesced(inputs, "sum", size, name), (0, 1), strict=True):
        same(ops.wait_tensor(found), reduced("SUM", everyone(size, size * count, salt=salt)).view(size, count)[rank])
    gathered = ops.all_gather_into_tensor_coalesced([given(rank, count), given(rank, count, salt=1)], size, name)
    for found, salt in zip(gathered, (0, 1), strict=True):
        same(ops.wait_tensor(found).view(size, count), everyone(size, count, salt=salt))


@case(count=(12, 120_000))
def collectives_with_a_gradient(dist, group, rank, size, count):
    import torch.distributed.nn.functional as nn

    tensor = given(rank, count).requires_grad_()
    total = nn.all_reduce(tensor)
    total.sum().backward()
    same(tensor.grad, torch.full((count,), float(size)))
    tensor = given(rank, count).requires_grad_()
    weighted = sum((peer + 1) * part.sum() for peer, part in enumerate(nn.all_gather(tensor)))
    weighted.backward()
    same(tensor.grad, torch.full((count,), float(size * (rank + 1))))
    tensor = given(rank, count).requires_grad_()
    nn.broadcast(tensor, 0).sum().backward()
    same(tensor.grad, torch.full((count,), float(size) if rank == 0 else 0.0))


@case()
def an_error_at_one_call_leaves_the_group_usable(dist, group, rank, size):
    refused(lambda: dist.all_gather([torch.empty(3)] * (size + 1), torch.empty(3)))
    for count in COUNTS:
        tensor = given(rank, count)
        dist.all_reduce(tensor)
        same(tensor, reduced("SUM", everyone(size, count)))
