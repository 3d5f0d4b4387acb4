"""One host's part of the contract: from the user's options to the tree on disk and the variables of its ranks."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.contract import channels as channel_files
from paceline.contract.entry import located
from paceline.contract.environment import HostContract, too_long, variables
from paceline.contract.failure import forget_outcome
from paceline.contract.hyperparameters import as_delivered, to_arguments, to_wire
from paceline.contract.interface import interface_towards, read_routes
from paceline.contract.tree import (
    INSTANCE_TYPE,
    OPT_ML,
    DeliveredJob,
    Tree,
    in_host_order,
    input_data_config,
    lay_directories,
    link_code,
    read_job,
    resource_config,
    write_config,
    writing,
)
from paceline.facts import Channel, Contract, Program, ProgramKind
from paceline.findings import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the launcher needs from the contract to start this host's ranks."""

    tree: Tree
    """The directories of this host."""
    environment: dict[str, str]
    """Variables, the same for every rank of the host."""
    script_arguments: tuple[str, ...]
    """Arguments that replace the program's own."""
    working_directory: str | None = None
    """Where the ranks start; None: in the launcher's directory."""
    findings: tuple[Finding, ...] = ()
    """Warnings to show."""


def base_directory(contract: Contract, *, below: Path, host: str, several_here: bool) -> Path:
    """The base directory of this host's tree: /opt/ml, the user's base directory, or `below` in the recording.

    Hosts that share a machine get one directory each below the user's base directory, named after them.
    """
    if contract.opt_ml:
        return OPT_ML
    if contract.base_dir is None:
        return below.absolute()
    base = Path(contract.base_dir).expanduser().absolute()
    return base / host if several_here else base


def prepare_host(
    contract: Contract,
    *,
    base: Path,
    job_name: str,
    hosts: Sequence[str],
    current_host: str,
    program: Program,
    master_addr: str,
    master_port: int,
    ranks_per_host: int = 1,
    cpu_count: int | None = None,
    gpu_count: int = 0,
    instance_type: str = INSTANCE_TYPE,
    network_interface: str | None = None,
    environ: Mapping[str, str] | None = None,
    fetched: Mapping[str, Path] | None = None,
) -> Prepared:
    """Create the tree, link the channels and compute the variables of this host's ranks; call it once per attempt.

    `hosts` is in node-rank order and stays so: SM_HOSTS[0] is always the host of rank 0. `master_addr`
    and `master_port` are those that the ranks get. `fetched`: channel -> the directory that holds this host's share of it already, for the
    channels that are URLs. `environ` (default: this process's) supplies the region, and the
    output directories that the user set beforehand.

    Holds:   a second call with the same arguments leaves the same tree and returns the same environment
    Raises:  UsageError U06 (a channel), U22 (not writable), U27 (a container's configuration)
    """
    environ = os.environ if environ is None else environ
    tree = Tree(base.absolute())
    delivered = read_job(tree.base)
    interface = network_interface or interface_towards(master_addr, read_routes())
    resources = _resources(delivered, hosts, current_host, instance_type, interface)
    hyperparameters = _hyperparameters(contract, delivered)
    lain = _as_fetched(contract.channels, fetched or {})
    data_config, findings = _lay(contract, lain, tree, delivered, resources, tuple(hosts), current_host, job_name)
    arguments = (*program.arguments, *to_arguments(hyperparameters, contract.profile))
    entry_point, module_dir = _entry_point(program, contract.code_dir)
    host = HostContract(
        job_name=environ.get("TRAINING_JOB_NAME", job_name) if delivered else job_name,
        hosts=tuple(hosts),
        current_host=current_host,
        master_addr=master_addr,
        master_port=master_port,
        tree=tree,
        entry_point=entry_point,
        module_dir=module_dir,
        profile=contract.profile,
        hyperparameters=hyperparameters,
        user_arguments=arguments,
        channels=tuple(data_config),
        input_data_config=data_config,
        resource_config=resources,
        ranks_per_host=ranks_per_host,
        cpu_count=cpu_count or os.cpu_count() or 1,
        gpu_count=gpu_count,
        region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "",
        framework_module=environ.get("SAGEMAKER_TRAINING_MODULE"),
    )
    return _prepared(contract, _with_directories_of_the_user(host, delivered, environ), findings)


