"""Cases of wrong arguments: refused at the call or at its wait, with an error, and without a hang."""

import torch
from conformance import case, refused


def options_of(dist, name, **fields):
    options = getattr(torch._C._distributed_c10d, name)()
    for field, value in fields.items():
        setattr(options, field, value)
    return options


ONE, DOUBLE, TWO = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)


@case("gloo_words", root=("below", "above"))
def broadcast_from_no_rank(dist, group, rank, size, root):
    for count in (1, 400_000):
        options = options_of(dist, "BroadcastOptions", rootRank=-1 if root == "below" else size, rootTensor=0)
        refused(
            lambda options=options, count=count: group.broadcast([torch.zeros(count)], options), "invalid root rank"
        )


@case("gloo_words", tensor=(-1, 1))
def broadcast_of_no_tensor(dist, group, rank, size, tensor):
    for count in (1, 400_000):
        options = options_of(dist, "BroadcastOptions", rootRank=rank, rootTensor=tensor)
        refused(
            lambda options=options, count=count: group.broadcast([torch.zeros(count)], options), "invalid root tensor"
        )
    refused(lambda: group.broadcast([], options_of(dist, "BroadcastOptions", rootRank=rank, rootTensor=0)))


@case("gloo_words")
def broadcast_of_unlike_tensors(dist, group, rank, size):
    options = options_of(dist, "BroadcastOptions", rootRank=rank, rootTensor=0)
    refused(lambda: group.broadcast([ONE, DOUBLE], options), "invalid tensor type")
    refused(lambda: group.broadcast([ONE, TWO], options), "invalid tensor size")


@case("gloo_words")
def all_reduce_of_unlike_tensors(dist, group, rank, size):
    options = dist.AllreduceOptions()
    refused(lambda: group.allreduce([], options))
    refused(lambda: group.allreduce([ONE, DOUBLE], options), "invalid tensor type")
    refused(lambda: group.allreduce([ONE, TWO], options), "invalid tensor size")


@case("gloo_words")
def all_reduce_coalesced_of_unlike_tensors(dist, group, rank, size):
    sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (1,), check_invariants=True)
    options = dist.AllreduceCoalescedOptions()
    refused(lambda: group.allreduce_coalesced([], options))
    refused(lambda: group.allreduce_coalesced([ONE, DOUBLE], options), "same type")
    refused(lambda: group.allreduce_coalesced([ONE, sparse], options))
    refused(lambda: group.allreduce_coalesced([sparse, sparse.clone()], options))


@case("gloo_words")
def sparse_all_reduce_of_unlike_tensors(dist, group, rank, size):
    short, long = (
        torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (count,), check_invariants=True)
        for count in (2, 4)
    )
    options = dist.AllreduceOptions()
    refused(lambda: group.allreduce([ONE, short], options), "invalid tensor layout")
    refused(lambda: group.allreduce([short, long], options), "invalid tensor size")


@case(op=("BAND", "BOR", "BXOR"))
def bits_of_floats(dist, group, rank, size, op):
    for count in (1, 400_000):
        refused(lambda count=count: dist.all_reduce(torch.zeros(count), getattr(dist.ReduceOp, op)))


@case("gloo_words")
def an_average_of_integers(dist, group, rank, size):
    for count in (1, 400_000):
        refused(lambda count=count: dist.all_reduce(torch.zeros(count, dtype=torch.int32), dist.ReduceOp.AVG))


@case("gloo_words", dtype=("int16", "uint16", "float8_e4m3fn"))
def dtypes_that_gloo_does_not_know(dist, group, rank, size, dtype):
    for count in (1, 400_000):
        tensor = torch.zeros(count).to(getattr(torch, dtype))
        refused(lambda tensor=tensor: dist.all_reduce(tensor))


@case("more_than_gloo", op=("all_reduce", "broadcast", "reduce"))
def tensors_without_data(dist, group, rank, size, op):
    for count in (1, 400_000):
        tensor = torch.zeros(count, device="meta")
        arguments = {"all_reduce": (tensor,), "broadcast": (tensor, 0), "reduce": (tensor, 0)}[op]
        refused(lambda arguments=arguments: getattr(dist, op)(*arguments))


@case("gloo_words")
def reduce_to_no_rank(dist, group, rank, size):
    for root in (-1, size):
        options = options_of(dist, "ReduceOptions", rootRank=root)
        refused(lambda options=options: group.reduce([ONE.clone()], options), "invalid root rank")
    refused(lambda: group.reduce([ONE.clone()], options_of(dist, "ReduceOptions", rootTensor=1)), "invalid root tensor")
    refused(lambda: group.reduce([ONE, ONE], options_of(dist, "ReduceOptions")), "single-element tensor list")


@case("gloo_words")
def all_gather_of_unlike_tensors(dist, group, rank, size):
    refused(lambda: group.allgather([], []))
    refused(lambda: group.allgather([], [ONE]), "same length")
    refused(lambda: group.allgather([[ONE] * size, [ONE] * size], [ONE]), "same length")
    refused(lambda: group.allgather([[ONE] * (size - 1)], [ONE]), "invalid output tensor list")
    refused(lambda: group.allgather([[ONE] * (size + 1)], [ONE]), "invalid output tensor list")
    refused(lambda: group.allgather([([ONE, DOUBLE] * size)[:size]], [ONE]), "invalid tensor type")
    refused(lambda: group.allgather([([ONE, TWO] * size)[:size]], [ONE]), "invalid tensor size")


