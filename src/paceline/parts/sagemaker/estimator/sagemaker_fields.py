"""Translates the arguments that only SageMaker understands to fields of CreateTrainingJob. It has no side effects."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.parts.sagemaker.estimator.instances import RequestedMachines

# AWS's registry of framework images. It has the same account id in these regions; in other regions, image_uri must name the image.
_ACCOUNT = "763104351884"
_REGIONS = (
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1", "eu-west-1", "eu-west-2", "eu-west-3", "eu-central-1",
    "eu-north-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2",
)  # fmt: skip
_IMAGES = {"PyTorch": "pytorch-training", "TensorFlow": "tensorflow-training"}


def platform_of(
    values: Mapping[str, Any], machines: RequestedMachines, metrics: Sequence[tuple[str, str]], job_name: str
) -> dict[str, Any]:
    """Fields of the request, without empty ones. Other engines than SageMaker get only a few of them."""
    definitions = [{"Name": name, "Regex": regex} for name, regex in metrics]
    if not machines.on_sagemaker:
        # attach() and describe() read these fields; other engines ignore them.
        found = {
            "AlgorithmSpecification": {"MetricDefinitions": definitions},
            "ResourceConfig": {"InstanceType": machines.instance_type},
        }
        return {"TrainingJobName": job_name, **_without_empty(found)}
    made: dict[str, Any] = {
        "TrainingJobName": job_name,
        "AlgorithmSpecification": _algorithm(values, definitions),
        "ResourceConfig": _resources(values, machines),
        "OutputDataConfig": {
            "KmsKeyId": values.get("output_kms_key"),
            "CompressionType": "NONE" if values.get("disable_output_compression") else None,
        },
        "StoppingCondition": {
            "MaxWaitTimeInSeconds": values.get("max_wait"),
            "MaxPendingTimeInSeconds": values.get("max_pending"),
        },
        "VpcConfig": {"Subnets": values.get("subnets"), "SecurityGroupIds": values.get("security_group_ids")},
        "EnableNetworkIsolation": values.get("enable_network_isolation") or None,
        "EnableInterContainerTrafficEncryption": values.get("encrypt_inter_container_traffic") or None,
        "EnableManagedSpotTraining": values.get("use_spot_instances") or None,
        "CheckpointConfig": {"LocalPath": values.get("checkpoint_local_path")},
        "Tags": _tags(values.get("tags")),
        "InfraCheckConfig": {"EnableInfraCheck": values.get("enable_infra_check")},
        "RemoteDebugConfig": {"EnableRemoteDebug": values.get("enable_remote_debug")},
        "SessionChainingConfig": {"EnableSessionTagChaining": values.get("enable_session_tag_chaining")},
        "ExperimentConfig": values.get("experiment_config"),
    }
    return _without_empty(made)


def sagemaker_options(
    class_name: str, values: Mapping[str, Any], machines: RequestedMachines, find_region: Callable[[], str | None]
) -> dict[str, str]:
    """The engine's options for arguments of v2: the role, the image, the bucket of the code.

    Raises:  UsageError U31: neither an image nor the versions that determine one
    """
    options = dict(machines.options)
    if values.get("role") is not None:
        options.setdefault("role", str(values["role"]))
    if location := values.get("code_location"):
        bucket, _, prefix = str(location).removeprefix("s3://").partition("/")
        options.setdefault("bucket", bucket)
        if prefix:
            options.setdefault("prefix", prefix)
    if values.get("image_uri"):
        options.setdefault("image", str(values["image_uri"]))
    if "image" not in options:
        options["image"] = _framework_image(class_name, values, machines, options.get("region") or find_region())
    return options


def check_versions(class_name: str, values: Mapping[str, Any]) -> None:
    """Raises:  UsageError U31: a version that is not text, or a py_version in another format."""
    version, python = values.get("framework_version"), values.get("py_version")
    for name, value in (("framework_version", version), ("py_version", python)):
        if value is not None and not isinstance(value, str):
            raise UsageError("U31", f"{name} is a text", saw=shown(value), next=f"{name}={str(value)!r}")
    if python is not None and python.startswith("py2"):
        raise UsageError(
            "U31", f"{class_name} runs on Python 3", saw=f"py_version={python!r}", next="py_version='py311'"
        )
    if python is not None and not (python.startswith("py3") and python[2:].isdigit()):
        digits = "".join(filter(str.isdigit, python))
        raise UsageError(
            "U31",
            "py_version is written py3 or py311",
            saw=shown(python),
            next=f"py_version={'py' + (digits or '311')!r}",
        )
    if version is not None and not version.split(".")[0].isdigit():
        raise UsageError(
            "U31", "framework_version is written 2.6.0", saw=shown(version), next="framework_version='2.6.0'"
        )


def _framework_image(
    class_name: str, values: Mapping[str, Any], machines: RequestedMachines, region: str | None
) -> str:
    version, python = values.get("framework_version"), values.get("py_version")
    if class_name not in _IMAGES or not version or not python:
        what = "SageMaker needs a container: image_uri" + (
            ", or framework_version and py_version" if class_name in _IMAGES else ""
        )
        saw = (
            f"framework_version={version}, py_version={python}, image_uri=None"
            if class_name in _IMAGES
            else "image_uri=None"
        )
        raise UsageError("U31", what, saw=saw, next="image_uri='ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG'")
    kind = "gpu" if machines.gpus_per_host or machines.gpus_per_host is None else "cpu"
    return framework_image(_IMAGES[class_name], version, python, kind, values.get("image_uri_region") or region)


def framework_image(name: str, version: str, python: str, kind: str, region: str | None) -> str:
    """The address of AWS's own image, such as pytorch-training 2.6.0 for gpu.

    Raises:  UsageError U31: the registry of the region is not known
    """
    if region not in _REGIONS:
        raise UsageError(
            "U31",
            "the registry of framework images is not known for this region",
            saw=f"region {region}",
            next="engine_options={'region': 'us-west-2'}, or image_uri='...'",
        )
    return f"{_ACCOUNT}.dkr.ecr.{region}.amazonaws.com/{name}:{version}-{kind}-{python}"


def _algorithm(values: Mapping[str, Any], definitions: list[dict[str, str]]) -> dict[str, Any]:
    mode, arn = (
        values.get("training_repository_access_mode"),
        values.get("training_repository_credentials_provider_arn"),
    )
    image: dict[str, Any] = {"TrainingRepositoryAccessMode": mode}
    if arn is not None:
        image["TrainingRepositoryAuthConfig"] = {"TrainingRepositoryCredentialsProviderArn": arn}
    return {
        "TrainingInputMode": values.get("input_mode"),
        "MetricDefinitions": definitions,
        "EnableSageMakerMetricsTimeSeries": values.get("enable_sagemaker_metrics"),
        "TrainingImageConfig": image,
    }


def _resources(values: Mapping[str, Any], machines: RequestedMachines) -> dict[str, Any]:
    groups = [
        {
            "InstanceGroupName": group.instance_group_name,
            "InstanceType": group.instance_type,
            "InstanceCount": group.instance_count,
        }
        for group in machines.groups
    ]
    return {
        "InstanceType": machines.instance_type,
        "InstanceGroups": groups,
        "VolumeSizeInGB": values.get("volume_size"),
        "VolumeKmsKeyId": values.get("volume_kms_key"),
        "KeepAlivePeriodInSeconds": values.get("keep_alive_period_in_seconds"),
        "TrainingPlanArn": values.get("training_plan"),
        "InstancePlacementConfig": values.get("instance_placement_config"),
    }


def _tags(value: Any) -> list[dict[str, str]] | None:
    if isinstance(value, Mapping):
        return [{"Key": str(key), "Value": str(one)} for key, one in value.items()]
    return list(value) if value else None


def _without_empty(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that are empty. A field with False or 0 is not empty."""
    kept = {key: _without_empty(one) if isinstance(one, Mapping) else one for key, one in value.items()}
    return {key: one for key, one in kept.items() if one is not None and one not in ({}, [])}
