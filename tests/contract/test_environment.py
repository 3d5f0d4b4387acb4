import json
from pathlib import Path

from paceline.contract.environment import HostContract, too_long, training_env, variables
from paceline.contract.tree import Tree, input_data_config, resource_config
from paceline.facts import Channel

TWELVE = tuple(f"algo-{number}" for number in range(1, 13))


def host(hosts=("algo-1", "algo-2"), current_host="algo-2", **changes):
    channels = changes.pop("channels", ())
    values = {
        "job_name": "digits",
        "hosts": hosts,
        "current_host": current_host,
        "master_addr": hosts[0],
        "master_port": 29400,
        "tree": Tree(Path("/opt/ml")),
        "entry_point": "train.py",
        "module_dir": "/opt/ml/code",
        "channels": tuple(channels),
        "input_data_config": input_data_config([Channel(name=name, source="/data") for name in channels]),
        "resource_config": resource_config(hosts, current_host, network_interface="eth0"),
        "ranks_per_host": 2,
        "cpu_count": 8,
        "region": "eu-west-1",
    }
    return HostContract(**{**values, **changes})


def test_every_value_is_text_that_a_process_can_be_given():
    for name, text in variables(host(hyperparameters={"a": None, "b": [1], "c": "it's"})).items():
        assert isinstance(text, str), name
        assert "\0" not in text


def test_values_are_raw_strings_empty_or_compact_sorted_json():
    found = variables(host(hyperparameters={"name": "it's", "none": None, "sizes": [1, 2], "d": {"b": 1, "a": True}}))
    assert found["SM_CURRENT_HOST"] == "algo-2"
    assert found["SM_HOSTS"] == '["algo-1","algo-2"]'
    assert found["SM_NUM_CPUS"] == "8"
    assert found["SM_FRAMEWORK_MODULE"] == ""
    assert found["SM_IS_HETERO"] == "false"
    assert found["SM_HP_NAME"] == "it's"
    assert found["SM_HP_NONE"] == ""
    assert found["SM_HP_D"] == '{"a":true,"b":1}'
    assert found["SM_HPS"] == '{"d":{"a":true,"b":1},"name":"it\'s","none":null,"sizes":[1,2]}'


