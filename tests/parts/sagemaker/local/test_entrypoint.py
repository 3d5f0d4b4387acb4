"""What is started on a host, and what its configuration files say."""

import json
from pathlib import Path

import pytest

from paceline.parts.sagemaker.local.entrypoint import container_argv, processes_per_host, run_arguments, script_argv
from paceline.parts.sagemaker.local.opt_ml import data_config, lay_config, places, resource_config


def scripted(**hyperparameters):
    named = {"sagemaker_program": '"train.py"', "sagemaker_submit_directory": '"s3://b/sourcedir.tar.gz"'}
    return {"HyperParameters": {**named, **hyperparameters}}


def grouped(*sizes):
    groups = [{"InstanceGroupName": f"g{n}", "InstanceType": "local", "InstanceCount": n} for n in sizes]
    return {"ResourceConfig": {"InstanceGroups": groups}, "HyperParameters": {"lr": "0.1"}}


def test_script_mode_is_read_as_the_sdk_writes_it():
    script = script_argv(scripted(sagemaker_torch_distributed_enabled="true"))
    assert (script.program, script.archive, script.distributed) == ("train.py", "s3://b/sourcedir.tar.gz", True)


def test_values_without_quotes_are_read_as_well():
    plain = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "file:///x.tar.gz"}
    assert script_argv({"HyperParameters": plain}).program == "train.py"


def test_without_a_program_or_its_archive_there_is_no_script():
    assert script_argv({}) is None
    assert script_argv({"HyperParameters": {"sagemaker_program": '"train.py"'}}) is None


def test_an_entry_point_of_the_request_comes_with_its_arguments():
    algorithm = {"ContainerEntrypoint": ["/bin/bash"], "ContainerArguments": ["-c", "true"]}
    assert container_argv({"AlgorithmSpecification": algorithm}) == ("/bin/bash", "-c", "true")
    assert container_argv({"AlgorithmSpecification": {}}) is None


@pytest.mark.parametrize(
    ("hyperparameters", "instance_type", "most", "ranks"),
    [
        ({}, "ml.p4d.24xlarge", 8, 1),
        ({"sagemaker_torch_distributed_enabled": "true"}, "ml.p4d.24xlarge", 1, 1),
        ({"sagemaker_torch_distributed_enabled": "true"}, "ml.p4d.24xlarge", 16, 8),
        ({"sagemaker_pytorch_ddp_enabled": "true"}, "local", 2, 2),
        ({"sagemaker_distributed_dataparallel_enabled": "false"}, "local", 2, 1),
        ({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "3"}, "local", 1, 3),
    ],
)
def test_ranks_of_a_host_are_what_the_launcher_of_the_request_would_start(hyperparameters, instance_type, most, ranks):
    assert processes_per_host(script_argv(scripted(**hyperparameters)), instance_type, most) == ranks


def test_the_agent_is_told_its_tree_its_code_and_where_to_meet():
    argv = run_arguments(
        script_argv(scripted()),
        "local",
        base="",
        code="/opt/ml/code",
        runs="/r",
        several=True,
        port=7,
        most_processes=1,
    )
    assert " ".join(argv) == (
        "run --set progress=off --run-dir /r --set opt_ml=true --source-dir /opt/ml/code --nproc-per-node 1 --master-port 7 -- train.py"
    )


def test_without_an_opt_ml_of_its_own_a_lone_host_gets_a_base_directory_and_no_port():
    argv = run_arguments(
        script_argv(scripted()), "local", base="/t", code="/t/code", runs="/r", several=False, port=7, most_processes=1
    )
    assert "--set base_dir=/t" in " ".join(argv)
    assert not {"opt_ml=true", "--master-port"} & set(argv)


def test_hosts_are_numbered_through_their_groups():
    found = places(grouped(1, 2), Path("/jobs/a"))
    assert [(one.name, one.group) for one in found] == [("algo-1", "g1"), ("algo-2", "g2"), ("algo-3", "g2")]
    assert found[2].tree.base == Path("/jobs/a/hosts/algo-3/ml")


def test_resourceconfig_has_every_group_and_this_hosts_own():
    found = places(grouped(1, 2), Path("/jobs/a"))
    config = resource_config(found, found[2])
    assert (config["current_host"], config["current_group_name"]) == ("algo-3", "g2")
    assert config["hosts"] == ["algo-1", "algo-2", "algo-3"]
    assert [group["hosts"] for group in config["instance_groups"]] == [["algo-1"], ["algo-2", "algo-3"]]


def test_a_channel_of_one_group_is_not_in_the_other_ones_configuration():
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "file:///d", "InstanceGroupNames": ["g2"]}}
    request = {
        **grouped(1, 2),
        "InputDataConfig": [{"ChannelName": "big", "DataSource": source, "ContentType": "text/csv"}],
    }
    assert data_config(request, "g1") == {}
    assert data_config(request, "g2")["big"] == {
        "TrainingInputMode": "File",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
        "ContentType": "text/csv",
    }


def test_hyperparameters_reach_every_host_as_they_were_sent(tmp_path):
    request = grouped(2)
    found = places(request, tmp_path)
    lay_config(request, found)
    assert [json.loads(one.tree.hyperparameters_file.read_text()) for one in found] == [{"lr": "0.1"}] * 2
