"""What may reach a terminal: text in which nothing but our own codes does anything but show itself.

Names, messages, logs and recordings come from other hosts, other users and other programs. A control character in them could move the
cursor, rewrite lines that are already there, fill the clipboard or turn text around.
"""

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

BOLD, DIM = "1", "2"
BOLD_RED, BOLD_GREEN, BOLD_YELLOW = "1;31", "1;32", "1;33"
# Our own codes carry it until they are written. Nobody who wrote a text before or beside this process can have put it there.
_KEY = os.urandom(8).hex()
# C0 but for newline and tab, DEL and C1; marks that turn text around, and U+2028 and U+2029, which end lines; half characters, which
# some encodings write as the bytes that they stand for.
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_FOREIGN = re.compile(rf"[{_CONTROLS}](?:(?<=\x1b){_KEY}(\[[0-9;]*[A-Za-z]))?")


def own_code(code: str) -> str:
    """One of our own escape sequences, such as "[H", for text that `visible` is going to pass."""
    return f"\x1b{_KEY}{code}"


def painted(style: str, text: str) -> str:
    """Text in a style of ours, for text that `visible` is going to pass."""
    return f"{own_code(f'[{style}m')}{text}{own_code('[0m')}"


def visible(text: str) -> str:
    r"""Text for a terminal: our own codes as they are, every other control character as text, such as \x1b.

    Holds:   visible("a\x1b[2Jb") == r"a\x1b[2Jb"; JSON stays the same JSON
    """
    # Most lines have nothing to show, and this is the faster look.
    return text if text.isprintable() else _FOREIGN.sub(_shown, text)


def write_line(text: str) -> None:
    """A line of ours straight to stderr, also where the interpreter's own stream is not to be used."""
    # Where nobody can read it any more (`2>&1 | head`, a full disk) the work goes on.
    with suppress(OSError):
        os.write(2, (visible(text) + "\n").encode(errors="replace"))


class VisibleStream:
    """A text stream that writes what `visible` makes of each text. Its `buffer` takes bytes as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def show_only_visible() -> None:
    """From now on whatever this process prints, tracebacks and warnings too, goes through `visible`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, VisibleStream):
            setattr(sys, name, VisibleStream(stream))


def _shown(found: re.Match[str]) -> str:
    if found[1]:
        return f"\x1b{found[1]}"
    number = ord(found[0][0])
    # json.dumps leaves DEL alone in what it prints: this spelling is JSON's.
    return f"\\x{number:02x}" if number < 0x100 and number != 0x7F else f"\\u{number:04x}"
