"""Which hosts are taken in, and under which name."""

from dataclasses import replace

import msgspec
import pytest

from paceline.facts import Job, Program, ProgramKind
from paceline.launch.job.admission import unique_name, why_refused
from paceline.launch.job.messages import Hello, decode, encode
from paceline.launch.job.state import Member

JOB = Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), min_hosts=1, max_hosts=4)
MEMBERS = (Member(host="node00", address="10.0.0.1", ranks=8, node_rank=0),)


def hello(**changes) -> Hello:
    fields = {
        "host_name": "node07", "wanted_name": None, "address": "10.0.0.7", "node_rank": 1, "ranks": 8,
        "hosts_wanted": (1, 4), "paceline_version": "0.1.0",
    }  # fmt: skip
    return Hello(**{**fields, **changes})


def test_a_host_that_fits_is_taken():
    assert why_refused(JOB, MEMBERS, "10.0.0.1", hello()) is None


def test_a_host_without_a_node_rank_is_placed_by_arrival():
    assert why_refused(JOB, MEMBERS, "10.0.0.1", hello(node_rank=None)) is None


def test_a_host_of_another_job_size_is_told_both_sizes():
    refused = why_refused(JOB, MEMBERS, "10.0.0.1", hello(hosts_wanted=(2, 2)))
    assert refused is not None and "--nnodes 2 there, --nnodes 1:4 at 10.0.0.1" in refused.saw


def test_a_node_rank_that_is_taken_is_refused_with_the_name_of_its_holder():
    refused = why_refused(JOB, MEMBERS, "10.0.0.1", hello(node_rank=0))
    assert refused is not None and "node00 has it" in refused.saw


def test_two_agents_on_one_machine_get_two_names():
    assert unique_name("vm", "127.0.0.1", {"algo-1"}) == "vm"
    assert unique_name("vm", "127.0.0.1", {"vm"}) == "127.0.0.1"
    assert unique_name("vm", "127.0.0.1", {"vm", "127.0.0.1", "vm-2"}) == "vm-3"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "a\nb", "\x1b[2J", "x" * 300])
@pytest.mark.parametrize("field", ["wanted_name", "host_name", "address"])
def test_a_name_that_would_lead_out_of_the_recording_is_no_hello(field, name):
    with pytest.raises(msgspec.ValidationError):
        decode(encode(hello(**{field: name})))


@pytest.mark.parametrize("name", ["algo-12", "node07.cluster.local", "fe80::1%eth0", "my_host"])
def test_names_and_addresses_of_real_hosts_are_taken(name):
    said = decode(encode(hello(host_name=name)))
    assert isinstance(said, Hello) and why_refused(JOB, MEMBERS, "10.0.0.1", said) is None


@pytest.mark.parametrize("ranks", [0, -1, 4097, 10**9])
def test_a_host_without_ranks_or_with_a_million_of_them_is_no_hello(ranks):
    with pytest.raises(msgspec.ValidationError):
        decode(encode(hello(ranks=ranks)))


@pytest.mark.parametrize("node_rank", [-1, 2**31])
def test_a_node_rank_that_would_come_before_the_first_is_no_hello(node_rank):
    with pytest.raises(msgspec.ValidationError):
        decode(encode(hello(node_rank=node_rank)))


def test_a_node_rank_beyond_the_jobs_hosts_is_refused():
    refused = why_refused(JOB, MEMBERS, "10.0.0.1", hello(node_rank=4))
    assert refused is not None and "node ranks 0 to 3" in refused.saw and not refused.later


@pytest.mark.parametrize(("min_hosts", "room"), [(4, 4), (1, 8)])
def test_a_full_job_takes_nobody_in_and_says_that_there_may_be_room_later(min_hosts, room):
    job = replace(JOB, min_hosts=min_hosts, node_rank=None)
    members = tuple(Member(host=f"n{number}", address="10.0.0.1", ranks=8) for number in range(room))
    newcomer = hello(node_rank=None, hosts_wanted=(min_hosts, 4))
    assert why_refused(job, members[:-1], "10.0.0.1", newcomer) is None
    refused = why_refused(job, members, "10.0.0.1", newcomer)
    assert refused is not None and refused.later


def test_by_arrival_nobody_may_come_before_the_first_host():
    by_arrival = replace(JOB, node_rank=None)
    assert why_refused(by_arrival, (), "10.0.0.1", hello(node_rank=0)) is not None
    assert why_refused(by_arrival, (), "10.0.0.1", hello(node_rank=None)) is None
