"""TF_CONFIG as SageMaker's TensorFlow images write it, with the ports that the hosts keep free, and the user's own."""

import json

import pytest

from paceline.errors import UsageError
from paceline.facts import Job, Placement, Program, ProgramKind
from paceline.parts.frameworks.tf_config import (
    address_variables,
    objection,
    own_port,
    server_config,
    tf_config,
    wanted_ports,
)

MIRRORED, SERVERS = "multi_worker_mirrored", "parameter_server"


def placements(*ports, ranks=1):
    return tuple(
        Placement(
            host=f"algo-{number + 1}",
            address=f"10.0.0.{number + 1}",
            node_rank=number,
            first_rank=number * ranks,
            ranks=ranks,
            ports=of_host,
        )
        for number, of_host in enumerate(ports)
    )


THREE = placements((8890,), (8890,), (15001,))


def read(form, placed, rank, addresses=None):
    return json.loads(tf_config(form, placed, rank, addresses or {}))


def test_multi_worker_mirrored_numbers_workers_by_rank():
    for rank in range(3):
        assert read(MIRRORED, THREE, rank) == {
            "cluster": {"worker": ["algo-1:8890", "algo-2:8890", "algo-3:15001"]},
            "environment": "cloud",
            "task": {"index": rank, "type": "worker"},
        }


def test_each_rank_of_a_host_has_a_port_of_its_own():
    placed = placements((8890, 8891), (8890, 20000), ranks=2)
    workers = ["algo-1:8890", "algo-1:8891", "algo-2:8890", "algo-2:20000"]
    for rank in range(4):
        said = read(MIRRORED, placed, rank)
        assert said["cluster"] == {"worker": workers} and said["task"] == {"index": rank, "type": "worker"}


def test_parameter_servers_lie_on_every_host_beside_chief_and_workers():
    placed = placements((2222, 2223), (2222, 2223), (2222, 15002))
    cluster = {
        "chief": ["algo-1:2222"],
        "ps": ["algo-1:2223", "algo-2:2223", "algo-3:15002"],
        "worker": ["algo-2:2222", "algo-3:2222"],
    }
    tasks = [{"index": 0, "type": "chief"}, {"index": 0, "type": "worker"}, {"index": 1, "type": "worker"}]
    for rank, task in enumerate(tasks):
        assert read(SERVERS, placed, rank) == {"cluster": cluster, "environment": "cloud", "task": task}
    for number in range(3):
        task = {"index": number, "type": "ps"}
        text = server_config(placed, f"algo-{number + 1}", {})
        assert json.loads(text) == {"cluster": cluster, "environment": "cloud", "task": task}


def test_one_host_has_a_chief_and_no_server():
    alone = placements((2222, 2223))
    assert read(SERVERS, alone, 0)["cluster"] == {"chief": ["algo-1:2222"]}
    assert server_config(alone, "algo-1", {}) is None


@pytest.mark.parametrize(("form", "ports"), [(MIRRORED, (8890,)), (SERVERS, (2222, 2223))])
def test_hosts_whose_names_nobody_resolves_are_named_by_address(form, ports):
    placed = placements(ports, ports)
    text = tf_config(form, placed, 1, {one.host: f"127.0.1.{one.node_rank}" for one in placed})
    assert "algo-" not in text and "127.0.1.1" in text


def test_a_host_without_ports_was_started_in_another_way():
    with pytest.raises(UsageError, match="algo-2 keeps no port free") as refused:
        tf_config(MIRRORED, placements((8890,), ()), 0, {})
    assert refused.value.code == "U57"


@pytest.mark.parametrize(
    ("form", "ranks", "ports"),
    [(MIRRORED, 1, (8890,)), (MIRRORED, 3, (8890, 8891, 8892)), (SERVERS, 1, (2222, 2223)), (None, 2, (0, 0))],
)
def test_sagemakers_ports_are_asked_for_first(form, ranks, ports):
    program = Program(kind=ProgramKind.SCRIPT, target="train.py")
    assert wanted_ports(Job(name="j", program=program, ranks_per_host=ranks, tf_config=form)) == ports


# ---------------------------------------------------------------------------------------------------------- the user's own


def users(cluster, kind, index):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


WORKERS = {"worker": ["a:1", "b:1", "c:1"]}


