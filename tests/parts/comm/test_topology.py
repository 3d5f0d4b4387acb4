"""Which ranks share a host, as the ranks said."""

import pytest

from paceline.parts.comm.topology import Topology, topology_of


def test_hosts_come_in_the_order_of_their_first_rank():
    assert topology_of(2, ["b", "a", "b", "a"]).hosts == ((0, 2), (1, 3))


@pytest.mark.parametrize(
    ("keys", "rank", "mine", "local_rank", "across", "is_regular", "is_blocked"),
    [
        ("aa", 1, (0, 1), 1, (1,), True, True),
        ("aabb", 2, (2, 3), 0, (0, 2), True, True),
        ("abab", 3, (1, 3), 1, (2, 3), True, False),
        ("aab", 2, (2,), 0, None, False, True),
        ("abc", 1, (1,), 0, (0, 1, 2), True, True),
    ],
)
def test_the_place_of_a_rank(keys, rank, mine, local_rank, across, is_regular, is_blocked):
    topology = topology_of(rank, list(keys))
    assert (topology.mine, topology.local_rank, topology.name) == (mine, local_rank, keys[rank])
    assert (topology.is_regular, topology.is_blocked) == (is_regular, is_blocked)
    assert across is None or topology.across == across


def test_every_rank_reads_the_same_hosts():
    assert len({topology_of(rank, list("abcab")).hosts for rank in range(5)}) == 1


def test_a_topology_can_be_written_down():
    assert Topology(0, 2, ((0, 1),)) == Topology(0, 2, ((0, 1),), local_peers=topology_of(0, ["a", "a"]).local_peers)