def _as_fetched(channels: Sequence[Channel], fetched: Mapping[str, Path]) -> tuple[tuple[Channel, bool], ...]:
    """Each channel with its directory, and whether that is this host's share already."""
    return tuple(
        (replace(channel, source=str(fetched[channel.name])), True) if channel.name in fetched else (channel, False)
        for channel in channels
    )


def _lay(
    contract: Contract,
    channels: Sequence[tuple[Channel, bool]],
    tree: Tree,
    delivered: DeliveredJob | None,
    resources: dict[str, Any],
    hosts: tuple[str, ...],
    current_host: str,
    job_name: str,
) -> tuple[dict[str, Any], list[Finding]]:
    """Creates the tree on disk; returns the content of inputdataconfig.json, and the findings about the channels."""
    data_config = {**(delivered.input_data_config if delivered else {}), **input_data_config(contract.channels)}
    _lay_empty(tree, contract.code_dir)
    findings = _lay_channels(channels, tree, hosts, current_host)
    if delivered is None:
        wire = to_wire(contract.hyperparameters, contract.profile)
        write_config(tree, wire=wire, channels=data_config, resources=resources, job_name=job_name)
    return data_config, findings


def _prepared(contract: Contract, host: HostContract, findings: Sequence[Finding]) -> Prepared:
    environment = variables(host)
    left_out = too_long(environment)
    return Prepared(
        tree=host.tree,
        environment={name: text for name, text in environment.items() if name not in left_out},
        script_arguments=host.user_arguments,
        working_directory=str(Path(contract.code_dir).absolute()) if contract.code_dir is not None else None,
        findings=(*findings, *(_left_out(name, environment[name]) for name in left_out)),
    )


def _resources(
    delivered: DeliveredJob | None, hosts: Sequence[str], current_host: str, instance_type: str, interface: str
) -> dict[str, Any]:
    if delivered is not None:
        return in_host_order(delivered.resource_config, hosts)
    return resource_config(hosts, current_host, instance_type=instance_type, network_interface=interface)


def _hyperparameters(contract: Contract, delivered: DeliveredJob | None) -> dict[str, Any]:
    mine = as_delivered(contract.hyperparameters, contract.profile)
    return {**delivered.hyperparameters, **mine} if delivered else mine


def _lay_empty(tree: Tree, code_dir: str | None) -> None:
    lay_directories(tree)
    forget_outcome(tree)
    if code_dir is not None:
        link_code(tree, code_dir)


def _lay_channels(
    channels: Sequence[tuple[Channel, bool]], tree: Tree, hosts: Sequence[str], current_host: str
) -> list[Finding]:
    findings = []
    for channel, is_share in channels:
        if not is_share:
            channel_files.check_channel(channel)
        mine = None
        if not is_share and channel.distribution == channel_files.SHARDED_BY_KEY and len(hosts) > 1:
            all_keys = channel_files.keys(channel)
            mine = channel_files.shares(all_keys, hosts)[current_host]
            findings.append(channel_files.unequal_shards(channel, all_keys, hosts))
        with writing(tree):
            channel_files.lay_channel(channel, tree.channel(channel.name), mine)
    return [finding for finding in findings if finding is not None]


def _entry_point(program: Program, code_dir: str | None) -> tuple[str, str]:
    root = Path(code_dir).absolute() if code_dir is not None else None
    if program.kind not in (ProgramKind.SCRIPT, ProgramKind.RUN_PATH):
        return program.target, str(root or Path.cwd())
    script = Path(located(program, code_dir).target).absolute()
    root = root or script.parent
    return str(script.relative_to(root) if script.is_relative_to(root) else script.name), str(root)


def _with_directories_of_the_user(
    host: HostContract, delivered: DeliveredJob | None, environ: Mapping[str, str]
) -> HostContract:
    # Users try such scripts outside SageMaker with `SM_MODEL_DIR=out torchrun train.py`, and torchrun passes it on.
    # Inside a rank of another run these variables are that run's, not the user's.
    if delivered is not None or "PACELINE_RUN_ID" in environ:
        return host
    return replace(host, model_dir=environ.get("SM_MODEL_DIR"), output_data_dir=environ.get("SM_OUTPUT_DATA_DIR"))


def _left_out(name: str, text: str) -> Finding:
    return Finding(
        code="U07",
        severity=Severity.WARNING,
        what=f"{name} is not set: it would be too long for any process to start",
        saw=f"{len(text)} characters; Linux takes at most 131,071 bytes in one variable",
        next="let the script read input/config/*.json below $SAGEMAKER_BASE_DIR instead",
        more="paceline help U07",
    )
