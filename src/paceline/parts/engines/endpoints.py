"""Addresses that replace AWS. Only addresses that this user has named, in the environment or at a submission, get requests.

A request has the user's key and session token. An address from a recording is therefore compared with the named addresses first.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from paceline.errors import UsageError
from paceline.recording.runs import index_folder, read_document
from paceline.recording.writer import write_json

SCHEMA = "paceline.endpoints/1"
_OPTION, _VARIABLE = "endpoint_url", "AWS_ENDPOINT_URL"
_OF_AWS = re.compile(r"https://[a-z0-9.-]+\.amazonaws\.com(\.cn)?/?")


def remember(options: Mapping[str, str]) -> None:
    """Store the addresses that the user has just given, for later commands. If that fails, later commands ask for the variable."""
    named = {url for name, url in options.items() if name.endswith(_OPTION)}
    if named - _remembered():
        with suppress(OSError):
            write_json(_file(), {"schema": SCHEMA, "urls": sorted(named | _remembered())}, mode=0o600)


def require_named(options: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Refuse a recording's options if they have an address that the user has not named.

    Raises:  UsageError U25: the options have such an address
    """
    own = {url for name, url in environ.items() if name.startswith(_VARIABLE)}
    for name, url in options.items():
        if name.endswith(_OPTION) and not _OF_AWS.fullmatch(url) and url not in own | _remembered():
            raise UsageError(
                "U25",
                f"only the recording says that this job is asked at {url}",
                saw=f"{name} in it; no {_VARIABLE}... in the environment, and no job was submitted there from here",
                next=f"export {_VARIABLE}_SAGEMAKER={url}, if you know it",
            )


def _file() -> Path:
    return index_folder().parent / "endpoints.json"


def _remembered() -> set[str]:
    urls = read_document(_file()).get("urls")
    return {url for url in urls if isinstance(url, str)} if isinstance(urls, list) else set()
