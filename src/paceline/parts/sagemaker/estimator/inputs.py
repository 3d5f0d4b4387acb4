"""The inputs of fit(), as channels of the job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.contract.channels import DISTRIBUTIONS, FULLY_REPLICATED, MAX_CHANNELS, parse_channel
from paceline.errors import UsageError
from paceline.facts import Channel
from paceline.parts.sagemaker.estimator.arguments import shown

INPUT_MODES = ("File", "FastFile", "Pipe")
DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")
FILE_SYSTEMS = ("EFS", "FSxLustre")
DEFAULT_CHANNEL = "training"
# The bucket of a notebook without an AWS account. What it would hold lies below BUCKET_DIRECTORY of the working directory.
NO_BUCKET = "no-aws-account-here"
BUCKET_DIRECTORY = ".paceline/bucket"


@dataclass(frozen=True, slots=True)
class TrainingInput:
    """One channel, with SDK v2's fields.

    Raises:  UsageError U06: a field has a value that is not allowed
    """

    s3_data: str
    """s3://, file:// or another URL, or a directory."""
    distribution: str | None = None
    """With "FullyReplicated" or None, every host gets all of the channel. With "ShardedByS3Key", each host gets a part."""
    compression: str | None = None
    """Either "None" or "Gzip". Only SageMaker reads this field."""
    content_type: str | None = None
    """Content type of the data. Only SageMaker reads this field."""
    record_wrapping: str | None = None
    """Either "None" or "RecordIO". Only SageMaker reads this field."""
    s3_data_type: str = "S3Prefix"
    """One of "S3Prefix", "ManifestFile" and "AugmentedManifestFile"."""
    instance_groups: list[str] | None = None
    """Names of the instance groups that get the channel. Only SageMaker reads this field."""
    input_mode: str | None = None
    """One of "File", "FastFile" and "Pipe"; None: the estimator's input mode."""
    attribute_names: list[str] | None = None
    """Attribute names of an augmented manifest. Only SageMaker reads this field."""
    target_attribute_name: str | None = None
    """Accepted because SDK v2 accepts it. No request contains it."""
    shuffle_config: Any = None
    """An object with `seed`, or the seed. Only SageMaker reads this field."""
    hub_access_config: Any = None
    """Only SageMaker reads this field."""
    model_access_config: Any = None
    """Only SageMaker reads this field."""

    def __post_init__(self) -> None:
        _one_of("distribution", self.distribution, (None, *DISTRIBUTIONS))
        _one_of("input_mode", self.input_mode, (None, *INPUT_MODES))
        _one_of("s3_data_type", self.s3_data_type, DATA_TYPES)
        _one_of("compression", self.compression, (None, "None", "Gzip"))
        _one_of("record_wrapping", self.record_wrapping, (None, "None", "RecordIO"))
        if not isinstance(self.s3_data, str) or not self.s3_data:
            raise UsageError(
                "U06", "s3_data is an address", saw=shown(self.s3_data), next="TrainingInput('s3://BUCKET/PREFIX')"
            )


@dataclass(frozen=True, slots=True)
class FileSystemInput:
    """A directory of EFS or FSx for Lustre, which SageMaker mounts. Other engines refuse it: there, the mounted directory is the input.

    Raises:  UsageError U06: another type of file system, or an access mode other than ro and rw
    """

    file_system_id: str
    """The id of the file system in AWS."""
    file_system_type: str
    """Either "EFS" or "FSxLustre"."""
    directory_path: str
    """The directory in the file system. It begins with /."""
    file_system_access_mode: str = "ro"
    """Either "ro" or "rw"."""
    content_type: str | None = None
    """Content type of the data."""

    def __post_init__(self) -> None:
        _one_of("file_system_type", self.file_system_type, FILE_SYSTEMS)
        _one_of("file_system_access_mode", self.file_system_access_mode, ("ro", "rw"))
        if not str(self.directory_path).startswith("/"):
            raise UsageError(
                "U06", "directory_path begins with /", saw=shown(self.directory_path), next="directory_path='/...'"
            )


@dataclass(frozen=True, slots=True)
class _Sources:
    """The facts that tell which inputs the engine can reach."""

    on_sagemaker: bool
    """Whether the engine is SageMaker."""
    here: bool
    """Whether the hosts are on this machine. If so, directories can be checked."""
    input_mode: str
    """The input mode of a channel without its own."""
    directory: Path
    """Relative paths start here."""
    notices: list[str] = field(default_factory=list)
    """Notices for the user. The list grows while the inputs are read."""


def channels_of(
    inputs: object, *, on_sagemaker: bool, here: bool, input_mode: str, directory: Path
) -> tuple[tuple[Channel, ...], tuple[str, ...]]:
    """A channel for every input, and the notices about them. A single input becomes the channel `training`.

    `here`: the hosts are on this machine, so directories can be checked. `directory`: relative paths start here.

    Raises:  UsageError U06: an input of an unknown kind, too many inputs, one that the engine cannot reach; a directory does not exist
    """
    if inputs is None:
        return (), ()
    sources = _Sources(on_sagemaker, here, input_mode, directory)
    named = inputs if isinstance(inputs, Mapping) else {DEFAULT_CHANNEL: inputs}
    if len(named) > MAX_CHANNELS:
        raise UsageError(
            "U06",
            f"more than {MAX_CHANNELS} channels",
            saw=str(len(named)),
            next="put several directories below one channel",
        )
    return tuple(_channel(str(name), value, sources) for name, value in named.items()), tuple(sources.notices)


