"""Copies a recording from the host that writes it to another machine, piece by piece: `python -m paceline.recording.mirror DIR`.

As a program it answers each line on stdin (the known state, as JSON) with 8 bytes of length, big-endian, and a gzipped tar, until stdin
ends. Standard library only, so that it starts quickly wherever paceline is installed.
"""

import gzip
import io
import json
import os
import re
import signal
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from paceline.atomic_write import atomic_write
from paceline.recording.plain_files import OTHERS_READ, make_folder, open_plain
from paceline.recording.ring import HEADER_BYTES

Known = dict[str, tuple[int, int]]
"""Path below the recording -> (size in bytes, modification time in ns) of what has been brought."""

# Only the ends of these files change, except for a segment's header. Every other file is copied whole when it has changed.
_SEGMENT = ".seg"
_APPENDED = (".jsonl", ".log", ".out", ".err", ".idx", ".roll", _SEGMENT)
_AT_THE_TOP = re.compile(r"run\.json|plan\.json|events\.jsonl|lateness\.roll|step_timing_\d+\.json")
# The contract's tree has the user's data and models, and links to them; these are transferred separately. Saved steps are as large, and
# no other host would take them.
_LEFT_OUT = ("ml", "state")
# A round copies at most this much, so that one huge log does not delay the events.
_MOST_BYTES = 32 << 20
# Such a round and one more file of that size, with their headers; packed it is less.
MOST_UNPACKED_BYTES = MOST_PIECE_BYTES = 80 << 20
_SILENCE_SECONDS = 30
# Headers of a member: where its content begins in the file, the file's modification time, how many of its bytes replace the file's first.
_FROM, _CHANGED, _HEAD = "paceline.from", "paceline.changed_ns", "paceline.head"


def changes(directory: Path, known: Mapping[str, tuple[int, int]]) -> tuple[bytes, Known]:
    """A gzipped tar of the new content below `directory`, and the known state after it has been applied.

    A recording that is not there yet has no changes.

    Holds:   applied one after the other, the changes make a copy of every file but those of the contract's tree and of saved steps
    """
    now = dict(known)
    buffer, total = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        for name, path in _files(directory):
            if total >= _MOST_BYTES:
                break
            try:
                total += _add(archive, name, path, now)
            except OSError:
                continue  # gone since it was listed, or not readable yet: the next round looks again
    return buffer.getvalue(), now


def apply(directory: Path, piece: bytes) -> None:
    """Apply the changes to the copy. A file is complete or missing; a growing file ends at a complete piece.

    Raises:  OSError: the disk refused it; ValueError: this is no such piece
    """
    for part in _parts(piece):
        _put(directory / part.name, part)


def main(words: list[str], asked: Iterable[str], answer: IO[bytes]) -> int:
    """Answer until no more requests come."""
    for line in asked:
        known = {name: (size, changed) for name, (size, changed) in json.loads(line).items()}
        piece, _ = changes(Path(words[0]).expanduser(), known)
        answer.write(len(piece).to_bytes(8, "big") + piece)
        answer.flush()
    return 0


def known_after(piece: bytes, known: Mapping[str, tuple[int, int]]) -> Known:
    """The known state after `piece` has been applied, for the side that asks.

    Raises:  ValueError: this is no such piece
    """
    return {**known, **{part.name: (part.begin + len(part.content), part.changed_ns) for part in _parts(piece)}}


@dataclass(frozen=True, slots=True)
class _Part:
    """The new bytes of one file."""

    name: str
    """Name of the file below the run's directory."""
    begin: int
    """Offset at which `content` is written."""
    changed_ns: int
    """Modification time of the file at its host."""
    head: bytes
    """Bytes that are then written to the file's beginning."""
    content: bytes
    """Bytes that are written at `begin`."""


def _parts(piece: bytes) -> list[_Part]:
    """Everything in a piece, read before any of it is written, because the host that made it may be compromised.

    Raises:  ValueError: too large, damaged, or of other things than a recording's files
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(piece)) as packed:
            plain = packed.read(MOST_UNPACKED_BYTES + 1)
        if len(plain) > MOST_UNPACKED_BYTES:
            raise ValueError(f"a piece of more than {MOST_UNPACKED_BYTES >> 20} MiB")
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            return [_part(archive, member) for member in archive if member.isreg() and _is_of_a_recording(member.name)]
    except (OSError, EOFError, zlib.error, tarfile.TarError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"no piece of a recording: {type(error).__name__}: {error}") from error


def _part(archive: tarfile.TarFile, member: tarfile.TarInfo) -> _Part:
    begin, changed, head = (int(member.pax_headers[name]) for name in (_FROM, _CHANGED, _HEAD))
    file = archive.extractfile(member)
    content = b"" if file is None else file.read()
    if begin < 0 or not 0 <= head <= len(content):
        raise ValueError(f"no piece of a recording: {member.name} begins at {begin}, with a head of {head} bytes")
    return _Part(member.name, begin, changed, content[:head], content[head:])


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(folder for folder in folders if folder not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(parent, name)
            if not path.is_symlink() and path.is_file():
                yield path.relative_to(directory).as_posix(), path


def _add(archive: tarfile.TarFile, name: str, path: Path, now: Known) -> int:
    """Put the new bytes of the file into the archive; returns their number."""
    status = path.stat()
    size, changed = now.get(name, (0, 0))
    if (status.st_size, status.st_mtime_ns) == (size, changed) and name in now:
        return 0
    begin = size if name.endswith(_APPENDED) and status.st_size >= size else 0
    with open_plain(path) as file:
        head = file.read(HEADER_BYTES) if begin and name.endswith(_SEGMENT) else b""
        file.seek(begin)
        content = file.read(_MOST_BYTES)
    member = tarfile.TarInfo(name)
    member.size = len(head) + len(content)
    member.pax_headers = {_FROM: str(begin), _CHANGED: str(status.st_mtime_ns), _HEAD: str(len(head))}
    archive.addfile(member, io.BytesIO(head + content))
    now[name] = (begin + len(content), status.st_mtime_ns)
    return member.size


def _put(path: Path, part: _Part) -> None:
    make_folder(path.parent)
    if part.begin:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
            if part.begin > os.fstat(file.fileno()).st_size:
                raise ValueError(f"{path.name} goes on at {part.begin}, which is behind its end")
            file.seek(part.begin)
            file.write(part.content)
            file.truncate()
            # After the records, as its writer does: a header never promises more records than the file has.
            file.seek(0)
            file.write(part.head)
        return
    with atomic_write(path, mode=OTHERS_READ) as file:
        file.write(part.content)


def _is_of_a_recording(name: str) -> bool:
    """Whether another host may write this file. It may not change where a job went and what was requested."""
    parts = Path(name).parts
    inside = not name.startswith("/") and ".." not in parts and "\0" not in name
    return inside and (_AT_THE_TOP.fullmatch(name) is not None or (parts[:1] == ("hosts",) and len(parts) > 2))


def _not_for_ever(asked: IO[str]) -> Iterator[str]:
    """The lines, until they end or no request has come for a while: a broken connection may not end by itself."""
    signal.alarm(_SILENCE_SECONDS)
    for line in asked:
        signal.alarm(0)
        yield line
        signal.alarm(_SILENCE_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], _not_for_ever(sys.stdin), sys.stdout.buffer))
