"""The /opt/ml tree below a base directory: its paths, the files that describe a job, and reading those of a container.

A marker file says that paceline wrote the configuration. Without it, existing files are a SageMaker container's (or the
user's own): they are read and never changed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.atomic_write import write_whole
from paceline.contract.channels import FULLY_REPLICATED
from paceline.contract.hyperparameters import from_wire
from paceline.errors import UsageError
from paceline.facts import Channel, host_order
from paceline.recording.plain_files import OTHERS_LIST

OPT_ML = Path("/opt/ml")
# SageMaker's default names.
INSTANCE_GROUP = "homogeneousCluster"
INSTANCE_TYPE = "local"
NETWORK_INTERFACE = "eth0"
# The engine sagemaker sends its own code as a channel; it is not a channel of the job.
CODE_CHANNEL = "paceline"


@dataclass(frozen=True, slots=True)
class Tree:
    """Every path of the contract below one base directory. Each host has its own tree."""

    base: Path
    """The base directory."""

    @property
    def input(self) -> Path:
        return self.base / "input"

    @property
    def input_config(self) -> Path:
        return self.input / "config"

    @property
    def input_data(self) -> Path:
        return self.input / "data"

    def channel(self, name: str) -> Path:
        return self.input_data / name

    @property
    def hyperparameters_file(self) -> Path:
        return self.input_config / "hyperparameters.json"

    @property
    def input_data_config_file(self) -> Path:
        return self.input_config / "inputdataconfig.json"

    @property
    def resource_config_file(self) -> Path:
        return self.input_config / "resourceconfig.json"

    @property
    def marker_file(self) -> Path:
        return self.input_config / ".paceline.json"

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def code(self) -> Path:
        return self.base / "code"

    @property
    def checkpoints(self) -> Path:
        return self.base / "checkpoints"

    @property
    def output(self) -> Path:
        return self.base / "output"

    @property
    def output_data(self) -> Path:
        return self.output / "data"

    @property
    def output_intermediate(self) -> Path:
        return self.output / "intermediate"

    @property
    def failure(self) -> Path:
        return self.output / "failure"

    @property
    def success(self) -> Path:
        return self.output / "success"

    @property
    def config_files(self) -> tuple[Path, Path, Path]:
        return self.hyperparameters_file, self.input_data_config_file, self.resource_config_file

    @property
    def directories(self) -> tuple[Path, ...]:
        """Every directory that a script may rely on, parents before children."""
        return (
            self.input_config,
            self.input_data,
            self.model,
            self.output_data,
            self.output_intermediate,
            self.checkpoints,
            self.code,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredJob:
    """A job as the configuration files of a SageMaker container describe it."""

    hosts: tuple[str, ...]
    """All hosts, in numeric order."""
    current_host: str
    """This host."""
    network_interface: str
    """Interface towards the other hosts."""
    instance_type: str
    """Instance type."""
    hyperparameters: dict[str, Any]
    """Content of hyperparameters.json."""
    channels: tuple[Channel, ...]
    """Input channels."""
    resource_config: dict[str, Any]
    """Content of resourceconfig.json."""
    input_data_config: dict[str, Any]
    """Content of inputdataconfig.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGroup:
    """Hosts of one instance type, as resourceconfig.json names them together."""

    name: str
    """Of the group."""
    instance_type: str
    """Of each of its hosts."""
    hosts: tuple[str, ...]
    """In their order."""


def resource_config(
    hosts: Sequence[str], current_host: str, *, instance_type: str = INSTANCE_TYPE, network_interface: str
) -> dict[str, Any]:
    """resourceconfig.json of a job on one group of equal hosts, in the order given."""
    group = HostGroup(name=INSTANCE_GROUP, instance_type=instance_type, hosts=tuple(hosts))
    return resource_config_of_groups((group,), current_host, network_interface=network_interface)


def resource_config_of_groups(
    groups: Sequence[HostGroup], current_host: str, *, network_interface: str
) -> dict[str, Any]:
    """resourceconfig.json of a job on several groups of hosts, group after group."""
    own = next(group for group in groups if current_host in group.hosts)
    return {
        "current_host": current_host,
        "current_instance_type": own.instance_type,
        "current_group_name": own.name,
        "hosts": [host for group in groups for host in group.hosts],
        "instance_groups": [
            {"instance_group_name": group.name, "instance_type": group.instance_type, "hosts": list(group.hosts)}
            for group in groups
        ],
        "network_interface_name": network_interface,
    }


def in_host_order(config: Mapping[str, Any], hosts: Sequence[str]) -> dict[str, Any]:
    """A delivered resourceconfig with `hosts`, and each group's, in the order of `hosts`.

    SageMaker lists a group's hosts in another order than the job's; scripts that take rank 0 from the one and the
    master from the other wait for each other.
    """
    place = {host: index for index, host in enumerate(hosts)}
    groups = [
        {**group, "hosts": sorted(group.get("hosts", ()), key=lambda host: place.get(host, len(place)))}
        for group in config.get("instance_groups", ())
    ]
    ordered = {**config, "hosts": list(hosts)}
    return {**ordered, "instance_groups": groups} if groups else ordered


