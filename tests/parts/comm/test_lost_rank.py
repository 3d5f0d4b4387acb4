"""A rank that ends within an exchange: the others end with an error that names it, within 5 s, and leave nothing behind."""

import json
import os
import signal

import pytest
from ranks import Ranks, environment_of_ranks

pytestmark = [pytest.mark.process, pytest.mark.fault, pytest.mark.timeout(120)]


def lose(hosts, how, ending, tmp_path, environment):
    """What the ranks left that did not end, and when the last one did."""
    ranks = Ranks("run_lost_rank.py", "paceline", hosts, tmp_path, environment_of_ranks(environment))
    ranks.start(how, ending)
    ranks.wait(100, expected=[*[0] * (len(hosts) - 1), -signal.SIGKILL if ending == "kill" else 1])
    *left, lost = [json.loads(rank.left.read_text()) for rank in ranks.ranks]
    return left, lost["at"]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("hosts", "how", "seen"),
    [
        pytest.param("aa", "large", "rank 1 on a ended", marks=pytest.mark.wide),
        ("aa", "in_flight", "rank 1 on a ended"),
        ("aabb", "ddp", "rank 3 on b ended"),
        pytest.param("aab", "small", "rank 2", marks=pytest.mark.wide),
        pytest.param("abc", "large", "rank 2", marks=pytest.mark.wide),
    ],
)
def test_a_killed_rank_is_named_by_all_others_within_5_seconds(hosts, how, seen, tmp_path, user_environment):
    others, killed_at = lose(hosts, how, "kill", tmp_path, user_environment)
    for rank, left in enumerate(others):
        assert left["at"] - killed_at < 5, left
        assert seen in left["error"] and f"rank {rank} on {hosts[rank]}" in left["error"], left
        assert "allreduce number" in left["error"] and "of group 0" in left["error"], left
        assert all("failed before" in text for text in left["later"]) and left["took"] < 5, left
    assert not [name for name in os.listdir("/dev/shm") if "paceline-exchange" in name]


@pytest.mark.wide
def test_a_rank_that_leaves_with_an_error_of_its_own_is_named_too(tmp_path, user_environment):
    others, left_at = lose("aabb", "large", "raise", tmp_path, user_environment)
    for left in others:
        assert left["at"] - left_at < 5 and "rank 3 on b" in left["error"], left
