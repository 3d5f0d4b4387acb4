"""Cases of what moves data without adding it up: broadcast, gathers, scatter, all_to_all, send and receive, objects."""

import torch
from conformance import FLOATS, INTEGERS, LARGE, SMALL, case, everyone, given, same

DTYPES = (*FLOATS, *INTEGERS, "bool")


@case(dtype=DTYPES)
def broadcast(dist, group, rank, size, dtype):
    for root in range(size):
        for count in SMALL + LARGE:
            tensor = given(rank, count, dtype)
            dist.broadcast(tensor, root)
            same(tensor, given(root, count, dtype))


@case(count=(0, 1000, 400_000))
def broadcast_of_complex_and_of_nothing(dist, group, rank, size, count):
    tensor = torch.complex(given(rank, count), given(rank, count, salt=1))
    dist.broadcast(tensor, size - 1)
    same(tensor, torch.complex(given(size - 1, count), given(size - 1, count, salt=1)))


@case("several")
def broadcast_of_one_of_several_tensors(dist, group, rank, size):
    for root in range(size):
        for which in range(2):
            tensors = [given(rank, 10, salt=0), given(rank, 10, salt=1)]
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, which
            group.broadcast(tensors, options).wait()
            for tensor in tensors:
                same(tensor, given(root, 10, salt=which))


@case(rows=(20, 2000))
def broadcast_of_transposed(dist, group, rank, size, rows):
    tensor = given(rank, rows * 300).view(rows, 300).t()
    dist.broadcast(tensor, 0)
    same(tensor, given(0, rows * 300).view(rows, 300).t())


@case(dtype=DTYPES)
def all_gather(dist, group, rank, size, dtype):
    for count in (1, 1000, 200_003):
        outputs = [torch.empty(count, dtype=getattr(torch, dtype)) for _ in range(size)]
        dist.all_gather(outputs, given(rank, count, dtype))
        same(torch.stack(outputs), everyone(size, count, dtype))


@case(count=(10, 200_000))
def all_gather_into_rows_of_one_tensor(dist, group, rank, size, count):
    whole = torch.empty(size, count)
    dist.all_gather(list(whole), given(rank, count))
    same(whole, everyone(size, count))


@case(count=(10, 200_000))
def all_gather_of_a_column(dist, group, rank, size, count):
    column = given(rank, count).expand(2, count).t().contiguous()[:, 0]
    assert not column.is_contiguous()
    outputs = [torch.empty(count) for _ in range(size)]
    dist.all_gather(outputs, column)
    same(torch.stack(outputs), everyone(size, count))


@case(count=(10, 200_000))
def all_gather_of_complex(dist, group, rank, size, count):
    outputs = [torch.empty(count, dtype=torch.complex64) for _ in range(size)]
    dist.all_gather(outputs, torch.complex(given(rank, count), given(rank, count, salt=1)))
    for peer, output in enumerate(outputs):
        same(output, torch.complex(given(peer, count), given(peer, count, salt=1)))


@case("several", count=(2, 100_000))
def all_gather_of_several_tensors(dist, group, rank, size, count):
    inputs = [given(rank, count, salt=which) for which in range(2)]
    outputs = [[torch.empty(count) for _ in range(2 * size)] for _ in range(2)]
    group.allgather(outputs, inputs).wait()
    for row in outputs:
        for peer in range(size):
            for which in range(2):
                same(row[2 * peer + which], given(peer, count, salt=which))


@case(dtype=DTYPES)
def all_gather_into_tensor(dist, group, rank, size, dtype):
    for count in (1, 1000, 200_003):
        output = torch.empty(size * count, dtype=getattr(torch, dtype))
        dist.all_gather_into_tensor(output, given(rank, count, dtype))
        same(output.view(size, count), everyone(size, count, dtype))


