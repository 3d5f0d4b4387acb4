import json
import os

import pytest

from paceline.contract.tree import (
    HostGroup,
    Tree,
    lay_directories,
    link_code,
    read_job,
    resource_config,
    resource_config_of_groups,
    write_config,
)
from paceline.errors import UsageError
from paceline.facts import Channel

# What a container of a 2-host job was given: the group lists its hosts the other way round.
REVERSED = {
    "current_host": "algo-2",
    "current_instance_type": "ml.p4d.24xlarge",
    "current_group_name": "homogeneousCluster",
    "hosts": ["algo-1", "algo-2"],
    "instance_groups": [
        {
            "instance_group_name": "homogeneousCluster",
            "instance_type": "ml.p4d.24xlarge",
            "hosts": ["algo-2", "algo-1"],
        }
    ],
    "network_interface_name": "eth0",
}


def deliver(base, resources=REVERSED, channels=None, hyperparameters=None):
    """The configuration files as a SageMaker container finds them."""
    config = base / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    (config / "inputdataconfig.json").write_text(json.dumps(channels or {}))
    (config / "hyperparameters.json").write_text(json.dumps(hyperparameters or {}))


def test_the_tree_has_every_directory_of_the_contract(tmp_path):
    lay_directories(Tree(tmp_path))
    laid = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    expected = {"input/config", "input/data", "model", "output/data", "output/intermediate", "checkpoints", "code"}
    assert expected <= laid


def test_what_paceline_wrote_is_not_taken_for_a_containers_configuration(tmp_path):
    tree = Tree(tmp_path)
    lay_directories(tree)
    resources = resource_config(("algo-1",), "algo-1", network_interface="lo")
    write_config(tree, wire={"lr": "0.1"}, channels={}, resources=resources, job_name="digits")
    assert json.loads(tree.hyperparameters_file.read_text()) == {"lr": "0.1"}
    assert json.loads(tree.resource_config_file.read_text()) == resources
    assert read_job(tmp_path) is None


def test_what_is_written_as_a_container_finds_it_is_read_as_one(tmp_path):
    tree = Tree(tmp_path)
    lay_directories(tree)
    groups = (
        HostGroup(name="small", instance_type="ml.g5.xlarge", hosts=("algo-1",)),
        HostGroup(name="large", instance_type="ml.p4d.24xlarge", hosts=("algo-2", "algo-3")),
    )
    resources = resource_config_of_groups(groups, "algo-3", network_interface="lo")
    write_config(tree, wire={"lr": "0.1"}, channels={}, resources=resources, job_name=None)
    job = read_job(tmp_path)
    assert (job.hosts, job.current_host, job.instance_type) == (
        ("algo-1", "algo-2", "algo-3"), "algo-3", "ml.p4d.24xlarge",
    )  # fmt: skip
    assert resources["current_group_name"] == "large"
    assert [group["hosts"] for group in resources["instance_groups"]] == [["algo-1"], ["algo-2", "algo-3"]]


def test_one_group_is_the_usual_case(tmp_path):
    hosts = ("algo-1", "algo-2")
    group = HostGroup(name="homogeneousCluster", instance_type="local", hosts=hosts)
    assert resource_config(hosts, "algo-2", network_interface="lo") == resource_config_of_groups(
        (group,), "algo-2", network_interface="lo"
    )


def test_writing_leaves_no_draft_behind(tmp_path):
    tree = Tree(tmp_path)
    lay_directories(tree)
    write_config(tree, wire={}, channels={}, resources={}, job_name="digits")
    names = {path.name for path in tree.input_config.iterdir()}
    assert names == {".paceline.json", "hyperparameters.json", "inputdataconfig.json", "resourceconfig.json"}


def test_an_empty_place_holds_no_job(tmp_path):
    assert read_job(tmp_path) is None


def test_a_group_in_reversed_order_does_not_change_the_order_of_hosts(tmp_path):
    deliver(tmp_path)
    job = read_job(tmp_path)
    assert job is not None
    assert job.hosts == ("algo-1", "algo-2")
    assert job.current_host == "algo-2"
    assert job.resource_config["instance_groups"][0]["hosts"] == ["algo-1", "algo-2"]
    assert (job.instance_type, job.network_interface) == ("ml.p4d.24xlarge", "eth0")


def test_twelve_hosts_in_the_order_of_letters_are_read_in_the_order_of_numbers(tmp_path):
    hosts = sorted(f"algo-{number}" for number in range(1, 13))
    assert hosts[1] == "algo-10"
    deliver(tmp_path, {"current_host": "algo-10", "hosts": hosts})
    job = read_job(tmp_path)
    assert job is not None
    assert job.hosts == tuple(f"algo-{number}" for number in range(1, 13))


def test_channels_and_hyperparameters_are_read_too(tmp_path):
    deliver(
        tmp_path,
        channels={"train": {"S3DistributionType": "ShardedByS3Key"}, "test": {}},
        hyperparameters={"lr": "0.1", "name": '"it\'s"', "flag": "true"},
    )
    job = read_job(tmp_path)
    assert job is not None
    assert job.hyperparameters == {"lr": 0.1, "name": "it's", "flag": True}
    assert job.channels == (
        Channel(name="train", source=str(tmp_path / "input/data/train"), distribution="ShardedByS3Key"),
        Channel(name="test", source=str(tmp_path / "input/data/test")),
    )


@pytest.mark.parametrize("resources", [{}, {"hosts": ["algo-1"]}, {"hosts": [], "current_host": "algo-1"}, [1]])
def test_a_configuration_without_usable_hosts_is_refused(tmp_path, resources):
    deliver(tmp_path, resources)
    with pytest.raises(UsageError) as refused:
        read_job(tmp_path)
    assert refused.value.code == "U27"


def test_a_configuration_that_is_not_json_is_refused(tmp_path):
    deliver(tmp_path)
    Tree(tmp_path).hyperparameters_file.write_text("{")
    with pytest.raises(UsageError, match=r"hyperparameters\.json"):
        read_job(tmp_path)


def test_a_base_that_cannot_be_written_is_refused_in_four_parts(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        lay_directories(Tree(tmp_path / "file" / "base"))
    error = refused.value
    assert error.code == "U22"
    assert all((error.what, error.saw, error.next, error.more))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError) as refused:
        lay_directories(Tree(tmp_path / "base"))
    assert "Permission denied" in refused.value.saw


def test_code_is_the_users_directory(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    tree = Tree(tmp_path / "base")
    lay_directories(tree)
    for _ in range(2):
        link_code(tree, source)
    assert tree.code.readlink() == source


def test_code_that_somebody_else_put_there_stays(tmp_path):
    tree = Tree(tmp_path / "base")
    lay_directories(tree)
    (tree.code / "train.py").touch()
    link_code(tree, tmp_path)
    assert (tree.code / "train.py").exists()


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_nobody_else_replaces_code_or_configuration_and_data_follow_the_umask(tmp_path, mask):
    tree = Tree(tmp_path / "ml")
    before = os.umask(mask)
    try:
        lay_directories(tree)
        write_config(tree, wire={}, channels={}, resources={}, job_name="j")
    finally:
        os.umask(before)
    for path in (tree.base, tree.input, tree.input_config, tree.code, *tree.config_files, tree.marker_file):
        assert not path.stat().st_mode & 0o022 & ~mask, path
    for path in (tree.model, tree.output_data, tree.checkpoints):
        assert path.stat().st_mode & 0o777 == 0o777 & ~mask