def input_data_config(channels: Sequence[Channel]) -> dict[str, Any]:
    """inputdataconfig.json of channels that are directories."""
    return {
        channel.name: {
            "TrainingInputMode": "File",
            "S3DistributionType": channel.distribution,
            "RecordWrapperType": "None",
        }
        for channel in channels
    }


def is_delivered(tree: Tree) -> bool:
    """Whether another program, such as a SageMaker container, wrote the configuration below this base."""
    return tree.resource_config_file.exists() and not tree.marker_file.exists()


def read_job(base: str | Path) -> DeliveredJob | None:
    """The job of a SageMaker container; None if there is no container's configuration.

    Raises:  UsageError U27: a configuration file is not readable, not JSON or lacks the hosts
    """
    tree = Tree(Path(base))
    if not is_delivered(tree):
        return None
    resources = _read_object(tree.resource_config_file)
    channels = _read_object(tree.input_data_config_file) if tree.input_data_config_file.exists() else {}
    channels.pop(CODE_CHANNEL, None)
    wire = _read_object(tree.hyperparameters_file) if tree.hyperparameters_file.exists() else {}
    hosts, current = resources.get("hosts"), resources.get("current_host")
    if not hosts or current not in hosts:
        raise _unusable(tree.resource_config_file, f"hosts {hosts!r}, current_host {current!r}")
    ordered = host_order(hosts)
    return DeliveredJob(
        hosts=ordered,
        current_host=str(current),
        network_interface=resources.get("network_interface_name", NETWORK_INTERFACE),
        instance_type=resources.get("current_instance_type", INSTANCE_TYPE),
        hyperparameters=from_wire(wire),
        channels=tuple(_delivered_channel(tree, name, entry) for name, entry in channels.items()),
        resource_config=in_host_order(resources, ordered),
        input_data_config=channels,
    )


@contextmanager
def writing(tree: Tree) -> Iterator[None]:
    """Turns an OSError of the block into U22: the tree cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            "U22",
            f"the contract directory {tree.base} is not writable",
            saw=f"{error.strerror}: {error.filename}",
            next="paceline run --set base_dir=DIRECTORY ...",
        ) from error


def lay_directories(tree: Tree) -> None:
    """Create the missing directories of the tree. In those of code and configuration only their user may replace a file.

    Raises:  UsageError U22: the base directory is not writable
    """
    with writing(tree):
        for directory in (tree.base, tree.input, tree.input_config, tree.code):
            directory.mkdir(OTHERS_LIST, parents=True, exist_ok=True)
        for directory in tree.directories:
            directory.mkdir(parents=True, exist_ok=True)


def write_config(
    tree: Tree,
    *,
    wire: Mapping[str, str],
    channels: Mapping[str, Any],
    resources: Mapping[str, Any],
    job_name: str | None,
) -> None:
    """Write the three configuration files, each atomically: a rank never reads a partial file.

    `job_name` None: without the marker, as a container of SageMaker finds them.

    Raises:  UsageError U22: the base directory is not writable
    """
    contents: list[tuple[Path, Mapping[str, Any]]] = [*zip(tree.config_files, (wire, channels, resources), strict=True)]
    if job_name is not None:
        contents.insert(0, (tree.marker_file, {"schema": "paceline.tree/1", "job_name": job_name}))
    with writing(tree):
        for path, value in contents:
            # A hyperparameter may be a secret.
            write_whole(path, json.dumps(value), mode=0o600)


def link_code(tree: Tree, code_dir: str | Path) -> None:
    """Make `code` a link to the user's code directory, unless it already has other files.

    Raises:  UsageError U22: the base directory is not writable
    """
    target = Path(code_dir).absolute()
    with writing(tree):
        if tree.code.is_symlink():
            tree.code.unlink()
        elif target.exists() and tree.code.exists() and tree.code.samefile(target):
            return
        elif tree.code.is_dir() and not any(tree.code.iterdir()):
            tree.code.rmdir()
        if not tree.code.exists():
            tree.code.symlink_to(target, target_is_directory=True)


def _delivered_channel(tree: Tree, name: str, entry: Any) -> Channel:
    distribution = entry.get("S3DistributionType") if isinstance(entry, dict) else None
    return Channel(name=name, source=str(tree.channel(name)), distribution=distribution or FULLY_REPLICATED)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    except ValueError as error:
        raise _unusable(path, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _unusable(path, f"a JSON {type(value).__name__}, expected an object")
    return value


def _unusable(path: Path, saw: str) -> UsageError:
    return UsageError("U27", f"the container's {path.name} is unusable", saw=saw, next=f"python -m json.tool {path}")