def check_shape(dist, rank, size, rows, shape):
    output = torch.empty(shape)
    dist.all_gather_into_tensor(output, given(rank, rows * 4).view(rows, 4))
    same(output.view(size, -1), everyone(size, rows * 4))


@case(rows=(3, 60_000))
def all_gather_into_tensor_of_joined_rows(dist, group, rank, size, rows):
    check_shape(dist, rank, size, rows, (size * rows, 4))


@case("more_than_gloo", rows=(3, 60_000))
def all_gather_into_tensor_of_stacked_rows(dist, group, rank, size, rows):
    check_shape(dist, rank, size, rows, (size, rows, 4))


@case(count=(5, 100_000))
def all_gather_into_tensor_coalesced(dist, group, rank, size, count):
    counts = (count, 3, 2 * count)
    outputs = [torch.empty(size * length) for length in counts]
    group.allgather_into_tensor_coalesced(outputs, [given(rank, length) for length in counts]).wait()
    for output, length in zip(outputs, counts, strict=True):
        same(output.view(size, length), everyone(size, length))


@case(count=(5, 100_000))
def all_gather_into_tensor_in_a_coalescing_manager(dist, group, rank, size, count):
    outputs = [torch.empty(size * count) for _ in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for salt, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, given(rank, count, salt=salt))
    manager.wait()
    for salt, output in enumerate(outputs):
        same(output.view(size, count), everyone(size, count, salt=salt))


@case("several", count=(5, 100_000))
def all_gather_coalesced(dist, group, rank, size, count):
    counts = (count, 3)
    outputs = [[torch.empty(length) for length in counts] for _ in range(size)]
    dist.all_gather_coalesced(outputs, [given(rank, length) for length in counts])
    for peer in range(size):
        for output, length in zip(outputs[peer], counts, strict=True):
            same(output, given(peer, length))


@case(dtype=("float32", "int64"), count=(1, 100_000))
def gather_and_scatter(dist, group, rank, size, dtype, count):
    for root in range(size):
        outputs = [torch.empty(count, dtype=getattr(torch, dtype)) for _ in range(size)] if rank == root else None
        dist.gather(given(rank, count, dtype), outputs, dst=root)
        if outputs:
            same(torch.stack(outputs), everyone(size, count, dtype))
        mine = torch.empty(count, dtype=getattr(torch, dtype))
        dist.scatter(mine, list(everyone(size, count, dtype, salt=root)) if rank == root else None, src=root)
        same(mine, given(rank, count, dtype, salt=root))


@case()
def gather_of_a_column(dist, group, rank, size):
    outputs = [torch.empty(10) for _ in range(size)] if rank == 0 else None
    dist.gather(given(rank, 10).expand(2, 10).t().contiguous()[:, 0], outputs)
    if outputs:
        same(torch.stack(outputs), everyone(size, 10))


@case(dtype=("float32", "int64"), count=(1, 100_000))
def all_to_all_single(dist, group, rank, size, dtype, count):
    output = torch.empty(size * count, dtype=getattr(torch, dtype))
    dist.all_to_all_single(output, torch.cat([given(rank, count, dtype, salt=peer) for peer in range(size)]))
    same(output, torch.cat([given(peer, count, dtype, salt=rank) for peer in range(size)]))


@case(unit=(1, 50_000))
def all_to_all_single_of_uneven_sizes(dist, group, rank, size, unit):
    sends = [unit * (peer + rank) for peer in range(size)]
    output = torch.empty(sum(sends), 2)
    input = torch.cat([given(rank, 2 * count, salt=peer).view(-1, 2) for peer, count in enumerate(sends)])
    dist.all_to_all_single(output, input, output_split_sizes=sends, input_split_sizes=sends)
    same(output, torch.cat([given(peer, 2 * sends[peer], salt=rank).view(-1, 2) for peer in range(size)]))


