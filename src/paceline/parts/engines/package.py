"""Packs a job's code for shipping: the directory, without files that no host needs, as one archive that depends on the files only."""

import fnmatch
import gzip
import hashlib
import io
import os
import shlex
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.parts.engines.base import Sent, nobody_asks
from paceline.parts.engines.submission import Package
from paceline.probes.git_state import git_state

IGNORE_FILE = ".pacelineignore"
ALWAYS_IGNORED = (
    ".git", ".hg", ".svn", ".paceline", "__pycache__", "*.pyc", ".venv", "venv", ".pytest_cache", ".mypy_cache", ".ruff_cache",
    ".ipynb_checkpoints", "node_modules", ".DS_Store",
)  # fmt: skip
# A larger directory has data, not only code. It would be sent to every host before the first rank starts.
MOST_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a package."""

    name: str
    """Path of the file below the packed directory."""
    path: Path
    """Path of the file on this machine."""
    size_bytes: int
    """Size of the file."""


def package(directory: Path, archive: Path, ignore: Sequence[str] = (), *, packed: Sent = nobody_asks) -> Package:
    """Pack `directory` into `archive`, without files that match `ignore`, .pacelineignore or the default patterns.

    Patterns are shell patterns. They are matched against a name and against the path below `directory`. A pattern with a `/` at its end
    matches directories only. A link to a target inside `directory` is followed. A link to a target outside is refused.

    Holds:   the same files give the same digest, whatever their dates and owners are
    Raises:  UsageError E02: the code is too large, or a file cannot be read
    """
    patterns = (*ALWAYS_IGNORED, *_patterns_of(directory / IGNORE_FILE), *ignore)
    files = list(_files(directory.resolve(), patterns))
    size = sum(file.size_bytes for file in files)
    if size > MOST_BYTES:
        raise _too_large(directory, files, size)
    archive.parent.mkdir(parents=True, exist_ok=True)
    digest = _write(files, archive, lambda done: packed(done, size))
    commit, dirty = git_state(directory)
    return Package(
        directory=str(directory.resolve()),
        archive=str(archive),
        digest=digest,
        file_count=len(files),
        size_bytes=size,
        archive_bytes=archive.stat().st_size,
        commit=commit,
        dirty=dirty,
    )


def unpack(archive: Path, target: Path) -> None:
    """Unpack the code to `target`, which appears when it is complete. An existing `target` stays as it is.

    Raises:  OSError: the disk refused the write
    """
    if target.exists():
        return
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    draft.mkdir(mode=0o700, parents=True)
    with tarfile.open(archive, "r:gz") as content:
        # Python 3.11.0 to 3.11.3 have no filters. The archive is our own, so no filter is needed.
        content.extractall(draft, filter="data") if hasattr(tarfile, "data_filter") else content.extractall(draft)
    draft.rename(target)


def _patterns_of(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _files(root: Path, patterns: Sequence[str]) -> Iterator[_File]:
    def refuse(error: OSError) -> None:
        raise _unreadable(root, Path(str(error.filename)), str(error.strerror)) from error

    for parent, folders, names in os.walk(root, onerror=refuse):
        below = Path(parent).relative_to(root)
        folders[:] = sorted(name for name in folders if not _ignored(below / name, patterns, is_directory=True))
        for name in sorted(names):
            if not _ignored(below / name, patterns, is_directory=False):
                yield _file(root, below / name)


def _file(root: Path, name: Path) -> _File:
    path = root / name
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(root):
            raise _unreadable(root, path, f"a link to {resolved}, outside of the directory that is shipped")
        if not os.access(resolved, os.R_OK):
            raise _unreadable(root, path, "permission denied")
        return _File(name.as_posix(), resolved, resolved.stat().st_size)
    except OSError as error:
        raise _unreadable(root, path, str(error.strerror)) from error


def _ignored(name: Path, patterns: Sequence[str], *, is_directory: bool) -> bool:
    for pattern in patterns:
        bare = pattern.rstrip("/")
        if pattern.endswith("/") and not is_directory:
            continue
        if fnmatch.fnmatch(name.name, bare) or fnmatch.fnmatch(name.as_posix(), bare.lstrip("/")):
            return True
    return False


def _write(files: Sequence[_File], archive: Path, packed: Callable[[int], None]) -> str:
    """Write the archive. Returns the SHA-256 of its content. `packed` is called with the bytes so far."""
    digest, done = hashlib.sha256(), 0
    draft = archive.with_name(f"{archive.name}.part")
    draft.touch(mode=0o600)
    with (
        draft.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in files:
            content = file.path.read_bytes()
            member = tarfile.TarInfo(file.name)
            member.size, member.mode = len(content), 0o755 if os.access(file.path, os.X_OK) else 0o644
            tar.addfile(member, io.BytesIO(content))
            digest.update(f"{file.name}\0{member.mode}\0{len(content)}\0".encode(errors="surrogateescape") + content)
            done += len(content)
            packed(done)
    draft.replace(archive)
    return digest.hexdigest()


def _too_large(directory: Path, files: Sequence[_File], size: int) -> UsageError:
    largest = sorted(files, key=lambda file: file.size_bytes, reverse=True)[:3]
    return UsageError(
        "E02",
        f"{directory} is too large to be shipped as code: {size >> 20} MiB in {len(files)} files",
        saw=", ".join(f"{file.name} {file.size_bytes >> 20} MiB" for file in largest)
        + f"; at most {MOST_BYTES >> 20} MiB",
        next=f"echo '{largest[0].name.partition('/')[0]}' >> {directory / IGNORE_FILE}",
    )


def _unreadable(root: Path, path: Path, why: str) -> UsageError:
    ignored = f"echo {shlex.quote(path.name)} >> {shlex.quote(str(root / IGNORE_FILE))}"
    return UsageError("E02", f"{path} cannot be shipped", saw=why, next=ignored)
