"""Makes text safe for a terminal: only paceline's own escape codes have an effect, and all other text just shows itself.

Names, messages, logs and recordings come from other hosts, other users and other programs. A control character in them could move the
cursor, overwrite existing lines, write to the clipboard or reverse the direction of text.
"""

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

BOLD, DIM = "1", "2"
BOLD_RED, BOLD_GREEN, BOLD_YELLOW = "1;31", "1;32", "1;33"
# paceline's own codes carry this mark until they are written. No text written before or beside this process can contain it.
_KEY = os.urandom(8).hex()
# C0 except newline and tab, DEL and C1; marks that change the direction of text, and U+2028 and U+2029, which end lines; surrogates, which
# some encodings write as the bytes that they stand for.
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_FOREIGN = re.compile(rf"[{_CONTROLS}](?:(?<=\x1b){_KEY}(\[\??[0-9;]*[A-Za-z]))?")


def own_code(code: str) -> str:
    """One of paceline's own escape sequences, such as "[H", for text that `visible` will process."""
    return f"\x1b{_KEY}{code}"


def painted(style: str, text: str) -> str:
    """Text in one of paceline's styles, for text that `visible` will process."""
    return f"{own_code(f'[{style}m')}{text}{own_code('[0m')}"


def visible(text: str) -> str:
    r"""Text for a terminal: paceline's own codes unchanged, every other control character as text, such as \x1b.

    Holds:   visible("a\x1b[2Jb") == r"a\x1b[2Jb"; JSON stays the same JSON
    """
    # Most lines have nothing to replace, and this check is faster.
    return text if text.isprintable() else _FOREIGN.sub(_shown, text)


def write_line(text: str) -> None:
    """Write a line directly to stderr, for code that must not use the interpreter's own stream."""
    # If nobody can read stderr any more (`2>&1 | head`, a full disk), the work goes on.
    with suppress(OSError):
        os.write(2, (visible(text) + "\n").encode(errors="replace"))


class VisibleStream:
    """A text stream that passes each text through `visible`. Its `buffer` takes bytes unchanged."""

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
    """From now on, everything that this process prints goes through `visible`, including tracebacks and warnings."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, VisibleStream):
            setattr(sys, name, VisibleStream(stream))


def _shown(found: re.Match[str]) -> str:
    if found[1]:
        return f"\x1b{found[1]}"
    number = ord(found[0][0])
    # json.dumps does not escape DEL in its output. This spelling is valid JSON.
    return f"\\x{number:02x}" if number < 0x100 and number != 0x7F else f"\\u{number:04x}"
