"""What shared memory has to do: one function a case, run by ranks 0 to size - 1 of one host for the sizes 2, 3, 4 (run_shared_memory.py).

A case gets (open_memory, rank, size); `open_memory` makes a SharedMemory among these ranks. Every rank knows what the others contribute
(`given`), so answers are compared with plain arithmetic.
"""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import torch

RANKS = 4
SIZES = (2, 3, 4)
SMALL_AREA = 4096  # bytes: a few hundred elements are many chunks
COUNTS = (0, 1, 5, 63, 64, 1023, 1024, 1025, 9001)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FUNCTIONS = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
CASES: dict[str, Callable[..., None]] = {}


def case(function):
    CASES[function.__name__] = function
    return function


def given(rank, count, dtype=torch.float32, salt=0):
    """What `rank` contributes: numbers whose sum depends on the order of the additions."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype == torch.bool or not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0, 100, (count,), generator=generator).to(dtype)
    return (torch.randn(count, generator=generator, dtype=torch.float64) * 10).to(dtype)


def reduced(op, tensors):
    """In rank order, rounded after each."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = FUNCTIONS[op](total, tensor)
    return total.div(len(tensors)) if op == "avg" else total


def same(left, right):
    assert left.dtype == right.dtype and left.shape == right.shape
    assert torch.equal(left.contiguous().view(-1).view(torch.uint8), right.contiguous().view(-1).view(torch.uint8))


@contextmanager
def raises(kinds, *words):
    try:
        yield
    except kinds as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no {kinds}")


# -- values


