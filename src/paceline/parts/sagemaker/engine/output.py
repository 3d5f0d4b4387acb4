"""Copies the recording of an ended job from SageMaker's output: from output.tar.gz, or from files if compression is off."""

import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

from paceline.parts.sagemaker.engine.status import in_the_recording, output_prefix
from paceline.recording.runs import read_document
from paceline.recording.writer import write_json

_NOTE = "sagemaker.json"
_OUTPUT = "output.tar.gz"


def is_fetched(run_dir: Path) -> bool:
    """Whether the recording was copied completely."""
    return bool(read_document(run_dir / _NOTE))


def fetch(described: Mapping[str, Any], run_id: str, s3: Callable[[], Any], run_dir: Path) -> int:
    """Copy the recording to `run_dir` and return its number of files; 0: the job left no recording.

    Raises:  botocore's ClientError and BotoCoreError; OSError, tarfile.TarError: the next call tries again
    """
    prefix = output_prefix(described)
    if described["OutputDataConfig"].get("CompressionType") == "NONE":
        count = _from_files(prefix, run_id, s3(), run_dir)
    else:
        count = _from_archive(prefix + _OUTPUT, run_id, s3, run_dir)
    write_json(run_dir / _NOTE, {"schema": "paceline.fetched/2", "url": prefix, "file_count": count})
    return count


def bucket_and_key(url: str) -> tuple[str, str]:
    """Bucket and key of an S3 URL.

    Holds:   bucket_and_key("s3://b/a/c") == ("b", "a/c")
    """
    parts = urlsplit(url)
    return parts.netloc, parts.path.lstrip("/")


def _from_archive(url: str, run_id: str, s3: Callable[[], Any], run_dir: Path) -> int:
    stream = _opened(url, s3)
    if stream is None:
        return 0
    count = 0
    # The archive is read as a stream: all other files of the job, which may be large, are skipped and never stored.
    with closing(stream), tarfile.open(fileobj=stream, mode="r|gz") as archive:
        for member in archive:
            name = in_the_recording(member.name, run_id)
            content = archive.extractfile(member) if name and member.isfile() else None
            if name and content is not None:
                _put(run_dir / name, content)
                count += 1
    return count


def _opened(url: str, s3: Callable[[], Any]) -> IO[bytes] | None:
    if url.startswith("file://"):
        path = Path(url.removeprefix("file://"))
        return path.open("rb") if path.exists() else None
    bucket, key = bucket_and_key(url)
    client = s3()
    try:
        return cast(IO[bytes], client.get_object(Bucket=bucket, Key=key)["Body"])
    except client.exceptions.NoSuchKey:
        return None


def _from_files(prefix: str, run_id: str, client: Any, run_dir: Path) -> int:
    bucket, key = bucket_and_key(prefix)
    count = 0
    for name in _keys(client, bucket, key):
        below = in_the_recording(name.removeprefix(key), run_id)
        if below:
            _put(run_dir / below, client.get_object(Bucket=bucket, Key=name)["Body"])
            count += 1
    return count


def _keys(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from (entry["Key"] for entry in page.get("Contents", ()))


def _put(path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.part")
    with draft.open("wb") as file:
        while piece := content.read(1 << 20):
            file.write(piece)
    draft.replace(path)
