"""File, line and function of a Python code object in another process's memory, as torch's flight recorder keeps them for its calls.

Source:  CPython's Include/cpython/code.h and unicodeobject.h for 3.10 to 3.13, Objects/locations.md; in 3.14 _Py_DebugOffsets says the same
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from paceline.probes.remote_memory import RemoteMemory, Unreadable
from paceline.probes.stacks import Frame, is_users_file

_PYTHON = re.compile(r"/(?:lib)?python3\.(\d{1,2})(?:t?/|\.so)|/python3\.(\d{1,2})$")
_FILE, _NAME, _LINES = 112, 120, 136
_FIRST_LINE = {11: 72, 12: 68, 13: 68}
# Of a compact string, where its characters are: ASCII, others.
_CHARACTERS = {11: (48, 72), 12: (40, 56), 13: (40, 56)}
_MOST_TABLE_BYTES, _MOST_TEXT = 1 << 18, 4096
_NO_LINE, _ONE_LINE_COLUMNS, _NO_COLUMNS, _LONG = 15, range(10, 13), 13, 14


@dataclass(slots=True)
class CodeObjects:
    """The code objects of one process. Each is read once."""

    memory: RemoteMemory
    minor: int | None = field(init=False, default=None)
    """Of the process's Python 3; None: none of which the layout is known."""
    _known: dict[int, tuple[str, str, int, bytes] | None] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = {f"python3.{minor}" for minor in _FIRST_LINE} | {f"libpython3.{minor}.so.1.0" for minor in _FIRST_LINE}
        for file in self.memory.files(names):
            found = _PYTHON.search(file.path)
            if found is not None:
                self.minor = int(found[1] or found[2])

    def line(self, code: int, instruction: int) -> Frame | None:
        """Where an instruction is, counted in bytes; None: there is no code object that can be read."""
        if self.minor is None:
            return None
        if code not in self._known:
            try:
                self._known[code] = self._read(code, self.minor)
            except (Unreadable, ValueError):
                self._known[code] = None
        known = self._known[code]
        if known is None:
            return None
        file, name, first, table = known
        return Frame(file=file, line=line_at(table, first, instruction) or 0, function=name, users=is_users_file(file))

    def _read(self, code: int, minor: int) -> tuple[str, str, int, bytes]:
        raw = self.memory.read(code, 144)
        file, name, table = (struct.unpack_from("<Q", raw, at)[0] for at in (_FILE, _NAME, _LINES))
        length = self.memory.word(table + 16)
        if not 0 < length <= _MOST_TABLE_BYTES:
            raise ValueError("no table of lines")
        first = struct.unpack_from("<i", raw, _FIRST_LINE[minor])[0]
        return self._text(file, minor), self._text(name, minor), first, self.memory.read(table + 32, length)

    def _text(self, at: int, minor: int) -> str:
        raw = self.memory.read(at, 40)
        length, state = struct.unpack_from("<Q", raw, 16)[0], struct.unpack_from("<I", raw, 32)[0]
        kind, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        codec = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(kind)
        if not is_compact or codec is None or not 0 < length <= _MOST_TEXT:
            raise ValueError("no text")
        return self.memory.read(at + _CHARACTERS[minor][0 if is_ascii else 1], length * kind).decode(codec, "replace")


def line_at(table: bytes, first: int, instruction: int) -> int | None:
    """The line of an instruction, counted in bytes, in a location table; None: it has none, or is not in it."""
    line, at = first, 0
    places = iter(table)
    for head in places:
        kind, length = head >> 3 & 15, ((head & 7) + 1) * 2
        if kind in (_NO_COLUMNS, _LONG):
            line += _signed(places)
            for _ in range(3 if kind == _LONG else 0):
                _unsigned(places)
        elif kind in _ONE_LINE_COLUMNS:
            line += kind - 10
            next(places, 0), next(places, 0)
        elif kind < 10:
            next(places, 0)
        if at <= instruction < at + length:
            return None if kind == _NO_LINE else line
        at += length
    return None


def _unsigned(places: Iterator[int]) -> int:
    """Six bits a byte, the lowest first; bit 6 says that another one follows."""
    value = shift = 0
    for byte in places:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return value


def _signed(places: Iterator[int]) -> int:
    value = _unsigned(places)
    return -(value >> 1) if value & 1 else value >> 1
