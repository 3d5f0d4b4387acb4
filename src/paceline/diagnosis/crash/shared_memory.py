"""What a message about shared memory means: its errno decides, and without an errno there are two possible causes. Pure.

Source: aten/src/ATen/MapAllocator.cpp, which gives the errno since torch 1.10; torch/utils/data/_utils/signal_handling.py; errno(3).
"""

import re
from enum import StrEnum

from paceline.diagnosis.case import Case


class Shortage(StrEnum):
    """What was exhausted."""

    ROOM = "room"
    FILES = "files"
    MEMORY = "memory"
    # SIGBUS: no room, or a mapped file was truncated.
    ROOM_OR_FILE = "room or a file"
    # No errno: no room, or no descriptor.
    EITHER = "room or files"
    OTHER = "something else"


_SENTENCE = re.compile(
    r"unable to (?:write to|open|resize|mmap|allocate)\b.*(?:torch_|shared memory|shm)|/dev/shm|torch_shm|</torch_",
    re.IGNORECASE,
)
_ERRNO = re.compile(r"\((\d+)\)|\[Errno (\d+)\]")
_NUMBERS = {28: Shortage.ROOM, 23: Shortage.FILES, 24: Shortage.FILES, 12: Shortage.MEMORY}
_WORDS = (
    (re.compile(r"No space left", re.IGNORECASE), Shortage.ROOM),
    (re.compile(r"Too many open files", re.IGNORECASE), Shortage.FILES),
    (re.compile(r"Cannot allocate memory", re.IGNORECASE), Shortage.MEMORY),
)
_BUS = re.compile(r"Bus error.*shared memory|insufficient shared memory|out of shared memory", re.IGNORECASE)
_OPENS = re.compile(r"unable to (?:open|mmap)\b", re.IGNORECASE)
_MAKES = re.compile(r"unable to (?:write to|resize|allocate)\b", re.IGNORECASE)
_NEARLY_ALL_FILES = 0.95


def shortage_in(text: str) -> Shortage | None:
    """What the last message about shared memory in a text is about; None: there is none."""
    return shortage_line(text)[0]


def shortage_line(text: str) -> tuple[Shortage | None, str]:
    """The same with the line itself, cut to 200 characters."""
    for line in reversed(text.splitlines()):
        if (shortage := _of(line)) is not None:
            return shortage, line.strip()[:200]
    return None, ""


def out_of_files(case: Case, rank: int) -> str:
    """How many files a rank had open, if it was inspected and was near its limit; else ""."""
    snapshot = case.snapshots.get(rank)
    if snapshot is None or snapshot.open_files is None or not snapshot.open_files_limit:
        return ""
    if snapshot.open_files < _NEARLY_ALL_FILES * snapshot.open_files_limit:
        return ""
    return f"rank {rank} had {snapshot.open_files:,} of {snapshot.open_files_limit:,} files open"


def _of(line: str) -> Shortage | None:
    if _BUS.search(line):
        return Shortage.ROOM_OR_FILE
    if not _SENTENCE.search(line):
        return None
    for pattern, shortage in _WORDS:
        if pattern.search(line):
            return shortage
    numbers = [int(found[1] or found[2]) for found in _ERRNO.finditer(line)]
    known = next((_NUMBERS[number] for number in numbers if number in _NUMBERS), None)
    if known is not None:
        return known
    if numbers:
        return Shortage.OTHER
    if _MAKES.search(line):
        return Shortage.ROOM_OR_FILE
    return Shortage.EITHER if _OPENS.search(line) else None
