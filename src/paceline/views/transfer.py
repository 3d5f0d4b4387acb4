"""Transfers to and from URLs: one line when a transfer is done, a short text while it lasts."""

from collections.abc import Mapping
from typing import Any

from paceline.spelling import plural
from paceline.views.progress import BYTES, progress_text
from paceline.views.units import duration, size

CHECKPOINTS = "checkpoints"


def transfer_text(event: Mapping[str, Any]) -> str | None:
    """One line for a transfer that is done and moved something; None for any other event of one.

    Holds:   an archive that was sent is named by its URL, everything else by what it is
    """
    if event.get("state") != "done":
        return None
    what, host, seconds = event.get("what"), event.get("host"), duration(_number(event.get("seconds")))
    if event.get("direction") == "download":
        total, skipped = _count(event.get("total_files")), _count(event.get("skipped_files"))
        if not total:
            return None
        here = f", {skipped} of them were here" if skipped else ""
        name = CHECKPOINTS if what == CHECKPOINTS else f"channel {what}"
        moved = size(_number(event.get("total_bytes")))
        return f"paceline  {host} fetched {name}: {_files(total)}, {moved}{here} ({seconds})"
    if not event.get("files"):
        return None
    target = event.get("url") if event.get("bytes") is not None else what
    return f"paceline  {host} sent {target}: {_files(_count(event.get('files')))} ({seconds})"


def transfer_doing(event: Mapping[str, Any]) -> str | None:
    """Text of the status line about a running transfer; None once it is done."""
    if event.get("state") == "done":
        return None
    verb = "fetching" if event.get("direction") == "download" else "sending"
    total, done = _number(event.get("total_bytes")), _number(event.get("done_bytes"))
    return progress_text(
        f"{verb} {event.get('what')} on {event.get('host')}", done if total else None, total, None, BYTES
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _files(count: int) -> str:
    return f"{count} {plural(count, 'file')}"
