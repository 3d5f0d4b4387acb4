"""Every variable of the contract that is the same for all ranks of a host, as one pure function.

The launcher adds the variables that differ per rank (RANK, LOCAL_RANK, MASTER_ADDR ...). docs/contract.md has one line per variable;
a test holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.contract.hyperparameters import (
    encode_variable,
    for_script,
    framework_parameters,
    legal_name,
    to_environment,
)
from paceline.contract.tree import INSTANCE_GROUP, INSTANCE_TYPE, NETWORK_INTERFACE, Tree

# Linux refuses to start a process with a variable of 128 KiB or more (MAX_ARG_STRLEN).
LONGEST_VARIABLE_BYTES = 128 * 1024 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContract:
    """The facts behind the variables of one host."""

    job_name: str
    """Name of the job."""
    hosts: tuple[str, ...]
    """All hosts, in node-rank order."""
    current_host: str
    """This host."""
    master_addr: str
    """Address of rank 0's host."""
    master_port: int
    """Port of the ranks' store."""
    tree: Tree
    """The directories of this host."""
    entry_point: str
    """The script, relative to its directory."""
    module_dir: str
    """The directory of the script."""
    profile: str = "v2"
    """How hyperparameters are written: v2 or v3 of the SDK."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters as the container sees them."""
    user_arguments: tuple[str, ...] = ()
    """The script's arguments."""
    channels: tuple[str, ...] = ()
    """Names of the channels."""
    input_data_config: Mapping[str, Any] = field(default_factory=dict)
    """Content of inputdataconfig.json."""
    resource_config: Mapping[str, Any] = field(default_factory=dict)
    """Content of resourceconfig.json."""
    ranks_per_host: int = 1
    """Ranks on this host."""
    cpu_count: int = 1
    """CPUs of the host."""
    gpu_count: int = 0
    """Accelerators that the ranks may use."""
    neuron_count: int = 0
    """Neuron cores."""
    region: str = ""
    """AWS region; "" if there is none."""
    framework_module: str | None = None
    """Value of SM_FRAMEWORK_MODULE, if it is set."""
    log_level: int = 20
    """Value of SM_LOG_LEVEL."""
    model_dir: str | None = None
    """SM_MODEL_DIR; None: that of the tree."""
    output_data_dir: str | None = None
    """SM_OUTPUT_DATA_DIR; None: that of the tree."""


def variables(host: HostContract) -> dict[str, str]:
    """Name -> text of every variable of this host; see docs/contract.md for each.

    Holds:   json.loads(variables(h)["SM_HOSTS"])[0] is the host of rank 0
    """
    named = {
        **_hosts(host),
        **_program(host),
        **_directories(host),
        **_groups(host),
        **_channels(host),
        "SM_RESOURCE_CONFIG": host.resource_config,
        "SM_TRAINING_ENV": training_env(host),
        "SM_LOG_LEVEL": host.log_level,
    }
    if "topology" in host.resource_config:
        named["SM_TOPOLOGY"] = host.resource_config["topology"]
    return {
        **{name: encode_variable(value) for name, value in named.items()},
        **to_environment(host.hyperparameters, host.profile),
        **_platform(host),
    }


def training_env(host: HostContract) -> dict[str, Any]:
    """The one JSON object that holds the rest: the v2 toolkit's keys, and the three that v3 added."""
    hosts = list(host.hosts)
    groups = _group_facts(host)
    return {
        "additional_framework_parameters": framework_parameters(host.hyperparameters),
        "channel_input_dirs": _channel_paths(host),
        "current_host": host.current_host,
        "current_instance_group": groups["current"],
        "current_instance_group_hosts": groups["current_hosts"],
        "current_instance_type": _instance_type(host),
        "distribution_hosts": hosts,
        "distribution_instance_groups": list(groups["by_name"]),
        "framework_module": host.framework_module,
        "hosts": hosts,
        "hyperparameters": for_script(host.hyperparameters),
        "input_config_dir": str(host.tree.input_config),
        "input_data_config": host.input_data_config,
        "input_data_dir": str(host.tree.input_data),
        "input_dir": str(host.tree.input),
        "instance_groups": list(groups["by_name"]),
        "instance_groups_dict": groups["by_name"],
        "is_hetero": len(groups["by_name"]) > 1,
        "is_master": host.current_host == hosts[0],
        "is_modelparallel_enabled": None,
        "is_smddpmprun_installed": False,
        "is_smddprun_installed": False,
        "job_name": host.job_name,
        "log_level": host.log_level,
        "master_addr": host.master_addr,
        "master_hostname": hosts[0],
        "master_port": host.master_port,
        "model_dir": _model_dir(host),
        "module_dir": host.module_dir,
        "module_name": _module_name(host),
        "network_interface_name": _interface(host),
        "num_cpus": host.cpu_count,
        "num_gpus": host.gpu_count,
        "num_neurons": host.neuron_count,
        "output_data_dir": _output_data_dir(host),
        "output_dir": str(host.tree.output),
        "output_intermediate_dir": str(host.tree.output_intermediate),
        "resource_config": host.resource_config,
        "topology": host.resource_config.get("topology"),
        "user_entry_point": host.entry_point,
    }


