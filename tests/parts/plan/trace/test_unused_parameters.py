"""DDP that looks for unused parameters never rebuilds its buckets, and exchanges what got no gradient."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from paceline.parts.plan.trace.replicas import Replicas  # noqa: E402

MIB = 1 << 20
SIZES = (300, 700, 900, 900, 1500, 2000, 3000, 2500, 10)


@pytest.mark.parametrize("cap_mib", [None, 2])
def test_the_buckets_of_the_constructor_stay(cap_mib):
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(SIZES)))
    model[1].weight.requires_grad_(False)
    replicas = Replicas(session=None)
    replicas.spread.append((model, {"find_unused_parameters": True, "bucket_cap_mb": cap_mib}))
    wanted = [p for p in model.parameters() if p.requires_grad]
    limits = [cap_mib * MIB] if cap_mib else [MIB, 25 * MIB]
    theirs, _ = dist._compute_bucket_assignment_by_size(wanted, limits, [False] * len(wanted))
    expected = [sum(4 * wanted[index].numel() for index in bucket) for bucket in reversed(theirs)]
    assert list(replicas.bucket_bytes([], {})) == expected
    assert len(expected) > 2
