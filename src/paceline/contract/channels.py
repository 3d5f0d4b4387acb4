"""Input channels: the argument of `--channel`, the files of each host, and the links below input/data.

SageMaker divides a ShardedByS3Key channel by the number of objects, not by their bytes or records; which object goes
where is not documented. Here keys are sorted as S3 lists them (by their UTF-8 bytes) and distributed in turn, so two
hosts never differ by more than one file.
"""

import os
import re
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import UsageError
from paceline.facts import Channel
from paceline.findings import Finding, Severity
from paceline.spelling import plural

FULLY_REPLICATED = "FullyReplicated"
SHARDED_BY_KEY = "ShardedByS3Key"
DISTRIBUTIONS = (FULLY_REPLICATED, SHARDED_BY_KEY)
DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")
INPUT_MODES = ("File", "FastFile", "Pipe")
MAX_CHANNELS = 20
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_NAME = re.compile(r"[A-Za-z0-9.\-_]{1,64}")


def parse_channel(text: str) -> Channel:
    """`NAME=DIR` or `NAME=URL`, then in any order `:FullyReplicated` or `:ShardedByS3Key`, `:ManifestFile`, `:FastFile` or `:Pipe`.

    The directory's own name may contain colons. A file:// URL is a directory of this machine.

    Raises:  UsageError U06: no `=`, no directory, or a name that SageMaker refuses
    """
    name, equals, source = text.partition("=")
    source, words = _split_words(source)
    if not equals or not source:
        saw = "no directory in it" if equals else "no '=' in it"
        raise _refused(f"--channel {text!r} is not NAME=DIR", saw, f"paceline run --channel {name or 'train'}=DIR ...")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        saw = f"{name!r}; SageMaker takes 1 to 64 characters of A-Z a-z 0-9 . - _"
        raise _refused(
            f"--channel {text!r}: not a channel name",
            saw,
            f"--channel train=DIR instead of --channel {shlex.quote(text)}",
        )
    data_type = _one_of(words, DATA_TYPES)
    local = not _URL.match(source) or source.lower().startswith("file://")
    if local:
        scheme = source[: len("file://")] if _URL.match(source) else ""
        source = str(Path(source[len(scheme) :]).expanduser().absolute())
        # A manifest is read wherever it is; the files that it names are fetched.
        source = source if data_type == DATA_TYPES[0] else f"file://{source}"
    return Channel(
        name=name,
        source=source,
        distribution=_one_of(words, DISTRIBUTIONS),
        input_mode=_one_of(words, INPUT_MODES),
        data_type=data_type,
    )


def is_fetched(channel: Channel) -> bool:
    """Whether it is behind a URL and is fetched before the ranks start."""
    return _URL.match(channel.source) is not None


def parse_channels(texts: Sequence[str]) -> tuple[Channel, ...]:
    """Every `--channel` of a command line, names checked against each other and against SageMaker's limit of 20."""
    channels = tuple(parse_channel(text) for text in texts)
    names = [channel.name for channel in channels]
    for name in names:
        if names.count(name) > 1:
            saw = f"{names.count(name)} times on the command line"
            raise _refused(f"channel {name!r} is given twice", saw, "give each channel one directory")
    if len(names) > MAX_CHANNELS:
        saw = f"{len(names)}; SageMaker takes at most {MAX_CHANNELS}"
        raise _refused("too many channels", saw, "put several directories below one channel")
    return channels


def check_channel(channel: Channel) -> None:
    """Refuse a channel that this host cannot read, before anything starts.

    Raises:  UsageError U06: not there, not readable, or empty (SageMaker refuses an empty prefix as well)
    """
    source = Path(channel.source)
    what = f"channel {channel.name!r}: {channel.source}"
    if is_fetched(channel):
        raise _refused(
            f"{what} is not a directory", "a URL that was not fetched", "paceline run --channel NAME=DIR ..."
        )
    try:
        is_directory = stat.S_ISDIR(source.stat().st_mode)
    except PermissionError:
        raise _refused(f"{what} is not readable", "no permission above it", f"ls -ld {source.parent}") from None
    except OSError:
        raise _refused(f"{what} does not exist", *_nearest(channel)) from None
    if not os.access(source, os.R_OK | (os.X_OK if is_directory else 0)):
        raise _refused(f"{what} is not readable", "no permission for this user", f"ls -ld {channel.source}")
    if is_directory and not any(source.iterdir()):
        saw = "no file in it; SageMaker would refuse it as well"
        raise _refused(f"{what} is empty", saw, f"ls -la {channel.source}")


