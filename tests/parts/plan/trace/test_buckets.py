"""DDP's buckets, held against torch's own function."""

import pytest

from paceline.parts.plan.trace.buckets import Gradient, buckets

MIB = 1 << 20


def fp32(*sizes_bytes):
    return [Gradient(size, "fp32") for size in sizes_bytes]


def test_the_first_bucket_is_small_and_a_bucket_closes_with_the_gradient_that_reaches_its_cap():
    assert buckets(fp32(MIB // 2, MIB, 20 * MIB, 10 * MIB, MIB)) == (MIB * 3 // 2, 30 * MIB, MIB)


def test_nothing_is_lost():
    gradients = fp32(3, 5 * MIB, 7, 30 * MIB, 11)
    assert sum(buckets(gradients)) == sum(gradient.size_bytes for gradient in gradients)
    assert buckets([]) == ()


def test_types_do_not_share_a_bucket_and_a_sparse_gradient_stands_alone():
    mixed = [Gradient(10, "fp32"), Gradient(6, "bf16"), Gradient(100, "fp32", is_sparse=True), Gradient(4, "fp32")]
    assert buckets(mixed) == (100, 6, 14)


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.parametrize("cap_mib", [None, 1, 4])
def test_they_are_those_of_torch(cap_mib):
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    made = torch.Generator().manual_seed(cap_mib or 0)
    counts = [int(count) for count in torch.randint(1, 2_000_000, (40,), generator=made)]
    tensors = [torch.empty(count) for count in counts]
    cap = (cap_mib or 25) * MIB
    first = cap if cap_mib else MIB
    indices, _ = dist._compute_bucket_assignment_by_size(tensors, [first, cap], [False] * 40, list(range(40)))
    theirs = tuple(sum(4 * counts[index] for index in bucket) for bucket in indices)
    assert buckets(fp32(*(4 * count for count in counts)), cap_bytes=cap, first_bytes=first) == theirs