@pytest.mark.parametrize(
    ("text", "host"),
    [
        (users(WORKERS, "worker", 0), "algo-1"),
        (users(WORKERS, "worker", 2), "algo-3"),
        (users({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "chief", 0), "algo-1"),
        (users({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 1), "algo-3"),
        (users({"ps": ["c:1"], "worker": ["b:1"], "chief": ["a:1"]}, "ps", 0), "algo-3"),
        (users({"worker": ["a:1", "b:1"]}, "evaluator", 0), "algo-3"),
    ],
)
def test_a_tf_config_that_names_the_ranks_is_taken(text, host):
    assert objection(text, THREE, host) is None


@pytest.mark.parametrize(
    ("text", "host", "what"),
    [
        (users({"worker": ["a:1"] * 4}, "worker", 0), "algo-1", "names 4 tasks, and this job has 3 ranks"),
        (users(WORKERS, "worker", 1), "algo-1", "rank 0 on algo-1 is worker 1 in its TF_CONFIG, and must be worker 0"),
        (users(WORKERS, "worker", 0), "algo-2", "rank 1 on algo-2 is worker 0 in its TF_CONFIG, and must be worker 1"),
        (users(WORKERS, "worker", 3), "algo-3", "is worker 3"),
        (users({"worker": ["a:1", "b:1"]}, "worker", 1), "algo-3", "must be evaluator 0"),
        (users({"master": ["a:1"], "boss": ["b:1"]}, "master", 0), "algo-1", "tasks of type 'boss'"),
        (users({"worker": "a:1"}, "worker", 0), "algo-1", "is no list of addresses"),
        (users({"worker": {"0": "a:1"}}, "worker", 0), "algo-1", "is no list of addresses"),
        (users({"worker": None}, "worker", 0), "algo-1", "null is no list of addresses"),
        (users({"worker": ""}, "worker", 0), "algo-1", "is no list of addresses"),
        (users({"worker": 0}, "worker", 0), "algo-1", "is no list of addresses"),
        ("[" * 100_000, "algo-1", "cannot be read"),
        (users(WORKERS, "worker", "0"), "algo-1", "not a type and an index"),
        (users(WORKERS, "worker", None), "algo-1", "not a type and an index"),
        ("", "algo-1", "cannot be read"),
        ("{", "algo-1", "cannot be read"),
        ("[]", "algo-1", "no cluster or no task"),
        ("{}", "algo-1", "no cluster or no task"),
    ],
)
def test_a_tf_config_that_names_other_ranks_is_refused_and_says_why(text, host, what):
    wrong = objection(text, THREE, host)
    assert wrong is not None and wrong.code == "U57" and what in wrong.what
    assert wrong.saw is not None and "unset TF_CONFIG" in wrong.next


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "port"),
    [
        (WORKERS, "worker", 2, 1),
        ({"chief": ["[::1]:8890"]}, "chief", 0, 8890),
        ({"worker": ["a"]}, "worker", 0, None),
        ({"worker": ["a:99999"]}, "worker", 0, None),
        (WORKERS, "evaluator", 0, None),
    ],
)
def test_the_port_of_the_users_own_task_is_known(cluster, kind, index, port):
    assert own_port(users(cluster, kind, index)) == port


def test_ranks_of_one_host_cannot_all_be_the_same_task():
    placed = placements((8890, 8891), ranks=2)
    wrong = objection(users({"worker": ["a:1", "a:2"]}, "worker", 0), placed, "algo-1")
    assert wrong is not None and "all 2 ranks of algo-1 would be the same task" in wrong.what


# -------------------------------------------------------------------------------------------------------- without TF_CONFIG


def test_every_rank_learns_the_addresses_of_all_and_its_own_number():
    placed = placements((15000, 15001), (15000, 20000), ranks=2)
    found = address_variables(placed, {"algo-1": "127.0.1.1"}, 3, 4)
    assert json.loads(found["PACELINE_RANK_ADDRESSES"]) == [
        *("127.0.1.1:15000", "127.0.1.1:15001", "algo-2:15000", "algo-2:20000")
    ]
    assert (found["KERAS_DISTRIBUTION_JOB_ADDRESSES"], found["KERAS_DISTRIBUTION_NUM_PROCESSES"]) == (
        "127.0.1.1:15000",
        "4",
    )
    assert found["KERAS_DISTRIBUTION_PROCESS_ID"] == "3"


def test_no_addresses_are_told_where_a_host_keeps_no_ports_or_the_variable_would_be_too_long():
    assert address_variables(placements((15000,), ()), {}, 0, 2) == {}
    assert address_variables(placements((15000,)), {}, 0, 1) == {}
    many = placements(tuple(range(10000, 20000)), ranks=10000)
    assert address_variables(many, {}, 0, 10000) == {}
