"""The /opt/ml tree of each host, laid before it starts: configuration files, channels, code, checkpoints."""

import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.contract.channels import SHARDED_BY_KEY, lay_channel, shares
from paceline.contract.tree import Tree, lay_directories
from paceline.facts import Channel
from paceline.sagemaker_local.objects import FoundObject, Objects, TransferFailed, inside, joined, local_path
from paceline.sagemaker_local.validation import groups

INTERFACE = "lo"
_AT_ONCE = 8
_IN_CONTAINER = "/opt/ml/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDir:
    """One host of a job and where its tree lies."""

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
    """resourceconfig.json of one host."""
    by_group: dict[str, list[HostDir]] = {}
    for one in all_places:
        by_group.setdefault(one.group, []).append(one)
    return {
        "current_host": place.name,
        "current_instance_type": place.instance_type,
        "current_group_name": place.group,
        "hosts": [one.name for one in all_places],
        "instance_groups": [
            {"instance_group_name": name, "instance_type": of[0].instance_type, "hosts": [one.name for one in of]}
            for name, of in by_group.items()
        ],
        "network_interface_name": INTERFACE,
    }


def input_data_config(request: Mapping[str, Any], group: str) -> dict[str, Any]:
    """inputdataconfig.json of the hosts of one group; always File, because everything is fetched before the start."""
    found = {}
    for channel in channels_of(request, group):
        entry = {
            "TrainingInputMode": "File",
            "S3DistributionType": _distribution(channel),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        found[channel["ChannelName"]] = entry | {name: channel[name] for name in ("ContentType",) if name in channel}
    return found


def channels_of(request: Mapping[str, Any], group: str) -> list[Mapping[str, Any]]:
    """The channels that the hosts of one group get."""
    return [
        channel
        for channel in request.get("InputDataConfig", ())
        if group in (channel["DataSource"]["S3DataSource"].get("InstanceGroupNames") or (group,))
    ]


def lay_config(request: Mapping[str, Any], all_places: Sequence[HostDir]) -> None:
    """Directories and configuration files of every host."""
    for place in all_places:
        lay_directories(place.tree)
        contents = (
            request.get("HyperParameters", {}),
            input_data_config(request, place.group),
            resource_config(all_places, place),
        )
        for path, value in zip(place.tree.config_files, contents, strict=True):
            path.touch(mode=0o600)
            path.write_text(json.dumps(value), encoding="utf-8")


def lay_channels(
    request: Mapping[str, Any],
    all_places: Sequence[HostDir],
    directory: Path,
    objects: Objects,
    going_on: Callable[[], bool],
) -> list[str]:
    """Fetch every channel once for the job, and give each host its files; what had to be done otherwise than asked, as lines for the log.

    A channel of a file:// directory is a link to that directory.

    Raises:  TransferFailed: nothing is there, or it could not be fetched
    """
    notices = []
    for channel in request.get("InputDataConfig", ()):
        name = channel["ChannelName"]
        source = _source(channel, directory / "input" / name, objects, going_on)
        mode = channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"]
        if mode != "File":
            notices.append(f"channel {name}: {mode} is served as File here, all of it was fetched before the start")
        receivers = [place for place in all_places if channel in channels_of(request, place.group)]
        _hand_out(channel, source, receivers)
    return notices


def lay_code(archive: str, all_places: Sequence[HostDir], directory: Path, objects: Objects) -> None:
    """Unpack the code archive of script mode below /opt/ml/code of every host.

    Raises:  TransferFailed: it cannot be fetched, or is no gzipped tar
    """
    fetched = directory / "input" / "sourcedir.tar.gz"
    if not archive.startswith(("file://", _IN_CONTAINER)):
        objects.fetch(archive, fetched)
    for place in all_places:
        packed = local_path(archive) if archive.startswith("file://") else fetched
        if archive.startswith(_IN_CONTAINER):
            # A job without network access finds its code in a channel.
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
        # Python before 3.11.4: directories and plain files alone, none of them outside.
        members = [member for member in file.getmembers() if member.isdir() or member.isreg()]
        for member in members:
            inside(directory, member.name)
        file.extractall(directory, members)


def _distribution(channel: Mapping[str, Any]) -> str:
    return str(channel["DataSource"]["S3DataSource"].get("S3DataDistributionType", "FullyReplicated"))


def _source(
    channel: Mapping[str, Any], target: Path, objects: Objects, going_on: Callable[[], bool]
) -> tuple[Path, list[str]]:
    """The channel's directory on this machine, and its keys in S3's order."""
    wanted = channel["DataSource"]["S3DataSource"]
    url = wanted["S3Uri"]
    found = _listed(wanted["S3DataType"], url, target, objects)
    if not found:
        raise TransferFailed(
            f'No S3 objects found under S3 URL "{url}" given in input data source. Please ensure that the bucket exists,'
            " that objects exist under that S3 prefix, and that they can be listed."
        )
    keys = [one.key for one in found]
    if url.startswith("file://") and wanted["S3DataType"] == "S3Prefix":
        return local_path(url), keys

    def fetch(one: FoundObject) -> None:
        if going_on():
            objects.fetch(one.url, inside(target, one.key))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fetch, found))
    return target, keys


def _listed(kind: str, url: str, target: Path, objects: Objects) -> list[FoundObject]:
    if kind == "S3Prefix":
        return objects.below(url)
    manifest = target.with_name(f"{target.name}.manifest")
    objects.fetch(url, manifest)
    try:
        first, *names = json.loads(manifest.read_text(encoding="utf-8"))
        prefix = str(first["prefix"])
    except (ValueError, TypeError, KeyError) as error:
        raise TransferFailed(f'{url} is not a manifest: [{{"prefix": URL}}, NAME, ...] was expected') from error
    return [FoundObject(url=joined(prefix, str(name).lstrip("/")), key=str(name), size_bytes=0) for name in names]


def _hand_out(channel: Mapping[str, Any], source: tuple[Path, list[str]], receivers: Sequence[HostDir]) -> None:
    path, keys = source
    fact = Channel(name=channel["ChannelName"], source=str(path), distribution=_distribution(channel))
    share = shares(keys, [place.name for place in receivers]) if fact.distribution == SHARDED_BY_KEY else {}
    for place in receivers:
        lay_channel(fact, place.tree.channel(fact.name), share.get(place.name))
