"""Shared memory among ranks of one host: real processes, started once; what they found out is one test a case."""

import json
import os

import pytest
import shared_memory_failures  # noqa: F401  its cases are among those below
from ranks import Ranks, environment_of_ranks
from shared_memory_cases import CASES, RANKS, SIZES

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def outcomes(make_user_environment, tmp_path_factory):
    """Of each rank: {case: what went wrong}."""
    directory = tmp_path_factory.mktemp("shared-memory")
    environment = environment_of_ranks(make_user_environment(directory))
    ranks = Ranks("run_shared_memory.py", "-", "a" * RANKS, directory, environment)
    ranks.start()
    ranks.wait(170, expected=[0] * (RANKS - 1) + [-9])
    return [json.loads(rank.left.read_text()) for rank in ranks.ranks]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_case(name, size, outcomes):
    for rank in range(size):
        assert outcomes[rank][f"{size}-{name}"] == "", f"rank {rank}"


@pytest.mark.parametrize("rank", range(RANKS - 1))
def test_a_killed_rank_is_named_by_every_other_within_5_seconds(rank, outcomes):
    assert outcomes[rank][f"{RANKS}-die_in_the_middle"] == ""


def test_a_killed_rank_leaves_nothing_behind(outcomes):
    assert len(outcomes) == RANKS
    assert not [name for name in os.listdir("/dev/shm") if "paceline-exchange" in name]
