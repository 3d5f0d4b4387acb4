"""Cases of all_reduce, reduce and reduce_scatter: every op, dtype and form."""

import torch
from conformance import FLOATS, INTEGERS, LARGE, SMALL, case, close, everyone, given, reduced, refused, same

ARITHMETIC = ("SUM", "PRODUCT", "MIN", "MAX")
BITS = ("BAND", "BOR", "BXOR")


def check_all_reduce(dist, rank, size, op, dtype):
    for count in SMALL + LARGE:
        tensor = given(rank, count, dtype)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        (close if op == "AVG" else same)(tensor, reduced(op, everyone(size, count, dtype)))


@case(op=ARITHMETIC, dtype=FLOATS + INTEGERS)
def all_reduce(dist, group, rank, size, op, dtype):
    check_all_reduce(dist, rank, size, op, dtype)


@case(op=BITS, dtype=INTEGERS)
def all_reduce_of_bits(dist, group, rank, size, op, dtype):
    check_all_reduce(dist, rank, size, op, dtype)


@case(dtype=FLOATS)
def all_reduce_average(dist, group, rank, size, dtype):
    check_all_reduce(dist, rank, size, "AVG", dtype)


@case("more_than_gloo", dtype=FLOATS)
def all_reduce_multiplied_before(dist, group, rank, size, dtype):
    for count in (1000, 400_000):
        tensor = given(rank, count, dtype)
        dist.all_reduce(tensor, premultiplied(dist, 0.5))
        same(tensor, reduced("SUM", everyone(size, count, dtype) * 0.5))


def premultiplied(dist, factor):
    return torch._C._distributed_c10d._make_nccl_premul_sum(factor)


@case(count=(1000, 400_000))
def all_reduce_of_complex(dist, group, rank, size, count):
    tensor = torch.complex(given(rank, count), given(rank, count, salt=1))
    dist.all_reduce(tensor)
    same(tensor, torch.complex(reduced("SUM", everyone(size, count)), reduced("SUM", everyone(size, count, salt=1))))
    refused(lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX), "complex")


@case(count=(1000, 2_000_003))
def all_reduce_of_bool(dist, group, rank, size, count):
    tensor = given(rank, count) == 2
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    same(tensor, (everyone(size, count) == 2).any(0))


@case()
def all_reduce_of_nothing_and_of_a_scalar(dist, group, rank, size):
    empty = torch.empty(0)
    dist.all_reduce(empty)
    assert empty.numel() == 0
    scalar = torch.tensor(float(rank + 1))
    dist.all_reduce(scalar)
    assert scalar.shape == () and scalar.item() == size * (size + 1) / 2


@case(rows=(40, 2000))
def all_reduce_of_transposed_and_channels_last(dist, group, rank, size, rows):
    tensor = given(rank, rows * 300).view(rows, 300).t()
    dist.all_reduce(tensor)
    same(tensor, reduced("SUM", everyone(size, rows * 300)).view(rows, 300).t())
    image = given(rank, rows * 300).view(rows, 3, 10, 10).contiguous(memory_format=torch.channels_last)
    expected = sum(given(peer, rows * 300).view(rows, 3, 10, 10) for peer in range(size))
    dist.all_reduce(image)
    same(image, expected.contiguous(memory_format=torch.channels_last))


@case("more_than_gloo", rows=(40, 2000))
def all_reduce_of_every_second_column(dist, group, rank, size, rows):
    whole = given(rank, rows * 600).view(rows, 600)
    kept = whole[:, 1::2].clone()
    dist.all_reduce(whole[:, ::2])
    same(whole[:, 1::2], kept)
    same(whole[:, ::2], reduced("SUM", everyone(size, rows * 600)).view(rows, 600)[:, ::2])