def checked_input_mode(value: object) -> str:
    """Raises:  UsageError U06: not one of SageMaker's three modes."""
    _one_of("input_mode", value, INPUT_MODES)
    return str(value)


def as_url(text: str, directory: Path) -> str:
    """The address in a form that every host can read: a URL unchanged, a path made absolute. NO_BUCKET is a directory."""
    if text == f"s3://{NO_BUCKET}" or text.startswith(f"s3://{NO_BUCKET}/"):
        text = BUCKET_DIRECTORY + text.removeprefix(f"s3://{NO_BUCKET}")
    if "://" in text and not text.startswith("file://"):
        return text
    return str((directory / Path(text.removeprefix("file://")).expanduser()).absolute())


def _channel(name: str, value: object, sources: _Sources) -> Channel:
    if isinstance(value, FileSystemInput):
        return _file_system(name, value, sources)
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        value = TrainingInput(value)
    if not isinstance(value, TrainingInput):
        saw = f"{name}: {type(value).__name__}; an address, a TrainingInput or a FileSystemInput"
        raise UsageError(
            "U06", f"channel {name!r} has an input of an unknown kind", saw=saw, next=f"fit({{{name!r}: 's3://...'}})"
        )
    address = as_url(value.s3_data, sources.directory)
    if sources.on_sagemaker and "://" not in address:
        saw = f"{value.s3_data}; its hosts see no directory of this machine"
        raise UsageError(
            "U06", f"channel {name!r} is not in S3", saw=saw, next=f"aws s3 sync {address} s3://BUCKET/{name}"
        )
    if sources.here and "://" not in address and not Path(address).exists():
        raise UsageError(
            "U06",
            f"channel {name!r}: {address} does not exist",
            saw=f"fit was given {value.s3_data}",
            next=f"ls {Path(address).parent}",
        )
    # The agent's own parser refuses bad names, and everything that a command line could not carry.
    parse_channel(f"{name}={address}")
    mode = value.input_mode or sources.input_mode
    extra = _extra(value)
    if extra and not sources.on_sagemaker:
        sources.notices.append(f"channel {name}: {', '.join(extra)} mean something on SageMaker alone")
    if mode != "File" and not sources.on_sagemaker:
        sources.notices.append(f"channel {name}: {mode} becomes File, everything is there before the script starts")
    return Channel(
        name=name,
        source=address,
        distribution=value.distribution or FULLY_REPLICATED,
        input_mode=mode,
        data_type=value.s3_data_type,
        extra=extra,
    )


def _extra(value: TrainingInput) -> dict[str, Any]:
    inner = {"InstanceGroupNames": value.instance_groups, "AttributeNames": value.attribute_names}
    inner |= {"HubAccessConfig": value.hub_access_config, "ModelAccessConfig": value.model_access_config}
    seed = getattr(value.shuffle_config, "seed", value.shuffle_config)
    outer = {
        "CompressionType": value.compression,
        "ContentType": value.content_type,
        "RecordWrapperType": value.record_wrapping,
        "ShuffleConfig": {"Seed": seed} if seed is not None else None,
    }
    found: dict[str, Any] = {key: one for key, one in outer.items() if one is not None and one != "None"}
    if any(one is not None for one in inner.values()):
        found["DataSource"] = {"S3DataSource": {key: one for key, one in inner.items() if one is not None}}
    return found


def _file_system(name: str, value: FileSystemInput, sources: _Sources) -> Channel:
    if not sources.on_sagemaker:
        saw = f"{value.file_system_type} {value.file_system_id}:{value.directory_path}"
        raise UsageError(
            "U06",
            f"channel {name!r} is a file system that SageMaker alone mounts",
            saw=saw,
            next=f"mount it on the hosts and fit({{{name!r}: '/the/mounted/directory'}})",
        )
    source = {
        "FileSystemId": value.file_system_id,
        "FileSystemType": value.file_system_type,
        "DirectoryPath": value.directory_path,
        "FileSystemAccessMode": value.file_system_access_mode,
    }
    extra: dict[str, Any] = {"DataSource": {"FileSystemDataSource": source}}
    if value.content_type:
        extra["ContentType"] = value.content_type
    return Channel(name=name, source=value.directory_path, extra=extra)


def _one_of(name: str, value: object, known: tuple[str | None, ...]) -> None:
    if value not in known:
        argv = [one for one in known if one is not None]
        raise UsageError(
            "U06", f"{name} cannot be {shown(value)}", saw=f"one of {', '.join(argv)}", next=f"{name}={argv[0]!r}"
        )