def test_paths_are_those_of_sagemaker_below_opt_ml():
    found = variables(host(channels=["train"]))
    assert found["SM_MODEL_DIR"] == "/opt/ml/model"
    assert found["SM_INPUT_DIR"] == "/opt/ml/input"
    assert found["SM_INPUT_CONFIG_DIR"] == "/opt/ml/input/config"
    assert found["SM_INPUT_DATA_DIR"] == "/opt/ml/input/data"
    assert found["SM_OUTPUT_DIR"] == "/opt/ml/output"
    assert found["SM_OUTPUT_DATA_DIR"] == "/opt/ml/output/data"
    assert found["SM_OUTPUT_INTERMEDIATE_DIR"] == "/opt/ml/output/intermediate"
    assert found["SM_OUTPUT_FAILURE"] == "/opt/ml/output/failure"
    assert found["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train"


def test_a_channel_with_a_dash_has_both_names():
    found = variables(host(channels=["train-data", "test"]))
    assert found["SM_CHANNEL_TRAIN-DATA"] == found["SM_CHANNEL_TRAIN_DATA"] == "/opt/ml/input/data/train-data"
    assert found["SM_CHANNELS"] == '["test","train-data"]'
    assert json.loads(found["SM_TRAINING_ENV"])["channel_input_dirs"]["train-data"] == "/opt/ml/input/data/train-data"


def test_of_two_channels_with_one_legal_name_the_exact_spelling_wins():
    found = variables(host(channels=["train_data", "train-data"]))
    assert found["SM_CHANNEL_TRAIN_DATA"] == "/opt/ml/input/data/train_data"


def test_of_twelve_hosts_each_has_its_own_rank_and_the_first_is_the_master():
    found = [variables(host(TWELVE, current)) for current in TWELVE]
    assert [one["SM_CURRENT_HOST_RANK"] for one in found] == [str(number) for number in range(12)]
    assert {one["SM_HOSTS"] for one in found} == {json.dumps(TWELVE, separators=(",", ":"))}
    assert {one["SM_MASTER_ADDR"] for one in found} == {"algo-1"}
    assert [json.loads(one["SM_TRAINING_ENV"])["is_master"] for one in found] == [True] + [False] * 11


def test_all_lists_of_hosts_have_one_order():
    found = variables(host(TWELVE))
    lists = [
        json.loads(found["SM_HOSTS"]),
        json.loads(found["SM_CURRENT_INSTANCE_GROUP_HOSTS"]),
        json.loads(found["SM_RESOURCE_CONFIG"])["hosts"],
        json.loads(found["SM_RESOURCE_CONFIG"])["instance_groups"][0]["hosts"],
        json.loads(found["SM_INSTANCE_GROUPS_DICT"])["homogeneousCluster"]["hosts"],
        json.loads(found["SM_TRAINING_ENV"])["hosts"],
        json.loads(found["SM_TRAINING_ENV"])["distribution_hosts"],
    ]
    assert all(hosts == list(TWELVE) for hosts in lists)


def test_the_master_is_the_one_that_the_launcher_gives_to_the_ranks():
    found = variables(host(master_addr="10.0.0.7", master_port=31999))
    assert (found["SM_MASTER_ADDR"], found["SM_MASTER_PORT"]) == ("10.0.0.7", "31999")
    assert json.loads(found["SM_TRAINING_ENV"])["master_port"] == 31999


def test_the_training_env_agrees_with_the_single_variables():
    one = host(channels=["train"], hyperparameters={"lr": 0.1, "sagemaker_mpi_enabled": True})
    found = variables(one)
    everything = training_env(one)
    assert json.loads(found["SM_TRAINING_ENV"]) == json.loads(json.dumps(everything))
    assert everything["hyperparameters"] == json.loads(found["SM_HPS"]) == {"lr": 0.1}
    assert everything["additional_framework_parameters"] == json.loads(found["SM_FRAMEWORK_PARAMS"])
    for key in (
        "model_dir",
        "output_dir",
        "module_name",
        "current_instance_type",
        "network_interface_name",
        "job_name",
    ):
        name = {"job_name": "TRAINING_JOB_NAME"}.get(key, f"SM_{key.upper()}")
        assert everything[key] == found[name]


def test_the_entry_point_loses_only_its_suffix_in_the_modules_name():
    found = variables(host(entry_point="src/train.py"))
    assert (found["SM_USER_ENTRY_POINT"], found["SM_MODULE_NAME"]) == ("src/train.py", "src/train")


def test_a_topology_is_passed_on_only_where_the_container_has_one():
    assert "SM_TOPOLOGY" not in variables(host())
    resources = {**resource_config(("algo-1", "algo-2"), "algo-2", network_interface="eth0"), "topology": {"rack": 1}}
    assert variables(host(resource_config=resources))["SM_TOPOLOGY"] == '{"rack":1}'


def test_several_groups_are_called_heterogeneous():
    groups = [
        {"instance_group_name": "a", "instance_type": "x", "hosts": ["algo-1"]},
        {"instance_group_name": "b", "instance_type": "y", "hosts": ["algo-2"]},
    ]
    resources = {"current_group_name": "b", "hosts": ["algo-1", "algo-2"], "instance_groups": groups}
    found = variables(host(resource_config=resources))
    assert found["SM_IS_HETERO"] == "true"
    assert found["SM_INSTANCE_GROUPS"] == '["a","b"]'
    assert (found["SM_CURRENT_INSTANCE_GROUP"], found["SM_CURRENT_INSTANCE_GROUP_HOSTS"]) == ("b", '["algo-2"]')


def test_a_variable_with_which_no_process_could_start_is_found():
    limit = 128 * 1024
    assert too_long({"A": "x" * (limit - 3)}) == ()
    assert too_long({"A": "x" * (limit - 2)}) == ("A",)
