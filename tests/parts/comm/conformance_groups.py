"""Cases of groups: subsets, several at once, beside gloo, and their end."""

from datetime import timedelta

import torch
from conformance import case, everyone, given, reduced, refused, same


def check(dist, group, ranks, rank, count):
    """An all_reduce and an all_gather in a group of these ranks."""
    tensor = given(rank, count)
    dist.all_reduce(tensor, group=group)
    rows = torch.stack([given(peer, count) for peer in ranks])
    same(tensor, reduced("SUM", rows))
    output = torch.empty(len(ranks) * count)
    dist.all_gather_into_tensor(output, given(rank, count), group=group)
    same(output.view(len(ranks), count), rows)


@case("groups", count=(10, 300_000))
def a_group_of_some_ranks(dist, group, rank, size, count):
    for ranks in ([0, 1], [0, size - 1], [size - 1, 0], [size - 1]):
        part = dist.new_group(ranks)
        if rank in ranks:
            assert dist.get_backend(part) == dist.get_backend(group)
            assert sorted(dist.get_process_group_ranks(part)) == sorted(ranks)
            check(dist, part, sorted(ranks), rank, count)
            dist.destroy_process_group(part)
        else:
            assert part == dist.GroupMember.NON_GROUP_MEMBER
    check(dist, group, range(size), rank, count)


@case("groups")
def a_group_made_by_its_members_alone(dist, group, rank, size):
    # Every rank makes one group: from torch 2.14 on, ranks that have made a different number of groups do not meet in the next one.
    ranks = [0, 1] if rank in (0, 1) else list(range(2, size))
    part = dist.new_group(ranks, use_local_synchronization=True)
    check(dist, part, ranks, rank, 300_000)
    dist.destroy_process_group(part)
    dist.barrier()


@case("groups")
def many_groups_at_once(dist, group, rank, size):
    groups = [dist.new_group() for _ in range(4)]
    tensors = [given(rank, 300_000, salt=index) for index in range(4)]
    # In another order on every rank: groups do not wait for each other.
    order = [(index + rank) % 4 for index in range(4)]
    works = {index: dist.all_reduce(tensors[index], group=groups[index], async_op=True) for index in order}
    for index in order:
        works[index].wait()
        same(tensors[index], reduced("SUM", everyone(size, 300_000, salt=index)))
    for each in groups:
        dist.destroy_process_group(each)


@case("gloo_groups", count=(10, 300_000))
def a_group_of_gloo_beside_it(dist, group, rank, size, count):
    beside = dist.new_group(backend="gloo")
    assert dist.get_backend(beside) == "gloo"
    ours, theirs = given(rank, count), given(rank, count, salt=1)
    works = [dist.all_reduce(ours, async_op=True), dist.all_reduce(theirs, group=beside, async_op=True)]
    for work in works:
        work.wait()
    same(ours, reduced("SUM", everyone(size, count)))
    same(theirs, reduced("SUM", everyone(size, count, salt=1)))
    dist.monitored_barrier(beside)
    dist.destroy_process_group(beside)


@case("groups")
def subgroups_of_two(dist, group, rank, size):
    if size % 2:
        return
    mine, groups = dist.new_subgroups(group_size=2)
    first = rank // 2 * 2
    check(dist, mine, (first, first + 1), rank, 300_000)
    assert len(groups) == size // 2
    dist.destroy_process_group(mine)


@case("groups")
def roots_are_global_ranks(dist, group, rank, size):
    part = dist.new_group([size - 2, size - 1])
    if rank >= size - 2:
        for count in (10, 300_000):
            tensor = given(rank, count)
            dist.broadcast(tensor, size - 1, group=part)
            same(tensor, given(size - 1, count))
            if rank == size - 1:
                dist.send(tensor, size - 2, group=part)
            else:
                dist.recv(tensor, size - 1, group=part)
        dist.destroy_process_group(part)


@case()
def the_group_knows_itself(dist, group, rank, size):
    assert (dist.get_rank(), dist.get_world_size(), group.rank(), group.size()) == (rank, size, rank, size)
    assert dist.get_process_group_ranks(group) == list(range(size))
    assert group.name() == dist.get_backend() or dist.get_backend() == "smddp"
    assert isinstance(group.group_name, str)
    assert dist.distributed_c10d._get_object_coll_device(group) == "cpu"
    assert dist.is_gloo_available() and dist.is_initialized()


@case("groups")
def a_device_mesh(dist, group, rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    if size % 2 or size < 4:
        return
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicate", "shard"))
    first = rank // 2 * 2
    check(dist, mesh["shard"].get_group(), (first, first + 1), rank, 300_000)
    check(dist, mesh["replicate"].get_group(), range(rank % 2, size, 2), rank, 300_000)
    dist.destroy_process_group(mesh["shard"].get_group())
    dist.destroy_process_group(mesh["replicate"].get_group())


@case("groups", "gloo_words", count=(10, 300_000))
def a_rank_that_does_not_come_in_time(dist, group, rank, size, count):
    part = dist.new_group(timeout=timedelta(seconds=1))
    dist.barrier(group=part)
    if rank == 0:
        refused(lambda: dist.all_reduce(torch.ones(count), group=part))
    dist.barrier()
    dist.destroy_process_group(part)
    dist.barrier()


@case("groups")
def the_limit_on_time_can_be_changed(dist, group, rank, size):
    part = dist.new_group(timeout=timedelta(seconds=300))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), part)
    dist.barrier(group=part)
    if rank == 0:
        refused(lambda: dist.all_reduce(torch.ones(300_000), group=part))
    dist.barrier()
    dist.destroy_process_group(part)
    dist.barrier()
