"""Free space on the file systems that a rank writes to, as the rank sees them: its mounts may differ from the agent's."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.probes.process_status import mount_of, read_environment, read_mounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Free space of one file system."""

    what: str
    """What the path is for, such as "run" or "tmp"."""
    path: str
    """The path that was asked about."""
    kind: str
    """Type of the file system, as in mountinfo."""
    total_bytes: int
    """Its size."""
    free_bytes: int
    """Bytes that an unprivileged process may still use."""
    free_inodes: int | None
    """Inodes that are left; None: the file system does not count them."""


def read_rooms(pid: int, directory: str | None) -> tuple[Room, ...]:
    """Free space wherever a rank writes. Missing or unreadable paths are left out. It waits if a file system does not answer."""
    rooms = []
    for what, path in places(pid, read_environment(pid) or {}, directory).items():
        try:
            room = read_room(pid, what, path)
        except OSError:
            continue
        if room is not None:
            rooms.append(room)
    return tuple(rooms)


def places(pid: int, environment: Mapping[str, str], directory: str | None) -> dict[str, str]:
    """Paths that a rank writes to: "shm", "tmp", "cwd", and "run" if its recording's directory is known."""
    found = {"shm": "/dev/shm", "tmp": environment.get("TMPDIR") or "/tmp"}
    try:
        found["cwd"] = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        pass
    if directory is not None:
        found["run"] = directory
    return found


def read_room(pid: int, what: str, path: str) -> Room | None:
    """The free space at one path as process `pid` sees it; None if there is no such path. It waits if the file system does not answer.

    Raises:  OSError: it is not to be read
    """
    seen = f"/proc/{pid}/root{path}"
    try:
        found = os.statvfs(seen)
    except PermissionError:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    mount = mount_of(path, read_mounts(pid))
    return Room(
        what=what,
        path=path,
        kind=mount.kind if mount is not None else "",
        total_bytes=found.f_frsize * found.f_blocks,
        free_bytes=found.f_frsize * found.f_bavail,
        # Some file systems (btrfs) count no inodes and say 0 of 0.
        free_inodes=found.f_favail if found.f_files else None,
    )
