"""Marks in the output of a rank that keeps its state: behind which byte of stdout and stderr a step was kept. Standard library only.

The rank writes them, and its agent takes them out again. They are in the stream itself, because only there is their place exact.
"""

import re

_BEGIN, _END = b"\x1e\x00paceline kept ", b"\x1f"
_DIGITS = 20
_MARK = re.compile(re.escape(_BEGIN) + b"([0-9]{%d})" % _DIGITS + re.escape(_END))
_LONGEST = b"%b%0*d%b" % (_BEGIN, _DIGITS, 0, _END)


def mark_of(step: int) -> bytes:
    """The bytes that say: what was written before belongs to the kept step or to one before it."""
    return b"%b%0*d%b" % (_BEGIN, _DIGITS, step, _END)


def between_marks(data: bytes) -> tuple[list[tuple[bytes, int | None]], bytes]:
    """The texts between the marks, each with the step of the mark behind it (None: no mark follows), and the start of an unfinished mark.

    Holds:   texts, marks and the unfinished mark together are the data
    """
    found: list[tuple[bytes, int | None]] = []
    at = 0
    for match in _MARK.finditer(data):
        found.append((data[at : match.start()], int(match[1])))
        at = match.end()
    rest = data[at:]
    begun = rest.rfind(_BEGIN[:1], max(0, len(rest) - len(_LONGEST) + 1))
    cut = begun if begun >= 0 and _begins_a_mark(rest[begun:]) else len(rest)
    return [*found, (rest[:cut], None)], rest[cut:]


def _begins_a_mark(text: bytes) -> bool:
    digits = text[len(_BEGIN) :]
    return _BEGIN.startswith(text[: len(_BEGIN)]) and (not digits or digits.isdigit())
