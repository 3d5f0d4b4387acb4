"""Directories of one agent outside the recording: rings in shared memory, sockets on a short path, error files."""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A UNIX socket's path holds at most 107 bytes (unix(7)); the rank appends "/<pid>.sock".
_LONGEST_SOCKET_DIRECTORY = 80


@dataclass(frozen=True, slots=True)
class Scratch:
    """Local and private (mode 0700)."""

    rings: Path
    """Where ranks put their rings, in shared memory where there is one."""
    sockets: Path
    """Where ranks and the agent put their sockets; the path is short."""
    errors: Path
    """Where a rank leaves the exception that ended it."""
    shared: Path
    """Where this user's agents on this machine meet; it stays. It is private to this agent where no such directory can be had."""
    roots: tuple[Path, ...]
    """The directories that the guardian removes, with all that is below them, when the agent has gone."""

    @property
    def control_socket(self) -> Path:
        return self.sockets / "control.sock"


def make_scratch(mark: str, environ: Mapping[str, str], shared_memory: Path = Path("/dev/shm")) -> Scratch:
    """Rings go to shared memory where there is one, so that a rank never waits for a disk.

    Raises:  OSError: no temporary directory can be written
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
        # No guardian runs yet that would remove them.
        for made in roots:
            shutil.rmtree(made, ignore_errors=True)
        raise
    return Scratch(rings, sockets, errors, _shared_directory(root), tuple(roots))


def _shared_directory(root: Path) -> Path:
    """Where agents of several hosts on one machine meet. It belongs to the user and is left in place.

    Its name is known to everybody, and /tmp is everybody's: whatever else has that name, nothing is shared then.
    """
    shared = Path(_short_temporary_directory()) / f"paceline-{os.getuid()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700)
    try:
        found = shared.lstat()
    except OSError:
        return root
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    return shared if is_own else root


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
