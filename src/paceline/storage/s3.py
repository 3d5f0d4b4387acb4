"""S3 as a file system of fsspec, through boto3: the client that AWS and whoever talks to SageMaker have installed anyway.

Imported only where somebody names an s3:// URL. One object is written completely or not at all.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError
from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile
from s3transfer.utils import S3_RETRYABLE_DOWNLOAD_ERRORS

# botocore repeats a request as AWS_MAX_ATTEMPTS and AWS_RETRY_MODE say.
_CONFIG = Config(connect_timeout=5, read_timeout=15, max_pool_connections=48)
# Of one file, while others are on their way beside it.
_TRANSFER = TransferConfig(
    max_concurrency=4, multipart_chunksize=16 << 20, max_io_queue=64, preferred_transfer_client="classic"
)
# An upload of which nobody knows the end may have 10,000 parts: 500 GB.
_PART_BYTES = 50 << 20
# A body that breaks off is no request to botocore, which repeats only those.
_READ_TRIES = 5
_MISSING = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NoSuchUpload"})
_DENIED = frozenset({"403", "AccessDenied", "Forbidden", "AllAccessDisabled"})


class S3FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The calls of fsspec that `paceline.storage` makes; a path is the bucket's name, a slash and the key."""

    protocol = ("s3", "s3a")
    # The client below it is what is kept, for all threads.
    cachable = False

    def __init__(self, client_options: Mapping[str, str] | None = None) -> None:
        super().__init__(use_listings_cache=False)
        self.client_options = dict(client_options or {})

    @property
    def client(self) -> Any:
        """The client of boto3. Every thread may use it, and no child that was forked may."""
        return _client(os.getpid(), **self.client_options)

    def info(self, path: str, **ignored: Any) -> dict[str, Any]:
        """What is known about an object, a prefix with objects below it, or a bucket.

        Raises:  FileNotFoundError, PermissionError, ClientError, BotoCoreError, as every other call does
        """
        path = self._strip_protocol(path)
        bucket, key = _split(path)
        with _translated(path):
            if not key:
                self.client.head_bucket(Bucket=bucket)
                return _directory(path)
            try:
                return _file(path, self.client.head_object(Bucket=bucket, Key=key), "ContentLength")
            except ClientError as error:
                if _code(error) not in _MISSING:
                    raise
            if self.client.list_objects_v2(Bucket=bucket, Prefix=f"{key}/", MaxKeys=1).get("KeyCount"):
                return _directory(path)
        raise FileNotFoundError(path)

    def exists(self, path: str, **ignored: Any) -> bool:
        """Whether there is such an object, or one below it. A store that does not answer is no answer."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **ignored: Any) -> list[Any]:
        """Objects and prefixes one level below a path; of an object, the object."""
        path = self._strip_protocol(path)
        bucket, key = _split(path)
        prefix = f"{key}/" if key else ""
        found: list[dict[str, Any]] = []
        for page in self._pages(path, prefix, "/"):
            found += (_directory(f"{bucket}/{one['Prefix'].rstrip('/')}") for one in page.get("CommonPrefixes", ()))
            found += (_listed(bucket, one) for one in page.get("Contents", ()) if one["Key"] != prefix)
        if not found and key:
            found = [self.info(path)]
        return found if detail else [one["name"] for one in found]

    def find(self, path: str, *ignored: Any, detail: bool = False, prefix: str = "", **others: Any) -> Any:
        """Every object below a path whose name there begins with `prefix`: one request for a thousand."""
        path = self._strip_protocol(path)
        bucket, key = _split(path)
        start = (f"{key}/" if key else "") + prefix
        pages = self._pages(path, start, "")
        found = [_listed(bucket, one) for page in pages for one in page.get("Contents", ())]
        names = {one["name"]: one for one in found}
        return names if detail else list(names)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **ignored: Any) -> bytes:
        """The content of an object, or its bytes from `start` to `end`."""
        bucket, key = _split(self._strip_protocol(path))
        last = "" if end is None else end - 1
        part = {} if start is None and end is None else {"Range": f"bytes={start or 0}-{last}"}
        for left in reversed(range(_READ_TRIES)):
            with _translated(path):
                try:
                    return bytes(self.client.get_object(Bucket=bucket, Key=key, **part)["Body"].read())
                except S3_RETRYABLE_DOWNLOAD_ERRORS:
                    if not left:
                        raise
        raise AssertionError("unreachable")

    def pipe_file(self, path: str, value: bytes, **ignored: Any) -> None:
        """Write an object."""
        bucket, key = _split(self._strip_protocol(path))
        with _translated(path):
            self.client.put_object(Bucket=bucket, Key=key, Body=value)

    def rm_file(self, path: str) -> None:
        """Remove an object. S3 does not say whether there was one."""
        bucket, key = _split(self._strip_protocol(path))
        with _translated(path):
            self.client.delete_object(Bucket=bucket, Key=key)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove an object, and with `recursive` those below it."""
        for name in [*(self.find(path) if recursive else ()), path]:
            self.rm_file(name)

    def put_file(self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, **ignored: Any) -> None:
        """Send a file of this machine, a large one in parts."""
        bucket, key = _split(self._strip_protocol(rpath))
        with _translated(rpath), open(lpath, "rb") as file:
            self.client.upload_fileobj(file, bucket, key, Callback=callback.relative_update, Config=_TRANSFER)

    def get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **ignored: Any) -> None:
        """Fetch an object into a file of this machine, a large one in parts."""
        bucket, key = _split(self._strip_protocol(rpath))
        with _translated(rpath), open(lpath, "wb") as file:
            self.client.download_fileobj(bucket, key, file, Callback=callback.relative_update, Config=_TRANSFER)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **others: Any) -> "_S3File":
        others.pop("cache_options", None)
        return _S3File(self, path, mode, block_size or _PART_BYTES, **others)

    def _pages(self, path: str, prefix: str, delimiter: str) -> Iterator[dict[str, Any]]:
        asked = {"Bucket": _split(path)[0], "Prefix": prefix, "Delimiter": delimiter}
        with _translated(path):
            yield from self.client.get_paginator("list_objects_v2").paginate(**asked)


