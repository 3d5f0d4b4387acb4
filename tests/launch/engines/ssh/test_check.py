"""Which hosts of a job connect to which before it runs."""

import pytest

from paceline.launch.engines.ssh.check import ALL_PAIRS_HOSTS, chosen_pairs


@pytest.mark.parametrize("count", [2, 3, ALL_PAIRS_HOSTS])
def test_of_few_hosts_each_connects_to_every_other(count):
    assert [sorted(others) for others in chosen_pairs(count)] == [
        [other for other in range(count) if other != place] for place in range(count)
    ]


@pytest.mark.parametrize("count", [ALL_PAIRS_HOSTS + 1, 500])
def test_of_many_each_connects_to_the_next_one_and_a_few_more_the_same_each_time(count):
    pairs = chosen_pairs(count)
    assert pairs == chosen_pairs(count)
    assert all(len(set(others)) == 4 and place not in others for place, others in enumerate(pairs))
    assert all((place + 1) % count == others[0] for place, others in enumerate(pairs))