@case(count=(1, 50_000))
def all_to_all(dist, group, rank, size, count):
    outputs = [torch.empty(count) for _ in range(size)]
    dist.all_to_all(outputs, [given(rank, count, salt=peer) for peer in range(size)])
    for peer, output in enumerate(outputs):
        same(output, given(peer, count, salt=rank))


@case("more_than_gloo", unit=(1, 50_000))
def all_to_all_of_uneven_tensors(dist, group, rank, size, unit):
    inputs = [given(rank, unit * (peer + rank + 1), salt=peer) for peer in range(size)]
    outputs = [torch.empty(unit * (peer + rank + 1)) for peer in range(size)]
    dist.all_to_all(outputs, inputs)
    for peer, output in enumerate(outputs):
        same(output, given(peer, unit * (peer + rank + 1), salt=rank))


@case(count=(1, 1000, 1_000_003))
def send_and_receive_round_a_ring(dist, group, rank, size, count):
    output = torch.empty(count)
    work = dist.isend(given(rank, count), (rank + 1) % size)
    dist.recv(output, (rank - 1) % size)
    work.wait()
    same(output, given((rank - 1) % size, count))


@case()
def send_and_receive_between_all_pairs(dist, group, rank, size):
    outputs = [torch.empty(5) for _ in range(size)]
    works = [dist.isend(given(rank, 5, salt=peer), peer) for peer in range(size) if peer != rank]
    works += [dist.irecv(outputs[peer], peer) for peer in range(size) if peer != rank]
    for work in works:
        work.wait()
        assert work.is_completed()
    for peer in range(size):
        if peer != rank:
            same(outputs[peer], given(peer, 5, salt=rank))


@case()
def messages_are_matched_by_tag(dist, group, rank, size):
    if rank == 0:
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (7, 8)]
    elif rank == 1:
        later, sooner = torch.empty(1), torch.empty(1)
        works = [dist.irecv(later, 0, tag=8), dist.irecv(sooner, 0, tag=7)]
    else:
        works = []
    for work in works:
        work.wait()
    if rank == 1:
        assert (later.item(), sooner.item()) == (8.0, 7.0)


@case("any_source")
def receive_from_anyone(dist, group, rank, size):
    if rank == 0:
        seen = {}
        for _ in range(size - 1):
            tensor = torch.empty(3)
            seen[dist.recv(tensor)] = tensor
        assert sorted(seen) == list(range(1, size))
        for peer, tensor in seen.items():
            same(tensor, given(peer, 3))
    else:
        dist.send(given(rank, 3), 0)


@case(count=(10, 300_000))
def a_batch_of_sends_and_receives(dist, group, rank, size, count):
    output = torch.empty(count)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, given(rank, count), (rank + 1) % size),
            dist.P2POp(dist.irecv, output, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    same(output, given((rank - 1) % size, count))


def thing(rank):
    return {"rank": rank, "text": "x" * (rank * 1000), "tensor": torch.full((rank + 1,), rank)}


def check_thing(found, rank):
    assert (found["rank"], len(found["text"])) == (rank, rank * 1000)
    same(found["tensor"], torch.full((rank + 1,), rank))


@case()
def objects_of_uneven_sizes(dist, group, rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, thing(rank))
    collected = [None] * size if rank == size - 1 else None
    dist.gather_object(thing(rank), collected, dst=size - 1)
    for found in filter(None, (gathered, collected)):
        for peer in range(size):
            check_thing(found[peer], peer)
    told = [thing(rank), rank]
    dist.broadcast_object_list(told, src=size - 1)
    check_thing(told[0], size - 1)
    dealt = [None]
    dist.scatter_object_list(dealt, [thing(peer) for peer in range(size)] if rank == 0 else None, src=0)
    check_thing(dealt[0], rank)


@case()
def objects_from_rank_to_rank(dist, group, rank, size):
    if rank == 0:
        dist.send_object_list([thing(3)], dst=1)
    elif rank == 1:
        found = [None]
        dist.recv_object_list(found, src=0)
        check_thing(found[0], 3)
