"""A look at the hosts of a job before it runs: which connect to which, and what each engine has to do for it."""

import os
import socket

import pytest
from submissions import a_submission, changed

from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_hosts
from paceline.parts.engines.host_check import ALL_PAIRS_HOSTS, addresses_of, chosen_pairs, look_at
from paceline.parts.engines.ssh.remote import connect, listen
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


JOB = a_submission(program=Program(kind=ProgramKind.SCRIPT, target="train.py"), hosts=2)


def fake(**options):
    return load("fake", {}, options)


def test_the_fake_is_looked_at_as_the_contract_says():
    seen = check_hosts(fake(torch="2.0,2.1"), JOB)
    assert [(host.name, host.torch) for host in seen.hosts] == [("host-0", "2.0"), ("host-1", "2.1")]
    assert {(link.source, link.target) for link in seen.links} == {("host-0", "host-1"), ("host-1", "host-0")}


def test_the_contract_finds_a_host_that_cannot_connect():
    with pytest.raises(AssertionError, match="connection"):
        check_hosts(fake(cut="host-1"), JOB)


def test_a_host_without_an_answer_is_named_and_the_others_are_looked_at():
    seen = look_at(fake(gone="host-1"), changed(JOB, hosts=3))
    assert [host.name for host in seen.hosts] == ["host-0", "host-2"]
    assert [error.what for error in seen.refused] == ["host-1 is gone"]
    assert len(seen.links) == 2


def test_hosts_that_are_in_use_are_unknown_and_no_error():
    seen = check_hosts(fake(busy="yes"), JOB)
    assert seen.unknown == "the hosts of the job: no 2 were free within 30 s"


def test_a_job_that_the_engine_refuses_is_refused_here_too():
    seen = look_at(fake(refuse="U05"), JOB)
    assert [error.code for error in seen.refused] == ["U05"] and not seen.hosts


def test_an_engine_that_starts_nothing_before_a_job_is_listed_as_such():
    assert "starts no program" in look_at(object(), JOB).unknown


def test_this_machine_is_looked_at_as_the_contract_says():
    seen = check_hosts(load("local", os.environ, {}), JOB)
    assert [host.name for host in seen.hosts] == [os.uname().nodename]


def test_sagemaker_has_no_machines_before_a_job():
    assert "paid for" in check_hosts(load("sagemaker", {}, {}), JOB).unknown
