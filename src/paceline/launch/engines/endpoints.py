"""Addresses that stand in for AWS: only those are asked that this user has named, in the environment or when a job was submitted.

A request carries the user's key and session token. What a recording says of an address is therefore compared, never obeyed.
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
    """Note the addresses that the user has just given, for later commands; where that fails, they ask for the variable."""
    named = {url for name, url in options.items() if name.endswith(_OPTION)}
    if named - _remembered():
        with suppress(OSError):
            write_json(_file(), {"schema": SCHEMA, "urls": sorted(named | _remembered())}, mode=0o600)


def require_named(options: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Refuse the options of a recording that lead to an address which the user has named nowhere.

    Raises:  UsageError E47: there is such an address
    """
    own = {url for name, url in environ.items() if name.startswith(_VARIABLE)}
    for name, url in options.items():
        if name.endswith(_OPTION) and not _OF_AWS.fullmatch(url) and url not in own | _remembered():
            raise UsageError(
                "E47",
                f"only the recording says that this job is asked at {url}",
                saw=f"{name} in it; no {_VARIABLE}... in the environment, and no job was submitted there from here",
                next=f"export {_VARIABLE}_SAGEMAKER={url}, if you know it",
            )


def _file() -> Path:
    return index_folder().parent / "endpoints.json"


def _remembered() -> set[str]:
    urls = read_document(_file()).get("urls")
    return {url for url in urls if isinstance(url, str)} if isinstance(urls, list) else set()
