"""Brings a recording from the host that writes it to another machine, a piece at a time: `python -m paceline.recording.mirror DIR`.

As a program it answers each line on stdin (what is known already, JSON) with 8 bytes of length, big-endian, and a gzipped tar, until stdin
ends. Standard library only, so that it starts quickly wherever paceline is installed.
"""

import io
import json
import os
import signal
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from paceline.recording.ring import HEADER_BYTES

Known = dict[str, tuple[int, int]]
"""Path below the recording -> (size in bytes, modification time in ns) of what has been brought."""

# Written at their end alone, a segment's header excepted; every other file is brought whole when it has changed.
_SEGMENT = ".seg"
_APPENDED = (".jsonl", ".log", ".out", ".err", ".idx", _SEGMENT)
# The contract's tree holds the user's data and models, links to them included; they go their own way.
_LEFT_OUT = ("ml",)
# A round brings no more than that, so that one huge log does not keep the events back.
_MOST_BYTES = 32 << 20
_SILENCE_SECONDS = 30
# Headers of a member: where its content begins in the file, the file's modification time, how many of its bytes replace the file's first.
_FROM, _CHANGED, _HEAD = "paceline.from", "paceline.changed_ns", "paceline.head"


def changes(directory: Path, known: Mapping[str, tuple[int, int]]) -> tuple[bytes, Known]:
    """A gzipped tar of what is new below `directory`, and what is known once it has been applied.

    A recording that is not there yet has no changes.

    Holds:   applied one after the other, the changes make a copy of every file but those of the contract's tree
    """
    now = dict(known)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        for name, path in _files(directory):
            if buffer.tell() >= _MOST_BYTES:
                break
            try:
                _add(archive, name, path, now)
            except OSError:
                continue  # gone since it was listed, or not readable yet: the next round looks again
    return buffer.getvalue(), now


def apply(directory: Path, piece: bytes) -> None:
    """Put the changes into the copy; a file is whole or not there, one that grows ends at a whole piece.

    Raises:  OSError: the disk refused it; tarfile.TarError: this is no such piece
    """
    with tarfile.open(fileobj=io.BytesIO(piece), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and _is_inside(member.name):
                _put(directory / member.name, content, *(int(member.pax_headers[name]) for name in (_FROM, _HEAD)))


def main(words: list[str], asked: Iterable[str], answer: IO[bytes]) -> int:
    """Answer until nobody asks any more."""
    for line in asked:
        known = {name: (size, changed) for name, (size, changed) in json.loads(line).items()}
        piece, _ = changes(Path(words[0]).expanduser(), known)
        answer.write(len(piece).to_bytes(8, "big") + piece)
        answer.flush()
    return 0


def known_after(piece: bytes, known: Mapping[str, tuple[int, int]]) -> Known:
    """What is known once `piece` has been applied, for the side that asks."""
    now = dict(known)
    with tarfile.open(fileobj=io.BytesIO(piece), mode="r:gz") as archive:
        for member in archive:
            begin, changed, head = (int(member.pax_headers[name]) for name in (_FROM, _CHANGED, _HEAD))
            now[member.name] = (begin + member.size - head, changed)
    return now


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(folder for folder in folders if folder not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(parent, name)
            if not path.is_symlink() and path.is_file():
                yield path.relative_to(directory).as_posix(), path


def _add(archive: tarfile.TarFile, name: str, path: Path, now: Known) -> None:
    status = path.stat()
    size, changed = now.get(name, (0, 0))
    if (status.st_size, status.st_mtime_ns) == (size, changed) and name in now:
        return
    begin = size if name.endswith(_APPENDED) and status.st_size >= size else 0
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES) if begin and name.endswith(_SEGMENT) else b""
        file.seek(begin)
        content = file.read(min(status.st_size - begin, _MOST_BYTES) if name.endswith(_APPENDED) else -1)
    member = tarfile.TarInfo(name)
    member.size = len(head) + len(content)
    member.pax_headers = {_FROM: str(begin), _CHANGED: str(status.st_mtime_ns), _HEAD: str(len(head))}
    archive.addfile(member, io.BytesIO(head + content))
    now[name] = (begin + len(content), status.st_mtime_ns)


def _put(path: Path, content: IO[bytes], begin: int, head: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if begin:
        with path.open("r+b") as file:
            first = content.read(head)
            file.seek(begin)
            file.write(content.read())
            file.truncate()
            # After the records, as its writer does: a header never promises more than the file holds.
            file.seek(0)
            file.write(first)
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.write_bytes(content.read())
    draft.replace(path)


def _is_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in Path(name).parts


def _not_for_ever(asked: IO[str]) -> Iterator[str]:
    """The lines, until they end or nobody has asked for a while: a connection that is cut need not end."""
    signal.alarm(_SILENCE_SECONDS)
    for line in asked:
        signal.alarm(0)
        yield line
        signal.alarm(_SILENCE_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], _not_for_ever(sys.stdin), sys.stdout.buffer))
