"""The files behind a URL: one file, everything below a prefix, or the files of a manifest; keys are sorted as in S3."""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from paceline.errors import UsageError
from paceline.storage.errors import not_there, told
from paceline.storage.urls import as_prefix, below, file_system, safe_key, shown

MANIFEST = "ManifestFile"
AUGMENTED_MANIFEST = "AugmentedManifestFile"
PREFIX = "S3Prefix"
MANIFEST_BYTES = 64 << 20
# A longer manifest is compared with one listing of its whole prefix.
ASKED_ONE_BY_ONE = 256
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "created", "modified")
_MODIFIED = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One file behind a URL."""

    key: str
    """Its name below the directory into which it is fetched."""
    path: str
    """Its path in its file system."""
    size_bytes: int
    """Its size."""
    version: str = ""
    """Changes with the content; "" if the store has no version."""
    modified_seconds: float | None = None
    """Unix time of its last change; None: not known."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Files and their file system."""

    store: Any
    """The file system of fsspec."""
    items: tuple[Item, ...]
    """The files."""


def check(url: str, doing: str, data_type: str = PREFIX) -> None:
    """Check that the data exist, with one or two requests.

    Raises:  UsageError E01 (no plug-in), E51 (nothing there), E52 (denied), E53 (not reachable), U06 (data type)
    """
    _refuse_augmented(url, data_type)
    with told(doing, url, again="check the address and the network, then start the job again"):
        opened, path = file_system(url)
        if opened.exists(path):
            return
        require_bucket(opened, path)
    raise not_there(doing, url, "nothing has this name, or a name below it")


def check_writable(url: str, doing: str) -> None:
    """Check that the target for a job's artefacts exists, and a directory also that a file can be written into it.

    A user of a bucket who may write but not list is accepted once a small file could be written.

    Raises:  UsageError E01 (no plug-in), E51 (no such bucket), E52 (denied), E53 (not reachable)
    """
    with told(doing, url, again="check the address and the network, then start the job again"):
        opened, path = file_system(url)
        try:
            require_bucket(opened, path)
        except PermissionError:
            _write_and_remove(opened, path)
        if "file" in _protocols(opened):
            opened.makedirs(path, exist_ok=True)
            _write_and_remove(opened, path)


def _write_and_remove(opened: Any, path: str) -> None:
    probe = f"{path.rstrip('/')}/.paceline-{os.urandom(4).hex()}"
    opened.pipe_file(probe, b"")
    with suppress(PermissionError):
        opened.rm(probe)


def require_bucket(opened: Any, path: str) -> None:
    """Check that the bucket of a path exists and answers; a store without buckets gets no request.

    Raises:  what the plug-in raises
    """
    bucket = path.lstrip("/").split("/")[0]
    protocols = _protocols(opened)
    if "s3" in protocols:
        opened.info(bucket)
    elif {"gs", "abfs"} & set(protocols):
        opened.ls(bucket)


def listing(url: str, doing: str, data_type: str = PREFIX) -> Listing:
    """Every file behind a URL, sorted by the UTF-8 bytes of its key; names that end in a slash are left out.

    A URL without a slash at its end may be one file; every other one is a prefix, and ends in a slash from here on.

    Raises:  UsageError E51 (nothing there), E52 (denied), E53 (not reachable), U06 (manifest, or a name no file can have)
    """
    _refuse_augmented(url, data_type)
    with told(doing, url):
        if data_type == MANIFEST:
            store, named = _named_by_manifest(url, doing)
            return Listing(store, _sorted(named, url))
        opened, path = file_system(url)
        if not url.endswith("/") and opened.isfile(path):
            return Listing(opened, (_item(path.rpartition("/")[2], opened.info(path)),))
        found = _below(opened, path)
    if not found:
        raise not_there(doing, as_prefix(url), "no file below it")
    return Listing(opened, _sorted(found, url))


def listing_or_nothing(url: str, doing: str) -> Listing:
    """As `listing` of a prefix, but without an error if there is no file yet."""
    with told(doing, url):
        opened, path = file_system(as_prefix(url))
        try:
            found = _below(opened, path)
        except FileNotFoundError:
            found = []
        if not found:
            # A missing bucket is an error, a prefix without files is not.
            require_bucket(opened, path)
            return Listing(opened, ())
    return Listing(opened, _sorted(found, url))