def keys(channel: Channel) -> tuple[str, ...]:
    """Every file of a channel, relative to its directory, in the order in which S3 lists keys.

    Raises:  UsageError U06: a directory below it cannot be read
    """
    source = Path(channel.source)
    if source.is_file():
        return (source.name,)
    try:
        found = _walk(source, "", frozenset())
    except OSError as error:
        what = f"channel {channel.name!r}: {error.filename} is not readable"
        raise _refused(what, str(error.strerror), f"ls -ld {error.filename}") from error
    return tuple(sorted(found, key=os.fsencode))


def shares(all_keys: Sequence[str], hosts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Keys of each host: distributed in turn, in host order.

    Holds:   the shares are disjoint, their union is all_keys, and their sizes differ by at most 1
    """
    return {host: tuple(all_keys[index :: len(hosts)]) for index, host in enumerate(hosts)}


def unequal_shards(channel: Channel, all_keys: Sequence[str], hosts: Sequence[str]) -> Finding | None:
    """The warning that hosts get different numbers of files; None if they get the same number."""
    counts = {host: len(share) for host, share in shares(all_keys, hosts).items()}
    most, least = max(counts.values()), min(counts.values())
    if channel.distribution != SHARDED_BY_KEY or most == least:
        return None
    with_most = [host for host, count in counts.items() if count == most]
    with_least = [host for host, count in counts.items() if count == least]
    return Finding(
        code="U15",
        severity=Severity.WARNING,
        what=f"channel {channel.name!r}: {len(all_keys)} files do not divide among {len(hosts)} hosts;"
        " the job is likely to hang at the end of its epoch, when some ranks have no batch left",
        saw=f"{_named(with_most)}: {_files(most)}; {_named(with_least)}: {_files(least)}",
        next=f"make the number of files a multiple of {len(hosts)},"
        f" or use --channel {channel.name}={channel.source}:{FULLY_REPLICATED}",
        more="paceline help U15",
    )


def lay_channel(channel: Channel, target: Path, mine: Sequence[str] | None) -> None:
    """Make `target` the channel: one link to its directory, or a directory of links to the files in `mine`.

    Raises:  UsageError U06: files that paceline did not put there are in the way
    """
    source = Path(channel.source)
    if mine is None and source.is_dir():
        _link(target, source, channel)
        return
    _clear(target, channel)
    target.mkdir(parents=True, exist_ok=True)
    for key in (source.name,) if mine is None else mine:
        link = target / key
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source if source.is_file() else source / key)


def _split_words(source: str) -> tuple[str, tuple[str, ...]]:
    """The source and SageMaker's words after it, each after a colon."""
    words: tuple[str, ...] = ()
    while True:
        path, colon, last = source.rpartition(":")
        if not colon or last not in (*DISTRIBUTIONS, *DATA_TYPES, *INPUT_MODES):
            return source, words
        source, words = path, (last, *words)


def _one_of(words: Sequence[str], choices: Sequence[str]) -> str:
    return next((word for word in words if word in choices), choices[0])


def _nearest(channel: Channel) -> tuple[str, str]:
    path, colon, last = channel.source.rpartition(":")
    if colon and Path(path).exists():
        saw = f"{path} is there; {last!r} is no distribution"
        return saw, f"paceline run --channel {channel.name}={path}:{SHARDED_BY_KEY} ..."
    parent = Path(channel.source)
    while not parent.exists():
        parent = parent.parent
    return f"{parent} exists, nothing below it by that name", f"ls {parent}"


def _walk(directory: Path, prefix: str, above: frozenset[tuple[int, int]]) -> list[str]:
    # Links to directories are followed, as copying to S3 would; a link to a directory above itself is not.
    status = directory.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return []
    found: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                found += _walk(Path(entry.path), f"{prefix}{entry.name}/", above | {here})
            else:
                found.append(prefix + entry.name)
    return found


def _link(target: Path, source: Path, channel: Channel) -> None:
    if target.is_symlink() and target.readlink() == source:
        return
    if not target.is_symlink() and target.exists() and target.samefile(source):
        return  # the channel already lies where the contract wants it
    _clear(target, channel)
    target.symlink_to(source, target_is_directory=True)


def _clear(target: Path, channel: Channel) -> None:
    if target.is_symlink():
        target.unlink()
    if not target.exists():
        return
    for directory, _, files in os.walk(target):
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink():
                what = f"channel {channel.name!r}: {target} already holds files that paceline did not put there"
                raise _refused(what, str(path), "choose another channel name or another --set base_dir")
    import shutil  # only here: it costs 4 ms, and a run without stale links never needs it

    shutil.rmtree(target)


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 4 else f"{hosts[0]} ... {hosts[-1]} ({len(hosts)} hosts)"


def _files(count: int) -> str:
    return f"{count} {plural(count, 'file')}"


def _refused(what: str, saw: str, next: str) -> UsageError:
    return UsageError("U06", what, saw=saw, next=next)
