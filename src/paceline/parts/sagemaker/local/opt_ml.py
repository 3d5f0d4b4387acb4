"""Creates the /opt/ml tree of each host before the host starts: configuration files, channels, code, checkpoints."""

import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.contract.channels import FULLY_REPLICATED, SHARDED_BY_KEY, keys, lay_channel, shares
from paceline.contract.tree import (
    HostGroup,
    Tree,
    input_data_config,
    lay_directories,
    resource_config_of_groups,
    write_config,
)
from paceline.facts import Channel
from paceline.parts.sagemaker.local.objects import (
    FILE,
    TransferFailed,
    failing_as_sagemaker_does,
    inside,
    local_path,
    storage_url,
    while_it_goes_on,
)
from paceline.parts.sagemaker.local.validation import groups
from paceline.storage.download import DownloadTarget, fetch, install
from paceline.storage.listing import MANIFEST, PREFIX, beginning_with, listing

INTERFACE = "lo"
_IN_CONTAINER = "/opt/ml/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDir:
    """One host of a job, and the location of its tree."""

    name: str
    group: str
    instance_type: str
    tree: Tree


def places(request: Mapping[str, Any], directory: Path) -> tuple[HostDir, ...]:
    """The hosts algo-1 ... algo-N of a job, group after group."""
    found: list[HostDir] = []
    for group, instance_type, count in groups(request):
        for _ in range(count):
            name = f"algo-{len(found) + 1}"
            tree = Tree(directory / "hosts" / name / "ml")
            found.append(HostDir(name=name, group=group, instance_type=instance_type, tree=tree))
    return tuple(found)


def resource_config(all_places: Sequence[HostDir], place: HostDir) -> dict[str, Any]:
    """The content of resourceconfig.json for one host."""
    by_group: dict[tuple[str, str], list[str]] = {}
    for one in all_places:
        by_group.setdefault((one.group, one.instance_type), []).append(one.name)
    groups = [
        HostGroup(name=name, instance_type=instance_type, hosts=tuple(hosts))
        for (name, instance_type), hosts in by_group.items()
    ]
    return resource_config_of_groups(groups, place.name, network_interface=INTERFACE)


def data_config(request: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The content of inputdataconfig.json for the hosts of one group. The mode is always File, because all data is fetched before."""
    asked = channels_of(request, group)
    config = input_data_config([_channel(channel) for channel in asked])
    for channel in asked:
        config[channel["ChannelName"]] |= {
            name: channel[name] for name in ("RecordWrapperType", "ContentType") if name in channel
        }
    return config


def channels_of(request: Mapping[str, Any], group: str) -> list[Mapping[str, Any]]:
    """The channels for the hosts of one group."""
    return [
        channel
        for channel in request.get("InputDataConfig", ())
        if group in (channel["DataSource"]["S3DataSource"].get("InstanceGroupNames") or (group,))
    ]


def lay_config(request: Mapping[str, Any], all_places: Sequence[HostDir]) -> None:
    """Create the directories and configuration files of every host, as in a SageMaker container."""
    for place in all_places:
        lay_directories(place.tree)
        write_config(
            place.tree,
            wire=request.get("HyperParameters", {}),
            channels=data_config(request, place.group),
            resources=resource_config(all_places, place),
            job_name=None,
        )


def lay_channels(
    request: Mapping[str, Any], all_places: Sequence[HostDir], directory: Path, going_on: Callable[[], bool]
) -> list[str]:
    """Fetch every channel once for the job, and give each host its files. Returns lines for the log about deviations from the request.

    The channel of a file:// directory is a link to that directory.

    Raises:  TransferFailed: there is no data, or it could not be fetched; TransferStopped
    """
    notices = []
    for asked in request.get("InputDataConfig", ()):
        channel = _channel(asked)
        with failing_as_sagemaker_does():
            # The notes about the files are beside them.
            place = DownloadTarget(directory / "input" / channel.name, directory / "transfers" / channel.name)
            channel, found = _fetched(channel, place, going_on)
        mode = asked.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"]
        if mode != "File":
            notices.append(
                f"channel {channel.name}: {mode} is served as File here, all of it was fetched before the start"
            )
        _hand_out(channel, found, [place for place in all_places if asked in channels_of(request, place.group)])
    return notices


def lay_code(archive: str, all_places: Sequence[HostDir], directory: Path) -> None:
    """Unpack the code archive of script mode below /opt/ml/code of every host.

    Raises:  TransferFailed: it cannot be fetched, or is not a gzipped tar
    """
    packed = directory / "input" / "sourcedir.tar.gz"
    if archive.startswith(FILE):
        packed = local_path(archive)
    elif not archive.startswith(_IN_CONTAINER):
        with failing_as_sagemaker_does():
            fetch(storage_url(archive), packed, "the code could not be fetched")
    for place in all_places:
        if archive.startswith(_IN_CONTAINER):
            # The code of a job without network access is in a channel.
            packed = inside(place.tree.base, archive.removeprefix(_IN_CONTAINER))
        try:
            _unpack(packed, place.tree.code)
        except (tarfile.TarError, OSError) as error:
            raise TransferFailed(f"{archive}: {error}") from error


def _unpack(packed: Path, directory: Path) -> None:
    with tarfile.open(packed) as file:
        if hasattr(tarfile, "data_filter"):
            file.extractall(directory, filter="data")
            return
        # Python before 3.11.4 has no filter: extract only directories and plain files, and none outside of the directory.
        members = [member for member in file.getmembers() if member.isdir() or member.isreg()]
        for member in members:
            inside(directory, member.name)
        file.extractall(directory, members)


def _channel(asked: Mapping[str, Any]) -> Channel:
    """The channel of the request, with its URL unchanged."""
    source = asked["DataSource"]["S3DataSource"]
    return Channel(
        name=asked["ChannelName"],
        source=source["S3Uri"],
        distribution=source.get("S3DataDistributionType", FULLY_REPLICATED),
        data_type=source["S3DataType"],
    )


def _fetched(channel: Channel, target: DownloadTarget, going_on: Callable[[], bool]) -> tuple[Channel, Sequence[str]]:
    """The channel as a directory on this machine, and its keys in S3's order."""
    if channel.source.startswith(FILE) and channel.data_type == PREFIX:
        here = replace(channel, source=str(local_path(channel.source)))
        found = keys(here) if Path(here.source).exists() else ()
        if not found:
            raise _nothing_below(channel.source)
        return here, found
    url, doing = storage_url(channel.source), f"channel {channel.name} could not be fetched"
    found_there = (
        listing(url, doing, channel.data_type) if channel.data_type == MANIFEST else beginning_with(url, doing)
    )
    if not found_there.items:
        raise _nothing_below(channel.source)
    install(found_there, target, url, doing, while_it_goes_on(going_on))
    return replace(channel, source=str(target.files)), [item.key for item in found_there.items]


def _nothing_below(url: str) -> TransferFailed:
    return TransferFailed(
        f'No S3 objects found under S3 URL "{url}" given in input data source. Please ensure that the bucket exists,'
        " that objects exist under that S3 prefix, and that they can be listed."
    )


def _hand_out(channel: Channel, all_keys: Sequence[str], receivers: Sequence[HostDir]) -> None:
    names = [place.name for place in receivers]
    share = shares(all_keys, names) if channel.distribution == SHARDED_BY_KEY else {}
    for place in receivers:
        lay_channel(channel, place.tree.channel(channel.name), share.get(place.name))
