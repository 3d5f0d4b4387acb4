"""Reads a job's s3://, https:// and file:// URLs through `paceline.storage`, and words its errors as SageMaker does."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from paceline.errors import PacelineError
from paceline.storage.download import Progress

FILE = "file://"


class TransferFailed(Exception):
    """Data could not be downloaded or uploaded. The text is the rest of SageMaker's FailureReason, without credentials."""


class TransferStopped(PacelineError):
    """The job must end while its data is fetched."""


@contextmanager
def failing_as_sagemaker_does() -> Iterator[None]:
    """Turn an error of `paceline.storage` into the reason of a failed job.

    Raises:  TransferFailed; TransferStopped passes unchanged
    """
    try:
        yield
    except TransferStopped:
        raise
    except PacelineError as error:
        raise TransferFailed(f"{error.what} ({error.saw})") from error
    except OSError as error:
        raise TransferFailed(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error


def while_it_goes_on(going_on: Callable[[], bool]) -> Progress:
    """A progress callback that ends the transfer with TransferStopped if the job must end."""

    def look(progress: Progress) -> None:
        if not going_on():
            raise TransferStopped("E53", "the job is to end")

    return Progress(look)


def storage_url(url: str) -> str:
    """The URL in the form for `paceline.storage`. https://bucket.s3.region.amazonaws.com/key is also a URL of S3.

    Holds:   storage_url("https://b.s3.eu-west-1.amazonaws.com/a") == "s3://b/a"
    """
    if url.startswith(FILE):
        return f"{FILE}{local_path(url)}{'/' if url.endswith('/') else ''}"
    # In a key, "?" and "#" are ordinary characters.
    host, _, key = url.partition("://")[2].partition("/")
    bucket = host if urlsplit(url).scheme == "s3" else host.partition(".")[0]
    return f"s3://{bucket}/{key}"


def local_path(url: str) -> Path:
    """The path of a file:// URL."""
    return Path(unquote(url.removeprefix(FILE)))


def inside(directory: Path, name: str) -> Path:
    """The path of a name below a directory.

    Raises:  TransferFailed: the path leads out of the directory
    """
    if os.pardir in Path(name).parts or Path(name).is_absolute():
        raise TransferFailed(f"{name} would lie outside its directory")
    return directory / name