def too_long(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables with which no process could be started on Linux."""
    return tuple(
        name
        for name, text in environment.items()
        if len(name) + 1 + len(text.encode(errors="surrogateescape")) > LONGEST_VARIABLE_BYTES
    )


def _hosts(host: HostContract) -> dict[str, Any]:
    return {
        "SM_HOSTS": list(host.hosts),
        "SM_HOST_COUNT": len(host.hosts),
        "SM_CURRENT_HOST": host.current_host,
        "SM_CURRENT_HOST_RANK": host.hosts.index(host.current_host),
        "SM_CURRENT_INSTANCE_TYPE": _instance_type(host),
        "SM_NETWORK_INTERFACE_NAME": _interface(host),
        "SM_NUM_CPUS": host.cpu_count,
        "SM_NUM_GPUS": host.gpu_count,
        "SM_NUM_NEURONS": host.neuron_count,
        "SM_MASTER_ADDR": host.master_addr,
        "SM_MASTER_PORT": host.master_port,
        "SM_DISTRIBUTED_CONFIG": {"process_count_per_node": host.ranks_per_host},
        "SM_DISTRIBUTED_DRIVER_DIR": None,
    }


def _program(host: HostContract) -> dict[str, Any]:
    return {
        "SM_USER_ENTRY_POINT": host.entry_point,
        "SM_ENTRY_SCRIPT": host.entry_point,
        "SM_MODULE_NAME": _module_name(host),
        "SM_MODULE_DIR": host.module_dir,
        "SM_SOURCE_DIR": host.module_dir,
        "SM_USER_ARGS": list(host.user_arguments),
        "SM_FRAMEWORK_MODULE": host.framework_module,
        "SM_FRAMEWORK_PARAMS": framework_parameters(host.hyperparameters),
    }


def _directories(host: HostContract) -> dict[str, Any]:
    tree = host.tree
    return {
        "SM_MODEL_DIR": _model_dir(host),
        "SM_INPUT_DIR": str(tree.input),
        "SM_INPUT_CONFIG_DIR": str(tree.input_config),
        "SM_INPUT_DATA_DIR": str(tree.input_data),
        "SM_OUTPUT_DIR": str(tree.output),
        "SM_OUTPUT_DATA_DIR": _output_data_dir(host),
        "SM_OUTPUT_INTERMEDIATE_DIR": str(tree.output_intermediate),
        "SM_OUTPUT_FAILURE": str(tree.failure),
    }


def _groups(host: HostContract) -> dict[str, Any]:
    groups = _group_facts(host)
    return {
        "SM_CURRENT_INSTANCE_GROUP": groups["current"],
        "SM_CURRENT_INSTANCE_GROUP_HOSTS": groups["current_hosts"],
        "SM_INSTANCE_GROUPS": list(groups["by_name"]),
        "SM_INSTANCE_GROUPS_DICT": groups["by_name"],
        "SM_DISTRIBUTION_INSTANCE_GROUPS": list(groups["by_name"]),
        "SM_IS_HETERO": len(groups["by_name"]) > 1,
    }


def _channels(host: HostContract) -> dict[str, Any]:
    paths = _channel_paths(host)
    return {
        "SM_CHANNELS": sorted(paths),
        "SM_INPUT_DATA_CONFIG": host.input_data_config,
        # The legal spelling first, so that a channel whose own name is spelled so wins over it.
        **{f"SM_CHANNEL_{legal_name(name)}": path for name, path in paths.items()},
        **{f"SM_CHANNEL_{name.upper()}": path for name, path in paths.items()},
    }


def _platform(host: HostContract) -> dict[str, str]:
    return {
        "TRAINING_JOB_NAME": host.job_name,
        "SAGEMAKER_JOB_NAME": host.job_name,
        "SAGEMAKER_REGION": host.region,
        "SAGEMAKER_BASE_DIR": str(host.tree.base),
        "CURRENT_HOST": host.current_host,
    }


def _group_facts(host: HostContract) -> dict[str, Any]:
    by_name = {group["instance_group_name"]: group for group in host.resource_config.get("instance_groups", ())}
    current = host.resource_config.get("current_group_name", INSTANCE_GROUP)
    return {
        "by_name": by_name,
        "current": current,
        "current_hosts": by_name[current]["hosts"] if current in by_name else [],
    }


def _channel_paths(host: HostContract) -> dict[str, str]:
    return {name: str(host.tree.channel(name)) for name in host.channels}


def _instance_type(host: HostContract) -> str:
    return str(host.resource_config.get("current_instance_type", INSTANCE_TYPE))


def _interface(host: HostContract) -> str:
    return str(host.resource_config.get("network_interface_name", NETWORK_INTERFACE))


def _module_name(host: HostContract) -> str:
    return host.entry_point.removesuffix(".py")


def _model_dir(host: HostContract) -> str:
    return host.model_dir or str(host.tree.model)


def _output_data_dir(host: HostContract) -> str:
    return host.output_data_dir or str(host.tree.output_data)
