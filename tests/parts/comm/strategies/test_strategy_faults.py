"""A rank that dies, fails, stays away or just leaves under a strategy: the others say who and what within seconds, and
every process ends.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient

PROGRAM = Path(__file__).parents[1] / "run_strategy_faults.py"
SECONDS = 100

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(SECONDS + 20)]


@pytest.fixture(scope="module")
def saw(make_user_environment, tmp_path_factory):
    """{"<trouble> <rank>": what it saw}, "exit codes", "printed"."""
    directory = tmp_path_factory.mktemp("faults")
    program = subprocess.run(
        [sys.executable, str(PROGRAM), str(directory)],
        env=make_user_environment(directory / "state"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patient(SECONDS),
        check=False,
    )
    found = {path.stem: json.loads(path.read_text()) for path in directory.glob("*.json")}
    return found | {"printed": program.stdout}


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("killed_between_hosts", ["gradients by direct, bucket", "nothing more from rank 1"]),
        ("killed_on_one_host", ["gradients by hierarchical, bucket", "rank 1, on this host, ended"]),
        ("killed_in_a_ring", ["gradients by int8, bucket", "nothing more from rank 1"]),
    ],
)
def test_a_rank_killed_inside_an_exchange_ends_the_others_backward_with_the_cause(saw, trouble, words):
    survivor, killed = saw[f"{trouble} 0"], saw[f"{trouble} 1"]
    assert all(word in survivor["errors"][0] for word in words), survivor["errors"][0]
    assert survivor["at"][0] - killed["killed at"] < 5
    assert saw["exit codes"][f"{trouble} 0"] == 0 and saw["exit codes"][f"{trouble} 1"] == -9


ERRORS = ["error_on_one_rank", "error_before_the_last_bucket"]


@pytest.mark.parametrize("trouble", ["killed_between_hosts", "killed_on_one_host", "killed_in_a_ring", *ERRORS])
def test_later_buckets_fail_at_once_with_the_same_cause(saw, trouble):
    first, second = saw[f"{trouble} 0"]["errors"]
    # Who did what; what the connection said of it is another text in each lane.
    cause = ": ".join(first.partition(", bucket ")[2].splitlines()[0].split(": ")[1:3])
    assert f"bucket 0: no further exchange: {cause}" in second
    assert saw[f"{trouble} 0"]["took"][1] < 1


@pytest.mark.parametrize("trouble", ERRORS)
def test_an_error_of_one_rank_reaches_the_others_though_its_process_lives_on(saw, trouble):
    failed, other = saw[f"{trouble} 0"], saw[f"{trouble} 1"]
    assert "gradients by direct, bucket" in failed["errors"][0] and "no more memory for this one" in failed["errors"][0]
    assert "nothing more from rank 0" in other["errors"][0]
    assert other["at"][0] - failed["at"][0] < 5


def test_a_rank_that_does_not_come_is_named_after_the_groups_timeout(saw):
    waited = saw["rank_that_does_not_come 0"]
    assert "nothing more from rank 1: Timed out waiting 4000ms" in waited["errors"][0]
    assert 4 <= waited["took"][0] < 9


def test_a_rank_that_never_connects_is_waited_for_once_and_not_with_each_bucket(saw):
    waited = saw["rank_that_opens_no_lane 0"]
    assert "could not connect the ranks [0, 1] within 4 s" in waited["errors"][0]
    assert 4 <= waited["took"][0] < 9


def test_a_script_may_leave_without_destroying_its_group(saw):
    codes = saw["exit codes"]
    assert [codes[f"left_without_a_word {rank}"] for rank in range(2)] == [0, 0]
    assert [codes[f"left_by_an_exception {rank}"] for rank in range(2)] == [3, 3]


def test_a_group_destroyed_takes_its_threads_along_and_another_can_follow(saw):
    for rank in range(2):
        found = saw[f"destroyed_and_begun_again {rank}"]
        assert found["sent 0"] == found["sent 1"] > 0 and found["threads left"] == []
        assert "the process group was destroyed" in found["after"]


def test_nothing_is_printed(saw):
    assert not saw["printed"]