@case("gloo_words")
def all_gather_coalesced_of_unlike_tensors(dist, group, rank, size):
    outputs = [[torch.zeros(0)]] + [[torch.zeros(1)] for _ in range(size - 1)]
    refused(lambda: dist.all_gather_coalesced(outputs, [ONE]), "invalid size of output tensor at index 0")
    outputs[0] = [torch.zeros(1, dtype=torch.float64)]
    refused(lambda: dist.all_gather_coalesced(outputs, [ONE]), "invalid tensor type at index 0")
    refused(lambda: dist.all_gather_coalesced([[torch.zeros(1)]] * (size + 1), [ONE]), "equal to world size")


@case(form=("short", "long", "dtype"))
def all_gather_into_a_tensor_that_does_not_fit(dist, group, rank, size, form):
    for count in (6, 200_000):
        counts = {"short": size * count - 1, "long": size * count + 1, "dtype": size * count}
        output = torch.zeros(counts[form], dtype=torch.float64 if form == "dtype" else torch.float32)
        refused(lambda output=output, count=count: dist.all_gather_into_tensor(output, torch.zeros(count)))


@case(form=("short", "dtype"))
def reduce_scatter_of_a_tensor_that_does_not_fit(dist, group, rank, size, form):
    for count in (6, 200_000):
        counts = {"short": size * count - 1, "dtype": size * count}
        input = torch.zeros(counts[form], dtype=torch.float64 if form == "dtype" else torch.float32)
        refused(lambda input=input, count=count: dist.reduce_scatter_tensor(torch.zeros(count), input))


@case("gloo_words")
def gather_of_unlike_tensors(dist, group, rank, size):
    mine, other = (
        options_of(dist, "GatherOptions", rootRank=rank),
        options_of(dist, "GatherOptions", rootRank=(rank + 1) % size),
    )
    for root in (-1, size):
        refused(
            lambda root=root: group.gather([], [ONE], options_of(dist, "GatherOptions", rootRank=root)), "invalid root"
        )
    refused(lambda: group.gather([], [], mine))
    refused(lambda: group.gather([], [ONE, ONE], mine), "single-element input tensor list")
    refused(lambda: group.gather([], [ONE], mine), "single-element output list")
    refused(lambda: group.gather([[ONE] * size, [ONE] * size], [ONE], mine), "single-element output list")
    for count in (size - 1, size + 1):
        refused(lambda count=count: group.gather([[ONE] * count], [ONE], mine), "Incorrect output list size")
    refused(lambda: group.gather([[DOUBLE] * size], [ONE], mine), "invalid tensor type")
    refused(lambda: group.gather([[TWO] * size], [ONE], mine), "invalid tensor size")
    refused(lambda: group.gather([[ONE] * size], [ONE], other), "requires empty output on non-root")


@case("gloo_words")
def scatter_of_unlike_tensors(dist, group, rank, size):
    mine, other = (
        options_of(dist, "ScatterOptions", rootRank=rank),
        options_of(dist, "ScatterOptions", rootRank=(rank + 1) % size),
    )
    for root in (-1, size):
        refused(
            lambda root=root: group.scatter([ONE], [], options_of(dist, "ScatterOptions", rootRank=root)),
            "invalid root",
        )
    refused(lambda: group.scatter([], [], mine))
    refused(lambda: group.scatter([ONE, ONE], [], mine), "single-element output tensor list")
    refused(lambda: group.scatter([ONE], [], mine), "single-element input list")
    refused(lambda: group.scatter([ONE], [[ONE] * size, [ONE] * size], mine), "single-element input list")
    for count in (size - 1, size + 1):
        refused(lambda count=count: group.scatter([ONE], [[ONE] * count], mine), "Incorrect input list size")
    refused(lambda: group.scatter([ONE], [[DOUBLE] * size], mine), "invalid tensor type")
    refused(lambda: group.scatter([ONE], [[TWO] * size], mine), "invalid tensor size")
    refused(lambda: group.scatter([ONE], [[ONE] * size], other), "requires empty input on non-root")


@case("more_than_gloo")
def all_to_all_with_splits_that_do_not_add_up(dist, group, rank, size):
    refused(lambda: dist.all_to_all_single(torch.zeros(size), torch.zeros(size), [1] * size, [2] * size))
    refused(lambda: dist.all_to_all_single(torch.zeros(size + 1), torch.zeros(size + 1)))


@case()
def a_message_to_oneself(dist, group, rank, size):
    refused(lambda: dist.send(torch.zeros(1), rank))
    refused(lambda: dist.recv(torch.zeros(1), rank))


@case()
def lists_where_a_tensor_belongs(dist, group, rank, size):
    refused(lambda: dist.all_reduce([torch.zeros(1)]))
    refused(lambda: dist.all_gather(torch.zeros(size), torch.zeros(1)))
    refused(lambda: dist.all_reduce("text"))
    refused(lambda: dist.broadcast(torch.zeros(1), size + 3), kinds=(RuntimeError, ValueError))
