"""The capabilities of the terminal: colour, width, characters. This module writes nothing."""

import os
import shutil
from collections.abc import Mapping
from typing import TextIO


def use_color(choice: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use colour: --color decides first, then NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE, TERM, and whether it is a terminal.

    Source:  no-color.org; clig.dev, "Output"
    """
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return environ.get("TERM") != "dumb" and stream.isatty()


def ascii_only(stream: TextIO) -> bool:
    """Whether the stream's encoding has only ASCII characters."""
    try:
        "×…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def columns(stream: TextIO) -> int:
    """Width at which prose is wrapped: the terminal's, at most 160. Without a terminal it is 100, so a file always looks the same."""
    return room(stream) or 100


def room(stream: TextIO) -> int | None:
    """Width that a line must fit: the terminal's, at most 160. None without a terminal: then a line may have any length."""
    if not stream.isatty():
        return None
    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), 160)


def rows(stream: TextIO) -> int | None:
    """Height of the terminal; None without a terminal."""
    return shutil.get_terminal_size((100, 24)).lines if stream.isatty() else None
