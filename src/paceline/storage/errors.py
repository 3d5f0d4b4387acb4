"""Turns the exceptions of libraries during a transfer into errors with four parts, without credentials."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.errors import PacelineError, UsageError
from paceline.storage.urls import scheme, shown

AGAIN = "start the job again: only what is missing is fetched"
# By name, so that nothing has to be imported to recognise them.
_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
    "DefaultCredentialsError",
    "RefreshError",
    "ClientAuthenticationError",
)
_REFUSED_WORDS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied", "Forbidden", "(403)")
_MISSING_WORDS = ("NoSuchBucket", "NoSuchKey", "(404)", "Not Found")
_LOOK = {
    "s3": "aws s3 ls {url}",
    "s3a": "aws s3 ls {url}",
    "gs": "gcloud storage ls {url}",
    "gcs": "gcloud storage ls {url}",
}


@contextmanager
def told(doing: str, url: str, *, there: str = "", again: str = AGAIN) -> Iterator[None]:
    """Turn whatever a library raises inside the block into one of ours.

    `doing`: the sentence so far, such as "channel 'train' could not be fetched". `there`: what has arrived nevertheless. `again`: what
    to do once the network or the store is well.

    Raises:  UsageError E51 (not there), E52 (denied, no credentials), U22 (no room here), E53 (anything else)
    """
    try:
        yield
    except PacelineError:
        raise
    except Exception as error:
        raise as_ours(error, doing, url, there=there, again=again) from error


def as_ours(error: BaseException, doing: str, url: str, *, there: str = "", again: str = AGAIN) -> UsageError:
    """The error of paceline for an exception of a library.

    Holds:   no user, password, signature or token of any URL is in its parts
    """
    said = _said(error)
    saw = f"{said}; {there}" if there else said
    look = _LOOK.get(scheme(url), "ls -ld {path}").format(url=shown(url), path=shown(url).partition("://")[2])
    what = f"{doing}: {shown(url)}"
    causes = _chain(error)
    if any(type(cause).__name__ in _NO_CREDENTIALS for cause in causes):
        return UsageError("E52", f"{what}: no usable credentials", saw=saw, next=_credentials(url))
    if any(isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) for cause in causes):
        return UsageError("U22", f"{what}: no room on this host's disk", saw=saw, next="df -h")
    if isinstance(error, PermissionError) or any(word in said for word in _REFUSED_WORDS):
        return UsageError("E52", f"{what}: denied", saw=saw, next=_credentials(url))
    if isinstance(error, FileNotFoundError) or any(word in said for word in _MISSING_WORDS):
        return UsageError("E51", f"{what}: not there", saw=saw, next=look)
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return UsageError("E51", f"{what}: a file is in the place of a directory", saw=saw, next=look)
    return UsageError("E53", f"{what}: broken off", saw=saw, next=again)


def not_there(doing: str, url: str, saw: str) -> UsageError:
    """The error for a URL without any file below it."""
    look = _LOOK.get(scheme(url), "ls -la {path}").format(url=shown(url), path=shown(url).partition("://")[2])
    return UsageError("E51", f"{doing}: {shown(url)}: not there", saw=saw, next=look)


def _said(error: BaseException) -> str:
    text = " ".join(shown(str(error)).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def _credentials(url: str) -> str:
    match scheme(url):
        case "s3" | "s3a":
            return "aws sts get-caller-identity"
        case "gs" | "gcs":
            return "gcloud auth application-default login"
        case _:
            return f"check who may read and write {shown(url)}"