@case
def all_reduce_is_the_op_in_rank_order_bit_for_bit(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    kinds = [(op, dtype) for op in ("sum", "avg", "product", "min", "max") for dtype in FLOATS]
    kinds += [(op, dtype) for op in FUNCTIONS if op != "avg" for dtype in INTEGERS]
    kinds += [(op, torch.bool) for op in ("sum", "product", "min", "max", "band", "bor", "bxor")]
    kinds += [(op, torch.complex64) for op in ("sum", "avg", "product")]
    for op, dtype in kinds:
        for count in COUNTS:
            tensor = given(rank, count, dtype)
            memory.all_reduce(tensor, op)
            same(tensor, reduced(op, [given(peer, count, dtype) for peer in range(size)]))


@case
def reduce_scatter_is_a_part_of_the_same(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    for op, dtype in (("sum", torch.float32), ("avg", torch.bfloat16), ("max", torch.int64), ("sum", torch.bool)):
        for count in COUNTS:
            mine, output = given(rank, count * size, dtype), torch.empty(count, dtype=dtype)
            memory.reduce_scatter(output, mine, op)
            whole = reduced(op, [given(peer, count * size, dtype) for peer in range(size)])
            same(output, whole[rank * count : (rank + 1) * count])
            same(mine, given(rank, count * size, dtype))
            memory.reduce_scatter(mine[rank * count : (rank + 1) * count], mine, op)
            same(mine[rank * count : (rank + 1) * count], output)


@case
def all_gather_is_everybodys_input(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float8_e4m3fn):
        for count in COUNTS:
            output = torch.empty(count * size, dtype=dtype)
            memory.all_gather(output, given(rank, count, dtype))
            same(output, torch.cat([given(peer, count, dtype) for peer in range(size)]))
            output = torch.empty(size, count, dtype=dtype)
            output[rank] = given(rank, count, dtype)
            memory.all_gather(output, output[rank])
            same(output.view(-1), torch.cat([given(peer, count, dtype) for peer in range(size)]))


@case
def broadcast_is_the_roots_tensor(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float8_e4m3fn):
        for root in range(size):
            for count in COUNTS:
                tensor = given(rank, count, dtype)
                memory.broadcast(tensor, root)
                same(tensor, given(root, count, dtype))


@case
def memory_of_the_default_size_carries_what_is_larger_than_it(open_memory, rank, size):
    memory = open_memory()
    for count in (1, 300_000, 2_500_011):
        tensor = given(rank, count)
        memory.all_reduce(tensor, "sum")
        same(tensor, reduced("sum", [given(peer, count) for peer in range(size)]))
    count = 500_003
    output = torch.empty(count)
    memory.reduce_scatter(output, given(rank, count * size), "sum")
    same(output, reduced("sum", [given(peer, count * size) for peer in range(size)])[rank * count : (rank + 1) * count])
    whole = torch.empty(size, count)
    memory.all_gather(whole, given(rank, count))
    same(whole, torch.stack([given(peer, count) for peer in range(size)]))


@case
def a_hundred_mebibytes_are_exchanged(open_memory, rank, size):
    memory = open_memory()
    tensor = torch.full((25 << 20,), rank + 1.0)
    memory.all_reduce(tensor, "sum")
    assert (tensor == size * (size + 1) / 2).all()


@case
def different_exchanges_follow_each_other(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    for salt in range(100):
        count = COUNTS[salt % len(COUNTS)]
        tensor = given(rank, count, salt=salt)
        memory.all_reduce(tensor, "sum")
        same(tensor, reduced("sum", [given(peer, count, salt=salt) for peer in range(size)]))
        memory.broadcast(tensor.add_(rank), salt % size)
        output = torch.empty(size * count)
        memory.all_gather(output, tensor)
        same(output.view(size, count)[0], output.view(size, count)[-1])
        memory.all_reduce(torch.empty(0), "max")


@case
def tensors_of_every_form_are_exchanged_in_place(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    expected = reduced("sum", [given(peer, 6000) for peer in range(size)]).view(60, 100)
    transposed = given(rank, 6000).view(60, 100).t().contiguous().t()
    assert not transposed.is_contiguous()
    memory.all_reduce(transposed, "sum")
    same(transposed, expected)
    every_second = torch.zeros(60, 200)[:, ::2].copy_(given(rank, 6000).view(60, 100))
    memory.all_reduce(every_second, "sum")
    same(every_second, expected)
    wanting = torch.nn.Parameter(given(rank, 6000).view(60, 100))
    memory.all_reduce(wanting, "sum")
    same(wanting.detach(), expected)
    scalar = torch.tensor(float(rank))
    memory.broadcast(scalar, size - 1)
    assert scalar.item() == size - 1
    conjugate = torch.complex(given(rank, 50), given(rank, 50, salt=1)).conj()
    memory.all_reduce(conjugate, "sum")
    parts = [torch.complex(given(peer, 50), -given(peer, 50, salt=1)) for peer in range(size)]
    same(conjugate.resolve_conj(), reduced("sum", parts))


@case
def inference_mode_of_one_call_does_not_matter_to_the_next(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    for mode in (True, False, True):
        with torch.inference_mode(mode):
            tensor = given(rank, 3000)
            memory.all_reduce(tensor, "sum")
            same(tensor, reduced("sum", [given(peer, 3000) for peer in range(size)]))


@case
def nan_and_signed_zero_are_the_same_on_every_rank(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    payload = torch.tensor([0x7FC00001 + rank, 0x7FC00100 + rank], dtype=torch.int32).view(torch.float32)
    tensor = torch.cat([payload, torch.tensor([-0.0, float("inf") if rank else float("-inf")])])
    memory.all_reduce(tensor, "sum")
    gathered = torch.empty(size, 4)
    memory.all_gather(gathered, tensor)
    for row in gathered:
        same(row, gathered[0])


@case
def it_works_from_another_thread(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    tensor = given(rank, 9001)
    thread = threading.Thread(target=lambda: memory.all_reduce(tensor, "sum"))
    thread.start()
    thread.join()
    same(tensor, reduced("sum", [given(peer, 9001) for peer in range(size)]))


@case
def extra_bytes_are_what_is_mapped(open_memory, rank, size):
    before = shared_kib()
    memory = open_memory()
    mapped = (shared_kib() - before) * 1024
    assert 0 <= memory.extra_bytes() * size - mapped < size
    assert memory.extra_bytes() <= (8 << 20) + (64 << 10)
    memory.all_reduce(torch.zeros(5 << 20), "sum")
    assert (shared_kib() - before) * 1024 == mapped
    names = [
        line.split()[5:] for line in Path("/proc/self/maps").read_text().splitlines() if "paceline-exchange" in line
    ]
    assert all(name[-1] == "(deleted)" for name in names), names


def shared_kib():
    """What this process has mapped of segments, however often a page was touched."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            ours = "paceline-exchange" in line
        elif ours and line.startswith("Size:"):
            total += int(line.split()[1])
    return total
