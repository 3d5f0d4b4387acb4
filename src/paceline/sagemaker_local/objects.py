"""Objects behind s3:// and file:// URLs: list, fetch, put. A file:// URL is a directory of this machine that is used like a bucket."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_FILE = "file://"


class TransferFailed(Exception):
    """Data could not be fetched or put; the text is the rest of SageMaker's FailureReason, without any credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """One object: its URL, its path below the prefix that was listed, its size."""

    url: str
    key: str
    size_bytes: int


class Objects:
    """The stores that jobs read from and write to; S3 at `endpoint_url` ("" : wherever boto3 finds it)."""

    def __init__(self, endpoint_url: str = "") -> None:
        self._endpoint_url = endpoint_url or None
        self._client: Any = None

    def below(self, url: str) -> list[FoundObject]:
        """What lies at or below a prefix, in the order of S3's keys.

        Raises:  TransferFailed: it cannot be listed
        """
        if url.startswith(_FILE):
            return _files(local_path(url))
        bucket, prefix = split(url)
        with _told(url):
            pages = self._s3().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            objects = [item for one in pages for item in one.get("Contents", ())]
        return [
            FoundObject(url=f"s3://{bucket}/{item['Key']}", key=key, size_bytes=item["Size"])
            for item in objects
            if (key := below_prefix(item["Key"], prefix)) and not item["Key"].endswith("/")
        ]

    def fetch(self, url: str, target: Path) -> None:
        """Copy one object to a path, whose directory is made; nothing is at the path until all of it is there.

        Raises:  TransferFailed
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.part")
        with _told(url):
            if url.startswith(_FILE):
                shutil.copyfile(local_path(url), draft)
            else:
                bucket, key = split(url)
                self._s3().download_file(bucket, key, str(draft))
        draft.replace(target)

    def put(self, source: Path, url: str) -> None:
        """Copy a file to a URL.

        Raises:  TransferFailed
        """
        with _told(url):
            if url.startswith(_FILE):
                target = local_path(url)
                target.parent.mkdir(parents=True, exist_ok=True)
                draft = target.with_name(f".{target.name}.part")
                shutil.copyfile(source, draft)
                draft.replace(target)
            else:
                bucket, key = split(url)
                self._s3().upload_file(str(source), bucket, key)

    def _s3(self) -> Any:
        if self._client is None:
            import boto3

            # Its own session: boto3's default one is not for several threads. A local server's buckets have no region; boto3 wants one.
            session = boto3.session.Session()
            region = None if session.region_name else "us-east-1"
            self._client = session.client("s3", endpoint_url=self._endpoint_url, region_name=region)
        return self._client


def split(url: str) -> tuple[str, str]:
    """Bucket and key of an S3 URL; https://bucket.s3.region.amazonaws.com/key is one as well.

    Holds:   split("s3://b/a/c") == ("b", "a/c")
    """
    parts = urlsplit(url)
    host = parts.netloc if parts.scheme == "s3" else parts.netloc.partition(".")[0]
    # In a key "?" and "#" are letters like others.
    key = url.split("://", 1)[1].partition("/")[2]
    return host, key


def local_path(url: str) -> Path:
    """The path of a file:// URL."""
    return Path(unquote(url.removeprefix(_FILE)))


def joined(url: str, *pieces: str) -> str:
    """A URL below a URL.

    Holds:   joined("s3://b/a/", "c") == joined("s3://b/a", "c") == "s3://b/a/c"
    """
    return "/".join((url.rstrip("/"), *pieces))


def inside(directory: Path, key: str) -> Path:
    """Where an object goes below a directory.

    Raises:  TransferFailed: its key leads out of the directory
    """
    if ".." in Path(key).parts or Path(key).is_absolute():
        raise TransferFailed(f"object {key} would lie outside its directory")
    return directory / key


def below_prefix(key: str, prefix: str) -> str:
    """An object's path in a channel: what follows its prefix; the last piece where the prefix is the object or half a name.

    Holds:   below_prefix("a/b.txt", "a") == below_prefix("a/b.txt", "a/") == below_prefix("a/b.txt", "a/b.txt") == "b.txt"
    """
    if not prefix or prefix.endswith("/"):
        return key[len(prefix) :]
    if key.startswith(f"{prefix}/"):
        return key[len(prefix) + 1 :]
    return key[prefix.rfind("/") + 1 :]


def _files(path: Path) -> list[FoundObject]:
    if path.is_file():
        return [FoundObject(url=path.as_uri(), key=path.name, size_bytes=path.stat().st_size)]
    found = [
        FoundObject(url=file.as_uri(), key=str(file.relative_to(path)), size_bytes=file.stat().st_size)
        for file in _walk(path)
    ]
    return sorted(found, key=lambda one: one.key.encode())


def _walk(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file())


@contextmanager
def _told(url: str) -> Iterator[None]:
    """What a store refuses, as a TransferFailed."""
    refusals: tuple[type[Exception], ...] = ()
    if not url.startswith(_FILE):
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        refusals = (BotoCoreError, ClientError, Boto3Error)
    try:
        yield
    except OSError as error:
        raise TransferFailed(f"{url}: {error.strerror or error}") from error
    except refusals as error:
        raise TransferFailed(f"{url}: {error}") from error
