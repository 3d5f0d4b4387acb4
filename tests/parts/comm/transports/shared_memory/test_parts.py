"""The parts of shared memory that need no second process: pieces, sums, refusals, what is announced, memory without a name."""

import os
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from paceline.parts.comm.transports.peers import PeerLost
from paceline.parts.comm.transports.shared_memory.collectives import beginning, reduce_in_order
from paceline.parts.comm.transports.shared_memory.host_ranks import announcement_of, area_bytes_for
from paceline.parts.comm.transports.shared_memory.segment import PAGE_BYTES, Segment, unnamed_file, whole_pages
from paceline.parts.comm.transports.shared_memory.transport import (
    CROSSOVER_BYTES,
    OPS,
    TENSORS,
    SharedMemory,
    cut,
    flattened,
    function_of,
    put_back,
    tensor_over,
)


@pytest.mark.parametrize("count", (2, 3, 5))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_sum_is_taken_in_rank_order_and_divided_at_the_end(count, dtype):
    sources = [torch.randn(100, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(count)]
    expected = sources[0]
    for source in sources[1:]:
        expected = expected + source
    scratch, result = torch.empty(100, dtype=dtype), torch.empty(100, dtype=dtype)
    reduce_in_order(TENSORS, torch.add, sources, scratch, result, count)
    assert torch.equal(result, expected / count)


@pytest.mark.parametrize("own", (0, 1))
def test_the_first_two_summands_may_take_the_total(own):
    sources = [torch.full((5,), float(10**rank)) for rank in range(4)]
    reduce_in_order(TENSORS, torch.add, sources, sources[own], sources[own], 1)
    assert sources[own].tolist() == [1111.0] * 5


@pytest.mark.parametrize("numel", (0, 1, 6, 7, 8, 21))
def test_pieces_are_the_tensor_again_and_there_is_always_one(numel):
    flat = torch.arange(numel)
    pieces = cut(flat, 7)
    assert len(pieces) == max(1, -(-numel // 7))
    assert torch.equal(torch.cat(list(pieces)), flat)
    assert all(piece.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr() for piece in pieces)


def test_a_part_is_used_as_far_as_the_piece_goes():
    part = torch.arange(10)
    assert beginning(TENSORS, part, torch.empty(10)) is part
    assert torch.equal(beginning(TENSORS, part, torch.empty(3)), torch.arange(3))
    assert beginning(TENSORS, part, torch.empty(0)).numel() == 0


def test_a_tensor_in_one_row_is_exchanged_where_it_is():
    tensor = torch.zeros(3, 4)
    flat = flattened(tensor)
    flat.fill_(7)
    put_back(flat, tensor)
    assert (tensor == 7).all() and flat.data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("form", ("transposed", "every second", "conjugate", "expanded"))
def test_another_form_goes_through_a_copy(form):
    whole = torch.complex(torch.randn(6, 4), torch.randn(6, 4)) if form == "conjugate" else torch.randn(6, 4)
    tensor = {
        "transposed": whole.t(),
        "every second": whole[:, ::2],
        "conjugate": whole.conj(),
        "expanded": whole[:1].expand(1, 4)[:, ::3],
    }[form]
    flat = flattened(tensor)
    assert torch.equal(flat, tensor.resolve_conj().reshape(-1))
    flat.mul_(2)
    doubled = tensor.resolve_conj() * 2
    put_back(flat, tensor)
    assert torch.equal(tensor.resolve_conj(), doubled)


def test_a_parameter_is_exchanged_without_a_graph():
    parameter = torch.nn.Parameter(torch.ones(4))
    assert not flattened(parameter).requires_grad
    assert flattened(parameter).data_ptr() == parameter.data_ptr()


@pytest.mark.parametrize("tensor", (torch.eye(2).to_sparse(), torch.empty(2, device="meta")), ids=("sparse", "meta"))
def test_what_is_not_dense_and_on_the_cpu_is_refused(tensor):
    with pytest.raises(ValueError, match="dense CPU tensors"):
        flattened(tensor)


@pytest.mark.parametrize("op", OPS)
def test_every_op_takes_bool_or_floats(op):
    assert function_of(op, torch.float32 if op == "avg" else torch.bool) is OPS[op]


@pytest.mark.parametrize(
    ("op", "dtype", "words"),
    (
        ("avg", torch.int64, "avg of torch.int64"),
        ("band", torch.float32, "torch cannot band torch.float32"),
        ("max", torch.complex64, "torch cannot max torch.complex64"),
        ("sum", torch.float8_e5m2, "torch cannot sum torch.float8_e5m2"),
        ("median", torch.float32, "no op 'median'; it has sum, avg"),
    ),
)
def test_an_op_that_torch_does_not_offer_is_refused_by_name(op, dtype, words):
    with pytest.raises(ValueError, match=words):
        function_of(op, dtype)


def test_an_announcement_reads_as_a_sentence():
    assert announcement_of("all_reduce", "sum", 10, torch.bfloat16) == b"calls all_reduce sum of 10 bfloat16"
    assert announcement_of("all_gather", "", 3, torch.bool) == b"calls all_gather of 3 bool"


def test_the_segment_is_bounded_whatever_the_number_of_ranks():
    assert [area_bytes_for(size) * size >> 20 for size in (2, 4, 8, 64)] == [8, 16, 32, 32]
    assert CROSSOVER_BYTES % 4 == 0


@pytest.mark.parametrize("size", (0, 1, PAGE_BYTES, PAGE_BYTES + 1))
def test_whole_pages_hold_at_least_what_was_asked_for(size):
    assert 0 <= whole_pages(size) - size < PAGE_BYTES and whole_pages(size) % PAGE_BYTES == 0


def test_shared_memory_has_no_name_and_all_of_it_is_there():
    before = set(os.listdir("/dev/shm"))
    descriptor = unnamed_file(1 << 20)
    assert os.fstat(descriptor).st_blocks * 512 >= 1 << 20
    assert set(os.listdir("/dev/shm")) - before == set() or "paceline-exchange" not in str(os.listdir("/dev/shm"))
    segment = Segment(descriptor, 1 << 20)
    with pytest.raises(OSError):
        os.fstat(descriptor)
    tensor = tensor_over(segment.map, torch.int64, 4096, 10).fill_(3)
    assert segment.cells[512] == 3 and tensor.sum() == 30


def test_one_rank_alone_needs_no_memory():
    memory = SharedMemory(None, 0, 1, timeout_seconds=1)
    tensor, output = torch.arange(5.0), torch.zeros(5)
    memory.all_reduce(tensor, "avg")
    memory.broadcast(tensor, 0)
    memory.all_gather(output, tensor)
    assert torch.equal(output, torch.arange(5.0)) and memory.extra_bytes() == 0
    memory.reduce_scatter(output.zero_(), tensor, "sum")
    assert torch.equal(output, torch.arange(5.0))
    memory.close()


def two_in_threads(body):
    """`body(memory, rank)` in two threads that are two ranks; what each returned or raised."""
    store, results = dist.HashStore(), [None, None]

    def run(rank):
        try:
            memory = SharedMemory(store, rank, 2, timeout_seconds=20, area_bytes=4096)
            results[rank] = body(memory, rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_what_a_rank_opened_is_closed_with_it():
    def exchange(memory, rank):
        memory.all_reduce(torch.ones(5000), "sum")
        memory.close()

    before = len(list(Path("/proc/self/fd").iterdir()))
    assert two_in_threads(exchange) == [None, None]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_last_words_of_a_rank_that_failed_are_what_the_other_raises():
    def fail(memory, rank):
        if rank == 1:
            memory._doorbell.leave(1, "out of luck")
            return
        memory.all_reduce(torch.ones(3), "sum")

    lost, _ = two_in_threads(fail)
    assert isinstance(lost, PeerLost) and lost.rank == 1
    assert str(lost) == "rank 1, on this host, gave up an exchange: out of luck"
