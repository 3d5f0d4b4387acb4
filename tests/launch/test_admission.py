"""Which hosts are taken in, and under which name."""

from dataclasses import replace

import pytest

from paceline.facts import Job, Program, ProgramKind
from paceline.launch.admission import unique_name, why_refused
from paceline.launch.messages import Hello
from paceline.launch.state import Seat

JOB = Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), min_hosts=1, max_hosts=4)
SEATS = (Seat(host="node00", address="10.0.0.1", ranks=8, node_rank=0),)


def hello(**changes) -> Hello:
    fields = {
        "host_name": "node07", "wanted_name": None, "address": "10.0.0.7", "node_rank": 1, "ranks": 8,
        "hosts_wanted": (1, 4), "paceline_version": "0.1.0",
    }  # fmt: skip
    return Hello(**{**fields, **changes})


def test_a_host_that_fits_is_taken():
    assert why_refused(JOB, SEATS, "10.0.0.1", hello()) is None


def test_a_host_without_a_node_rank_is_placed_by_arrival():
    assert why_refused(JOB, SEATS, "10.0.0.1", hello(node_rank=None)) is None


def test_a_host_of_another_job_size_is_told_both_sizes():
    refused = why_refused(JOB, SEATS, "10.0.0.1", hello(hosts_wanted=(2, 2)))
    assert refused is not None and "--nnodes 2 there, --nnodes 1:4 at 10.0.0.1" in refused.saw


def test_a_node_rank_that_is_taken_is_refused_with_the_name_of_its_holder():
    refused = why_refused(JOB, SEATS, "10.0.0.1", hello(node_rank=0))
    assert refused is not None and "node00 has it" in refused.saw


def test_two_agents_on_one_machine_get_two_names():
    assert unique_name("vm", "127.0.0.1", {"algo-1"}) == "vm"
    assert unique_name("vm", "127.0.0.1", {"vm"}) == "127.0.0.1"
    assert unique_name("vm", "127.0.0.1", {"vm", "127.0.0.1", "vm-2"}) == "vm-3"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "a\nb", "\x1b[2J", "x" * 300])
def test_a_name_that_would_lead_out_of_the_recording_is_refused(name):
    assert why_refused(JOB, SEATS, "10.0.0.1", hello(wanted_name=name)) is not None
    assert why_refused(JOB, SEATS, "10.0.0.1", hello(host_name=name)) is not None


@pytest.mark.parametrize("name", ["algo-12", "node07.cluster.local", "fe80::1%eth0", "my_host"])
def test_names_and_addresses_of_real_hosts_are_taken(name):
    assert why_refused(JOB, SEATS, "10.0.0.1", hello(host_name=name)) is None


def test_a_host_without_ranks_is_refused_since_it_would_never_end():
    assert why_refused(JOB, SEATS, "10.0.0.1", hello(ranks=0)) is not None


def test_by_arrival_nobody_may_come_before_the_first_host():
    by_arrival = replace(JOB, node_rank=None)
    assert why_refused(by_arrival, (), "10.0.0.1", hello(node_rank=0)) is not None
    assert why_refused(by_arrival, (), "10.0.0.1", hello(node_rank=None)) is None
