"""Which hosts of a job connect to which before it runs."""

import socket

import pytest

from paceline.launch.engines.ssh.check import ALL_PAIRS_HOSTS, addresses_of, chosen_pairs
from paceline.launch.engines.ssh.remote import connect, listen
from paceline.rules.host_facts import HostFacts


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


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("10.0.0.5", ["203.0.113.9", "10.0.0.5"]),
        ("203.0.113.9", ["203.0.113.9"]),
        ("127.0.1.1", ["203.0.113.9"]),
        (None, ["203.0.113.9"]),
    ],
)
def test_a_host_is_tried_where_ssh_finds_it_and_then_at_its_own_address(own, expected):
    assert addresses_of("203.0.113.9", HostFacts(name="a", own_address=own)) == expected


def link(port, *addresses):
    (answer,) = connect(
        {"timeout_seconds": 5, "targets": [{"name": "b", "addresses": addresses, "port": port, "size_bytes": 1 << 16}]}
    )["links"]
    return answer


def test_a_host_that_one_of_its_addresses_reaches_is_reached():
    with socket.create_server(("127.0.0.2", 0)) as taken:
        unused = taken.getsockname()[1]
    port = listen({})["port"]
    assert link(port, "127.0.0.1")["error"] == ""
    assert link(port, "not.a.host.invalid", "127.0.0.1")["error"] == ""
    assert link(unused, "127.0.0.2", "127.0.0.1")["error"] == "Connection refused"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_host_is_reached_over_ipv6_too():
    assert link(listen({})["port"], "::1")["error"] == ""