def beginning_with(url: str, doing: str) -> Listing:
    """Every file whose address begins with this text, as an S3Prefix of SageMaker means it: `run-1` takes in `run-10` too.

    A key is what follows the URL's own name, where that is a directory's; otherwise what follows the last slash of the URL.

    Raises:  UsageError E51 (no such bucket), E52 (denied), E53 (not reachable), U06 (a name no file can have)
    """
    above, _, begin = url.rpartition("/")
    if not begin or above.endswith("/"):
        return listing_or_nothing(url, doing)
    with told(doing, url):
        opened, path = file_system(url)
        found = _below(opened, path.rpartition("/")[0], begin)
        if not found:
            require_bucket(opened, path)
    named = [replace(item, key=item.key.removeprefix(f"{begin}/")) for item in found]
    return Listing(opened, _sorted(named, url))


def _below(opened: Any, path: str, begin: str = "") -> list[Item]:
    start = path.rstrip("/") + "/"
    # Other stores than S3 list the whole directory, and what begins otherwise is left out here.
    options = {"prefix": begin} if begin and "s3" in _protocols(opened) else {}
    found: Mapping[str, Mapping[str, Any]] = opened.find(start, detail=True, **options)
    return [
        _item(name[len(start) :], info)
        for name, info in found.items()
        if name.startswith(start + begin) and not name.endswith("/") and info.get("type") != "directory"
    ]


def _item(key: str, info: Mapping[str, Any]) -> Item:
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
    modified = next((info[name] for name in _MODIFIED if info.get(name)), None)
    return Item(
        key=key,
        path=str(info["name"]),
        size_bytes=int(info.get("size") or 0),
        version=version.strip('"'),
        modified_seconds=_seconds(modified),
    )


def _seconds(moment: Any) -> float | None:
    if isinstance(moment, int | float):
        return float(moment)
    return float(moment.timestamp()) if hasattr(moment, "timestamp") else None


def _named_by_manifest(url: str, doing: str) -> tuple[Any, list[Item]]:
    opened, path = file_system(url)
    if (size := opened.info(path)["size"] or 0) > MANIFEST_BYTES:
        raise _unusable(url, f"{size} bytes; at most {MANIFEST_BYTES} are read")
    prefix, keys = parse_manifest(opened.cat_file(path), url)
    store, start = file_system(as_prefix(prefix))
    start = start.rstrip("/") + "/"

    def one(key: str) -> Item:
        try:
            return _item(key, store.info(start + key))
        except FileNotFoundError:
            raise not_there(doing, below(prefix, key), f"named by {shown(url)}") from None

    if len(keys) <= ASKED_ONE_BY_ONE:
        with ThreadPoolExecutor(16) as pool:
            return store, list(pool.map(one, keys))
    found = {item.key: item for item in _below(store, start)}
    return store, [found[key] if key in found else one(key) for key in keys]


def parse_manifest(content: bytes, url: str) -> tuple[str, tuple[str, ...]]:
    """The prefix and the keys below it of an S3 manifest, [{"prefix": URL}, "key", ...]; each key once.

    Raises:  UsageError U06: not JSON, or not laid out so
    """
    try:
        value = json.loads(content)
    except ValueError as error:
        raise _unusable(url, f"not JSON: {error}") from error
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict) or not isinstance(first.get("prefix"), str):
        raise _unusable(url, 'its first element is no {"prefix": "s3://..."}')
    wrong = next((key for key in value[1:] if not isinstance(key, str)), None)
    if wrong is not None:
        raise _unusable(url, f"{json.dumps(wrong)[:80]} is no name of a file")
    if len(value) == 1:
        raise _unusable(url, "it names no file")
    return first["prefix"], tuple(dict.fromkeys(value[1:]))


def _sorted(items: list[Item], url: str) -> tuple[Item, ...]:
    above = {key.rpartition("/")[0] for key in (item.key for item in items) if "/" in key}
    for item in items:
        reason = safe_key(item.key)
        if reason is None and item.key in above:
            reason = "other names lie below it, and a file is no directory"
        if reason is not None:
            raise UsageError(
                "U06",
                f"a name below {shown(url)} cannot be a file on this host: {item.key!r}",
                saw=reason,
                next="choose a prefix without it, or name the files in a ManifestFile",
            )
    return tuple(sorted(items, key=lambda item: item.key.encode()))


def _refuse_augmented(url: str, data_type: str) -> None:
    if data_type == AUGMENTED_MANIFEST:
        raise UsageError(
            "U06",
            f"an AugmentedManifestFile cannot be a channel here: {shown(url)}",
            saw="its records go through a pipe, one by one; off SageMaker there is no pipe to read them from",
            next=f"use {MANIFEST}, or {PREFIX} and read the JSON lines in the script",
        )


def _unusable(url: str, saw: str) -> UsageError:
    return UsageError(
        "U06",
        f"the manifest {shown(url)} cannot be used",
        saw=saw,
        next='write it as [{"prefix": "s3://bucket/folder/"}, "name-1", "name-2"]',
    )


def _protocols(opened: Any) -> tuple[str, ...]:
    protocol = opened.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
