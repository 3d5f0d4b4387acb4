"""DDP, fully_shard, join, torch.compile and checkpoints give on backend `paceline` what they give on gloo (frameworks.py).

Two ranks: to the bit, since a + b is b + a. Four: gloo adds in the order of its ring and shared memory in the order of ranks, so they
agree to the rounding of a few sums.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from frameworks import CASES
from ranks import Ranks, environment_of_ranks

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(300)]

# Of these the order of additions can be told, and their sizes pass through every step of two levels of hosts.
ON_FOUR_RANKS = (
    "many_buckets",
    "unused_parameters",
    "mixed_dtypes",
    "uneven_inputs_under_join",
    "a_sharded_optimizer",
    "fully_sharded",
    "sharded_and_replicated",
    "distributed_tensors",
)
# Relative to the largest element of a tensor; bfloat16 tells apart 1 in 256, and adds four up with three roundings.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-14, torch.bfloat16: 1.2e-2}


@pytest.fixture(scope="module")
def results(
    make_user_environment: Callable[[Path], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], list[dict[str, object]]]:
    """What each rank found, for a backend on some hosts; started once."""

    @cache
    def results_of(backend: str, hosts: str) -> list[dict[str, object]]:
        directory = tmp_path_factory.mktemp(f"{backend}_{hosts}")
        ranks = Ranks(
            "run_frameworks.py", backend, hosts, directory, environment_of_ranks(make_user_environment(directory))
        )
        ranks.start(*(CASES if hosts == "aa" else ON_FOUR_RANKS))
        ranks.wait(280)
        return [torch.load(rank.left) for rank in ranks.ranks]

    return results_of


@pytest.mark.wide
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_get_what_gloo_gives_to_the_bit(results, case):
    for ours, theirs in both(results, "aa", case):
        assert len(ours) == len(theirs) > 0 or case == "sharded_and_replicated"
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other)


@pytest.mark.parametrize("case", ON_FOUR_RANKS)
def test_two_hosts_of_two_get_what_gloo_gives_but_for_rounding(results, case):
    for ours, theirs in both(results, "aabb", case):
        # What the coarsest dtype rounds away reaches the others of its model through activations and their gradients.
        tolerance = max((TOLERANCE[mine.dtype] for mine in ours), default=0)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.dtype == other.dtype
            far = (mine.double() - other.double()).abs().max()
            assert far <= tolerance * other.double().abs().max()


def both(results, hosts, case):
    """Ours and gloo's, rank by rank."""
    for ours, theirs in zip(results("paceline", hosts), results("gloo", hosts), strict=True):
        for found in (ours[case], theirs[case]):
            assert not isinstance(found, str), found
        yield ours[case], theirs[case]
