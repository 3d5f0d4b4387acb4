"""URLs: which texts are URLs, what may be shown of them, and the plug-in of fsspec that reaches each."""

import posixpath
import re
from collections.abc import Iterable
from typing import Any

from paceline.clone import install_command
from paceline.errors import UsageError

CHECKPOINTS_FOLDER = ".paceline"
"""What paceline keeps below the URL of a job's checkpoints. It is no checkpoint."""
_EXTRA = "paceline[s3]"
PACKAGES = {
    "s3": _EXTRA,
    "s3a": _EXTRA,
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "adl": "adlfs",
    "oss": "ossfs",
    "hf": "huggingface_hub",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "http": "aiohttp",
    "https": "aiohttp",
}
"""scheme -> what `pip install` needs for it, beside fsspec."""

# Stores with directories and a visible rename. The others store an object completely or not at all.
_WITH_DIRECTORIES = frozenset({"file", "local", "sftp", "ssh", "smb", "ftp", "hdfs", "webhdfs"})
_LOCAL = frozenset({"file", "local"})
_S3 = frozenset({"s3", "s3a"})
_S3_CLIENT: dict[str, str] = {}
"""What `use_s3_at` was told, for the client of boto3."""
_SCHEME = r"\b[a-z][a-z0-9+.\-]{0,30}"
_URL = re.compile(r"(?i)[a-z][a-z0-9+.\-]*://")
# A password may contain an unescaped slash: after a colon everything up to the last @ counts as the password.
_USER = re.compile(rf"(?i)({_SCHEME}://)(?:[^\s/]*@|[^\s/@:]*:\S*@)+")
# The text after a # may be a token too, if it assigns a value; the name of an object in a store may contain a #.
_VALUES = r"#(?=[^\s?'\"]*=)"
_QUERY = re.compile(
    rf"(?i)(\bhttps?://[^\s?#]*)[?#][^\s'\"]*|({_SCHEME}://(?:(?!{_VALUES})[^\s?])*)(?:\?|{_VALUES})[^\s'\"]*"
)


def is_url(text: str) -> bool:
    """Whether the text is a URL for fsspec; a path is not, also with colons in it."""
    return _URL.match(text) is not None


def misspelt_url(text: str) -> str:
    """The URL that a text such as s3:/bucket was meant to be; "" if it is a URL, or a path as paths are."""
    name, colon, rest = text.partition(":")
    if not colon or is_url(text) or name.lower() not in PACKAGES:
        return ""
    return f"{name}://{rest.lstrip('/')}"


def scheme(url: str) -> str:
    """What stands before ://, in small letters."""
    return url.partition("://")[0].lower()


def shown(text: str) -> str:
    """The text with every URL in a form that may be shown: without user, password, signature or token.

    Holds:   shown(shown(text)) == shown(text); a text without a URL is left as it is
    """
    return _QUERY.sub(r"\1\2", _USER.sub(r"\1", text))


def shown_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """The arguments of a command line in a form that may be kept."""
    return tuple(shown(word) for word in argv)


def as_prefix(url: str) -> str:
    """The URL as the beginning of names: it always ends in one slash, so that runs/1 does not match runs/10.

    Holds:   as_prefix(as_prefix(url)) == as_prefix(url)
    """
    return url.rstrip("/") + "/" if not url.endswith("://") else url


def below(prefix: str, *names: str) -> str:
    """A URL below a prefix."""
    return as_prefix(prefix) + "/".join(name.strip("/") for name in names)


def part_url(output_url: str, run_id: str, host: str, kind: str) -> str:
    """Where a host puts its part of an archive and the first host finds it: both compute it, neither sends it."""
    return below(output_url, run_id, "output", ".parts", f"{host}.{kind}.tar.gz")


def file_system(url: str) -> tuple[Any, str]:
    """The file system of fsspec that reaches this URL, ours for S3, and the path by which that knows it.

    Raises:  UsageError E01: fsspec, or the plug-in for this scheme, is not installed
    """
    try:
        import fsspec
    except ImportError as error:
        raise no_plug_in(url, "fsspec is not installed", _EXTRA) from error
    options = {"auto_mkdir": True} if scheme(url) in _LOCAL else {}
    try:
        if scheme(url) in _S3:
            # Ours, and not the one of s3fs: that wants one certain release of botocore, and boto3 another one.
            from paceline.storage.s3 import S3FileSystem

            return S3FileSystem(_S3_CLIENT), url.partition("://")[2].rstrip("/")
        opened, path = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
    except (ImportError, ValueError) as error:
        known = PACKAGES.get(scheme(url), "")
        raise no_plug_in(url, shown(str(error)).splitlines()[0], known) from error
    return opened, str(path).rstrip("/") if url.endswith("/") else str(path)


def use_s3_at(endpoint_url: str, region: str) -> None:
    """From now on this process reaches s3:// URLs at `endpoint_url` ("": where AWS's own variables and files say), in `region`."""
    _S3_CLIENT.clear()
    _S3_CLIENT.update({"region_name": region} | ({"endpoint_url": endpoint_url} if endpoint_url else {}))


def no_plug_in(url: str, saw: str, package: str) -> UsageError:
    """The error for a URL that no installed plug-in can reach."""
    next_step = f"pip install '{package}'" if package else "use s3://, gs://, az://, sftp:// or a directory"
    if package == _EXTRA:
        next_step = install_command("s3")
    return UsageError("E01", f"nothing installed can reach {shown(url)}", saw=saw, next=next_step)


def renames(url: str) -> bool:
    """Whether a file is written under another name first and renamed, because a partial file would be visible otherwise."""
    return scheme(url) in _WITH_DIRECTORIES


def safe_key(key: str) -> str | None:
    """Why a key cannot become a file below a directory; None if it can."""
    parts = key.split("/")
    if not key or key.startswith("/") or ".." in parts or "." in parts or "" in parts:
        return "it leads out of the directory, or has an empty part"
    if "\0" in key or any(len(part.encode()) > 255 for part in parts):
        return "no file can have this name"
    return None if posixpath.normpath(key) == key else "it is not written in the plain way"


def below_checkpoints(checkpoint_url: str, *names: str) -> str:
    """The place of saved states below the URL of a job's checkpoints."""
    return below(checkpoint_url, CHECKPOINTS_FOLDER, *names)
