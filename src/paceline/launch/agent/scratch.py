"""An agent's directories outside the recording, for rings in shared memory, for sockets on a short path, and for error files."""

import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A UNIX socket's path has at most 107 bytes (unix(7)). The rank appends "/<pid>.sock".
_LONGEST_SOCKET_DIRECTORY = 80


@dataclass(frozen=True, slots=True)
class Scratch:
    """An agent's temporary directories, which are local and private (mode 0700)."""

    rings: Path
    """The directory of the ranks' rings, in shared memory if the machine has it."""
    sockets: Path
    """The directory of the sockets of the ranks and the agent. Its path is short."""
    errors: Path
    """The directory below which a rank writes the exception that ended it."""
    shared: Path
    """The directory that this user's agents on this machine share, which is not removed. If none can be made, a private one."""
    roots: tuple[Path, ...]
    """The directories that the guardian removes, with all their contents, when the agent has ended."""

    @property
    def control_socket(self) -> Path:
        return self.sockets / "control.sock"

    def errors_of(self, attempt: int) -> Path:
        """The directory of the exceptions of one attempt: the next one may begin before they are read."""
        return self.errors / str(attempt)


def make_scratch(mark: str, environ: Mapping[str, str], shared_memory: Path = Path("/dev/shm")) -> Scratch:
    """Make the directories. Rings are in shared memory if the machine has it, so that a rank never waits for a disk.

    Raises:  OSError: no temporary directory is writable
    """
    root = _private_root(environ, mark)
    roots = [root]
    rings = root / "rings"
    if os.access(shared_memory, os.W_OK):
        rings = shared_memory / f"paceline-{os.getuid()}-{mark[:12]}"
        roots.append(rings)
    sockets, errors = root / "s", root / "errors"
    try:
        for directory in (rings, sockets, errors):
            directory.mkdir(mode=0o700)
    except OSError:
        # No guardian that would remove the directories runs yet.
        for made in roots:
            shutil.rmtree(made, ignore_errors=True)
        raise
    return Scratch(rings, sockets, errors, _shared_directory(root), tuple(roots))


def still_there(scratch: Scratch) -> Scratch:
    """The directories for the next attempt: what has vanished is made again. A logout removes /run/user/UID, cleaners remove the rest.

    Where a directory cannot be made again, or something else has its name, all of them are made anew.

    Raises:  OSError: no temporary directory is writable
    """
    try:
        for directory in (*scratch.roots, scratch.rings, scratch.sockets, scratch.errors):
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            if not _is_own(directory):
                raise PermissionError(f"{directory} is not this agent's")
    except OSError:
        return make_scratch(uuid.uuid4().hex, {})
    return scratch


def _is_own(directory: Path) -> bool:
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _shared_directory(root: Path) -> Path:
    """The directory that agents of several hosts on one machine share. It belongs to the user and is not removed.

    Every user can write to /tmp and can guess the name. If something else has this name, the agents share no directory.
    """
    shared = Path(_short_temporary_directory()) / f"paceline-{os.getuid()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700)
    try:
        return shared if _is_own(shared) else root
    except OSError:
        return root


def _private_root(environ: Mapping[str, str], mark: str) -> Path:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(runtime) < _LONGEST_SOCKET_DIRECTORY - 30 and os.access(runtime, os.W_OK):
        root = Path(runtime) / f"paceline-{mark[:12]}"
        root.mkdir(mode=0o700)
        return root
    return Path(tempfile.mkdtemp(prefix="paceline-", dir=_short_temporary_directory()))


def _short_temporary_directory() -> str:
    chosen = tempfile.gettempdir()
    return chosen if len(chosen) < _LONGEST_SOCKET_DIRECTORY - 30 else "/tmp"
