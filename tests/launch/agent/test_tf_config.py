"""TF_CONFIG as SageMaker's TensorFlow images write it."""

import json

import pytest

from paceline.launch.agent.worker_spec import tf_config

HOSTS = ("algo-1", "algo-2", "algo-3")


def read(form, host, hosts=HOSTS, addresses=None):
    return json.loads(tf_config(form, hosts, host, addresses or {}))


def test_multi_worker_mirrored_numbers_workers_by_node_rank():
    for rank, host in enumerate(HOSTS):
        assert read("multi_worker_mirrored", host) == {
            "cluster": {"worker": ["algo-1:8890", "algo-2:8890", "algo-3:8890"]},
            "environment": "cloud",
            "task": {"index": rank, "type": "worker"},
        }


def test_parameter_servers_lie_on_every_host_beside_master_and_workers():
    cluster = {
        "master": ["algo-1:2222"],
        "ps": ["algo-1:2223", "algo-2:2223", "algo-3:2223"],
        "worker": ["algo-2:2222", "algo-3:2222"],
    }
    tasks = [{"index": 0, "type": "master"}, {"index": 0, "type": "worker"}, {"index": 1, "type": "worker"}]
    for host, task in zip(HOSTS, tasks, strict=True):
        assert read("parameter_server", host) == {"cluster": cluster, "environment": "cloud", "task": task}


def test_one_host_has_a_master_and_no_server():
    assert read("parameter_server", "algo-1", ("algo-1",))["cluster"] == {"master": ["algo-1:2222"]}


@pytest.mark.parametrize("form", ["multi_worker_mirrored", "parameter_server"])
def test_hosts_whose_names_nobody_resolves_are_named_by_address(form):
    text = tf_config(form, HOSTS, "algo-2", {host: f"127.0.1.{number}" for number, host in enumerate(HOSTS)})
    assert "algo-" not in text