@case(count=(1000, 400_000))
def all_reduce_of_a_parameter_and_in_inference_mode(dist, group, rank, size, count):
    parameter = torch.nn.Parameter(given(rank, count))
    with torch.no_grad():
        dist.all_reduce(parameter)
    assert parameter.requires_grad and parameter.is_leaf
    same(parameter.detach(), reduced("SUM", everyone(size, count)))
    with torch.inference_mode():
        tensor = given(rank, count)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        same(tensor, reduced("SUM", everyone(size, count)))


@case(count=(1000, 1_000_003))
def all_reduce_of_a_slice_leaves_the_rest(dist, group, rank, size, count):
    whole = given(rank, count + 20)
    dist.all_reduce(whole[7 : count + 7])
    same(whole[:7], given(rank, count + 20)[:7])
    same(whole[count + 7 :], given(rank, count + 20)[count + 7 :])
    same(whole[7 : count + 7], reduced("SUM", everyone(size, count + 20))[7 : count + 7])


@case()
def all_reduce_of_a_large_count(dist, group, rank, size):
    count = 9_000_001
    tensor = torch.full((count,), rank + 1.0)
    dist.all_reduce(tensor)
    assert bool((tensor == size * (size + 1) / 2).all())


@case("several", op=ARITHMETIC, count=(3, 200_000))
def all_reduce_of_several_tensors(dist, group, rank, size, op, count):
    tensors = [given(rank, count), given(rank, count, salt=1)]
    options = dist.AllreduceOptions()
    options.reduceOp = getattr(dist.ReduceOp, op)
    group.allreduce(tensors, options).wait()
    expected = reduced(op, torch.cat([everyone(size, count), everyone(size, count, salt=1)]))
    for tensor in tensors:
        same(tensor, expected)


