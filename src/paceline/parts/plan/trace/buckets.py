"""Computes DDP's gradient buckets as torch's reducer makes them after its first iteration."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

# torch/csrc/distributed/c10d/reducer.hpp, kDefaultFirstBucketBytes and kDefaultBucketBytesCap.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_CAP_BYTES = 25 << 20


@dataclass(frozen=True, slots=True)
class Gradient:
    """One parameter's gradient in the order of readiness. `kind`: gradients of two kinds (dtypes) never share a bucket."""

    size_bytes: int
    kind: Hashable
    is_sparse: bool = False


def buckets(
    ready: Iterable[Gradient], *, cap_bytes: int = BUCKET_CAP_BYTES, first_bytes: int = FIRST_BUCKET_BYTES
) -> Sequence[int]:
    """Bytes of each bucket in the order of reduction, from gradients in the order in which backward makes them.

    Holds:   sum(buckets(g)) == sum of the sizes; a bucket closes with the gradient that reaches its cap; a sparse one stands alone
    Source:  torch 2.13, compute_bucket_assignment_by_size (reducer.cpp) with the limits of Reducer::rebuild_buckets
    """
    closed: list[int] = []
    open_bytes: dict[Hashable, int] = {}
    caps: dict[Hashable, int] = {}
    for gradient in ready:
        if gradient.is_sparse:
            closed.append(gradient.size_bytes)
            continue
        filled = open_bytes.pop(gradient.kind, 0) + gradient.size_bytes
        if filled >= caps.setdefault(gradient.kind, first_bytes):
            closed.append(filled)
            caps[gradient.kind] = cap_bytes
        else:
            open_bytes[gradient.kind] = filled
    return (*closed, *open_bytes.values())