class _S3File(AbstractBufferedFile):  # type: ignore[misc]
    """An object that is read by ranges, or written part by part; before `close` nobody sees it."""

    def __init__(self, *argv: Any, **options: Any) -> None:
        super().__init__(*argv, **options)
        bucket, key = _split(self.path)
        self._object = {"Bucket": bucket, "Key": key}
        self._upload: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.fs.cat_file(self.path, start, end))

    def _initiate_upload(self) -> None:
        # What fits into one part is one request.
        if self.tell() >= self.blocksize:
            with _translated(self.path):
                answer = self.fs.client.create_multipart_upload(**self._object)
            self._upload = {**self._object, "UploadId": answer["UploadId"]}

    def _upload_chunk(self, final: bool = False) -> bool:
        body = self.buffer.getvalue()
        with _translated(self.path):
            if not self._upload:
                self.fs.client.put_object(**self._object, Body=body)
                return True
            if body:
                number = len(self._parts) + 1
                answer = self.fs.client.upload_part(**self._upload, PartNumber=number, Body=body)
                self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            if final:
                self.fs.client.complete_multipart_upload(**self._upload, MultipartUpload={"Parts": self._parts})
        return True

    def discard(self) -> None:
        """Leave nothing of it in the store; after that `close` does nothing."""
        self.closed = True
        if self._upload:
            with _translated(self.path):
                self.fs.client.abort_multipart_upload(**self._upload)


@cache
def _client(pid: int, **options: str) -> Any:
    # A session of its own: the one that boto3 keeps for everybody may not be used by several threads at once.
    return boto3.session.Session().client("s3", config=_CONFIG, **options)


def _split(path: str) -> tuple[str, str]:
    bucket, _, key = path.partition("/")
    return bucket, key


def _directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _file(name: str, answer: Mapping[str, Any], size: str) -> dict[str, Any]:
    known = {word: answer[word] for word in ("ETag", "LastModified") if word in answer}
    return {"name": name, "size": answer[size], "type": "file", **known}


def _listed(bucket: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return _file(f"{bucket}/{entry['Key']}", entry, "Size")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Raise what a file system raises; what no file system knows stays botocore's."""
    try:
        yield
    except ClientError as error:
        if _code(error) in _MISSING:
            raise FileNotFoundError(f"{path}: {error}") from error
        if _code(error) in _DENIED:
            raise PermissionError(f"{path}: {error}") from error
        raise