@case(op=(*ARITHMETIC, "AVG"), count=(5, 150_000))
def all_reduce_coalesced(dist, group, rank, size, op, count):
    tensors = [given(rank, length, salt=length) for length in (count, 3, 2 * count, 1)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = getattr(dist.ReduceOp, op)
    group.allreduce_coalesced(tensors, options).wait()
    for tensor in tensors:
        (close if op == "AVG" else same)(tensor, reduced(op, everyone(size, tensor.numel(), salt=tensor.numel())))


@case(count=(5, 150_000))
def all_reduce_in_a_coalescing_manager(dist, group, rank, size, count):
    tensors = [given(rank, count, salt=salt) for salt in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for salt, tensor in enumerate(tensors):
        same(tensor, reduced("SUM", everyone(size, count, salt=salt)))


@case(op=(*ARITHMETIC, "AVG"), dtype=("float32", "bfloat16"))
def reduce(dist, group, rank, size, op, dtype):
    for root in range(size):
        for count in (1, 400_000):
            tensor = given(rank, count, dtype)
            dist.reduce(tensor, root, getattr(dist.ReduceOp, op))
            if rank == root:
                (close if op == "AVG" else same)(tensor, reduced(op, everyone(size, count, dtype)))


@case(op=BITS, dtype=INTEGERS)
def reduce_of_bits(dist, group, rank, size, op, dtype):
    tensor = given(rank, 100, dtype)
    dist.reduce(tensor, size - 1, getattr(dist.ReduceOp, op))
    if rank == size - 1:
        same(tensor, reduced(op, everyone(size, 100, dtype)))


def rows_for(rank, size, count, dtype="float32"):
    """What a rank gives a reduce_scatter: one row for each rank."""
    return torch.stack([given(rank, count, dtype, salt=owner) for owner in range(size)])


def my_row(rank, size, count, op, dtype="float32"):
    return reduced(op, torch.stack([given(peer, count, dtype, salt=rank) for peer in range(size)]))


@case(op=(*ARITHMETIC, "AVG"), dtype=("float32", "float64", "bfloat16"))
def reduce_scatter(dist, group, rank, size, op, dtype):
    for count in (1, 1000, 200_003):
        output = torch.empty(count, dtype=getattr(torch, dtype))
        rows = list(rows_for(rank, size, count, dtype))
        dist.reduce_scatter(output, rows, getattr(dist.ReduceOp, op))
        (close if op == "AVG" else same)(output, my_row(rank, size, count, op, dtype))
        same(torch.stack(rows), rows_for(rank, size, count, dtype))


@case(count=(10, 100_000))
def reduce_scatter_of_separate_tensors(dist, group, rank, size, count):
    output = torch.empty(count)
    dist.reduce_scatter(output, [row.clone() for row in rows_for(rank, size, count)])
    same(output, my_row(rank, size, count, "SUM"))


@case(unit=(1, 100_000))
def reduce_scatter_of_uneven_sizes(dist, group, rank, size, unit):
    counts = [owner * unit for owner in range(size)]
    output = torch.empty(counts[rank])
    dist.reduce_scatter(output, [given(rank, count, salt=owner) for owner, count in enumerate(counts)])
    same(output, my_row(rank, size, counts[rank], "SUM"))


@case(op=(*ARITHMETIC, "AVG"), dtype=(*FLOATS, "int32"))
def reduce_scatter_tensor(dist, group, rank, size, op, dtype):
    if op == "AVG" and dtype == "int32":
        return
    for count in (1, 1000, 200_003):
        output, rows = torch.empty(count, dtype=getattr(torch, dtype)), rows_for(rank, size, count, dtype)
        dist.reduce_scatter_tensor(output, rows.view(-1), getattr(dist.ReduceOp, op))
        (close if op == "AVG" else same)(output, my_row(rank, size, count, op, dtype))
        same(rows, rows_for(rank, size, count, dtype))


@case("more_than_gloo")
def reduce_scatter_tensor_multiplied_before(dist, group, rank, size):
    for count in (1000, 200_003):
        output, rows = torch.empty(count), rows_for(rank, size, count)
        dist.reduce_scatter_tensor(output, rows.view(-1), premultiplied(dist, 0.25))
        same(output, my_row(rank, size, count, "SUM") * 0.25)
        same(rows, rows_for(rank, size, count))


@case(count=(20, 60_000))
def reduce_scatter_tensor_of_two_dimensions(dist, group, rank, size, count):
    output = torch.empty(count, 4)
    rows = torch.cat([given(rank, count * 4, salt=owner).view(count, 4) for owner in range(size)])
    dist.reduce_scatter_tensor(output, rows)
    same(output, my_row(rank, size, count * 4, "SUM").view(count, 4))


@case(count=(5, 100_000), op=("SUM", "MAX", "AVG"))
def reduce_scatter_tensor_coalesced(dist, group, rank, size, count, op):
    counts = (count, 3, 2 * count)
    outputs = [torch.empty(length) for length in counts]
    options = torch._C._distributed_c10d.ReduceScatterOptions()
    options.reduceOp = getattr(dist.ReduceOp, op)
    inputs = [rows_for(rank, size, length).view(-1) for length in counts]
    group.reduce_scatter_tensor_coalesced(outputs, inputs, options).wait()
    for output, length in zip(outputs, counts, strict=True):
        (close if op == "AVG" else same)(output, my_row(rank, size, length, op))


@case("sparse")
def all_reduce_of_sparse_tensors_adds_them_up(dist, group, rank, size):
    index = torch.tensor([[0, rank + 1]])
    tensor = torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0]), (size + 1,), check_invariants=True)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    expected = torch.full((size + 1,), 2.0)
    expected[0] = size
    same(tensor.to_dense(), expected)


@case("sparse", op=("PRODUCT", "MIN", "MAX"))
def all_reduce_of_sparse_tensors_refuses_other_ops(dist, group, rank, size, op):
    tensor = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (4,), check_invariants=True)
    refused(lambda: dist.all_reduce(tensor, getattr(dist.ReduceOp, op)), "unsupported reduction operation")
