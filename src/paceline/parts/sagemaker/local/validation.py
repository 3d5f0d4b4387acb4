"""The constraints of a training job beyond the shape of its request, and the features that this server does not run. No side effects."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paceline.parts.sagemaker.local.entrypoint import container_argv, script_argv
from paceline.parts.sagemaker.local.errors import ApiError, invalid

CHECKPOINTS = "/opt/ml/checkpoints"
DEFAULT_MAX_RUN_SECONDS = 86_400


def check(request: Mapping[str, Any], *, most_hosts: int) -> None:
    """Refuse a job that SageMaker would refuse, or that cannot run here.

    Raises:  ApiError ValidationException: members contradict each other, or the server does not support something;
             ResourceLimitExceeded: more hosts than this server starts for a job
    """
    for judge in (_resources, _algorithm, _metrics, _time, _channels, _checkpoints):
        for finding in judge(request):
            raise invalid(finding)
    _limit(request, most_hosts)


def groups(request: Mapping[str, Any]) -> tuple[tuple[str, str, int], ...]:
    """Name, instance type and size of each group of hosts in the request; one group if the request names none.

    Holds:   the sizes add up to the hosts of the job
    """
    resources = request.get("ResourceConfig", {})
    if named := resources.get("InstanceGroups"):
        return tuple((group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"]) for group in named)
    return (("homogeneousCluster", resources.get("InstanceType", ""), resources.get("InstanceCount", 0)),)


def max_run_seconds(request: Mapping[str, Any]) -> int:
    """The time limit in seconds, counted from Training; one day if the request has none."""
    return int(request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", DEFAULT_MAX_RUN_SECONDS))


def _resources(request: Mapping[str, Any]) -> Iterator[str]:
    if "ServerlessJobConfig" in request:
        yield "ServerlessJobConfig is not served by paceline sagemaker-local."
    resources = request.get("ResourceConfig")
    if resources is None:
        yield "ResourceConfig is required."
        return
    single = {"InstanceType", "InstanceCount"} & set(resources)
    if resources.get("InstanceGroups") and single:
        yield "You can't specify both InstanceGroups and InstanceType or InstanceCount in ResourceConfig."
    for name, instance_type, count in groups(request):
        if not instance_type:
            yield "InstanceType is required in ResourceConfig where there are no InstanceGroups."
        if count < 1:
            yield f"InstanceCount of {name} must be greater than or equal to 1."
    names = [name for name, _, _ in groups(request)]
    if len(set(names)) < len(names):
        yield "InstanceGroupName must be unique within InstanceGroups."


def _algorithm(request: Mapping[str, Any]) -> Iterator[str]:
    algorithm = request.get("AlgorithmSpecification", {})
    if bool(algorithm.get("TrainingImage")) == bool(algorithm.get("AlgorithmName")):
        yield "You must specify exactly one of TrainingImage and AlgorithmName in AlgorithmSpecification."
    if container_argv(request) is None and script_argv(request) is None:
        yield (
            "paceline sagemaker-local runs no image's own entry point: give ContainerEntrypoint, or the hyperparameters"
            " sagemaker_program and sagemaker_submit_directory."
        )
    only = script_argv(request)
    chosen = set(only.instance_groups) if only is not None else set()
    if chosen and chosen != {name for name, _, _ in groups(request)}:
        yield "sagemaker_distribution_instance_groups that leaves a group out is not served by paceline sagemaker-local."


def _metrics(request: Mapping[str, Any]) -> Iterator[str]:
    for definition in request.get("AlgorithmSpecification", {}).get("MetricDefinitions", ()):
        try:
            re.compile(definition["Regex"])
        except re.error as error:
            yield f"Invalid regular expression in metric definition {definition['Name']}: {error}."


def _time(request: Mapping[str, Any]) -> Iterator[str]:
    condition = request.get("StoppingCondition", {})
    wait = condition.get("MaxWaitTimeInSeconds")
    spot = request.get("EnableManagedSpotTraining", False)
    if spot and wait is None:
        yield "MaxWaitTimeInSeconds must be specified when EnableManagedSpotTraining is set to true."
    if not spot and wait is not None:
        yield "MaxWaitTimeInSeconds above 0 is not supported when EnableManagedSpotTraining is set to false."
    if spot and wait is not None and wait < max_run_seconds(request):
        yield "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds."
    if spot and request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds"):
        yield "KeepAlivePeriodInSeconds is not supported when EnableManagedSpotTraining is set to true."


def _channels(request: Mapping[str, Any]) -> Iterator[str]:
    channels = request.get("InputDataConfig", [])
    names = [channel["ChannelName"] for channel in channels]
    if len(set(names)) < len(names):
        yield "Channel names must be unique in InputDataConfig."
    known = {name for name, _, _ in groups(request)}
    for channel in channels:
        name, source = channel["ChannelName"], channel["DataSource"].get("S3DataSource")
        if name in (".", ".."):
            yield f"Channel name {name} is not allowed."
        if source is None:
            yield f"channel {name}: only S3DataSource is served by paceline sagemaker-local (s3:// or file:// URLs)."
            continue
        if source["S3DataType"] not in ("S3Prefix", "ManifestFile"):
            yield f"channel {name}: S3DataType {source['S3DataType']} is not served by paceline sagemaker-local."
        if channel.get("RecordWrapperType") == "RecordIO" or channel.get("CompressionType") == "Gzip":
            yield f"channel {name}: RecordWrapperType and CompressionType are not served by paceline sagemaker-local."
        if missing := set(source.get("InstanceGroupNames", ())) - known:
            yield f"channel {name}: instance group {min(missing)} is not in ResourceConfig."


def _checkpoints(request: Mapping[str, Any]) -> Iterator[str]:
    path = request.get("CheckpointConfig", {}).get("LocalPath", CHECKPOINTS)
    pieces = path.split("/")
    if not path.startswith("/opt/ml/") or ".." in pieces:
        yield f"CheckpointConfig LocalPath {path} is not below /opt/ml, as paceline sagemaker-local needs it."


def _limit(request: Mapping[str, Any], most_hosts: int) -> None:
    wanted = groups(request)
    hosts = sum(count for _, _, count in wanted)
    if hosts > most_hosts:
        instance_type = wanted[0][1]
        raise ApiError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{instance_type} for training job usage' is {most_hosts} Instances, with current"
            f" utilization of 0 Instances and a request delta of {hosts} Instances. Here it is the option --max-hosts.",
        )
