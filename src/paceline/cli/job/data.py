"""What `paceline run` is told about data: channels, where the job's artefacts go, what its checkpoints are kept like."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.contract.channels import check_channel, is_fetched, parse_channels
from paceline.errors import UsageError
from paceline.facts import Channel
from paceline.storage.urls import as_prefix, is_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Every directory and URL of a job; URLs of artefacts and checkpoints end in a slash."""

    channels: tuple[Channel, ...]
    output_url: str | None
    checkpoint_url: str | None


def data_of(args: argparse.Namespace, environ: Mapping[str, str]) -> Data:
    """The data of a command line, seen to be there: directories at once, URLs by one or two questions each.

    Raises:  UsageError U03, U06 (a directory), E50 (no plug-in), E51 (not there), E52 (denied), E53 (no answer), E55 (data type)
    """
    channels = parse_channels(args.channel or ())
    for channel in channels:
        if not is_fetched(channel):
            check_channel(channel)
    data = Data(channels=channels, output_url=_prefix(args.output), checkpoint_url=_prefix(args.checkpoints))
    if args.checkpoints_delete and data.checkpoint_url is None:
        raise UsageError(
            "U03",
            "--checkpoints-delete says what to do below --checkpoints, and there is none",
            saw="no --checkpoints",
            next="paceline run --checkpoints URL --checkpoints-delete ...",
        )
    urls = [data.output_url, data.checkpoint_url, *(channel.source for channel in channels if is_fetched(channel))]
    if any(url is not None for url in urls) and not getattr(args, "urls_are_checked", False):
        from paceline.launch.agent.transfer_client import check_urls

        check_urls(channels, data.output_url, data.checkpoint_url, environ)
    return data


def _prefix(text: str | None) -> str | None:
    """A URL as it is, a directory as the file:// URL of it."""
    if not text:
        return None
    return as_prefix(text if is_url(text) else f"file://{Path(text).expanduser().absolute()}")
