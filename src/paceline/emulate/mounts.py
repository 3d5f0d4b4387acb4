"""Mounts a directory over a path such as /opt/ml, visible to this process only. Standard library only."""

import ctypes
import os
from pathlib import Path

from paceline.emulate.namespace import NamespaceRefused

_MS_BIND, _MS_REC = 0x1000, 0x4000
_CLONE_NEWUTS = 0x04000000


def bind_over(source: Path, target: Path) -> None:
    """Bind `source` over `target`, inside the mount namespace that this process has entered. Nothing of it is visible outside.

    If `target` does not exist, a file system in memory covers its parent. It shows the parent's previous content and `target` beside it.

    Raises:  NamespaceRefused: a mount was refused, or `target` has no parent to cover
    """
    if not target.is_dir():
        _make_room(target)
    _mount(os.fsencode(source), target, None, _MS_BIND | _MS_REC)


def rename_host(name: str) -> bool:
    """Give this process its own host name; False if that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUTS) != 0:
        return False
    text = os.fsencode(name)
    return bool(libc.sethostname(text, len(text)) == 0)


def _make_room(target: Path) -> None:
    parent = target.parent
    try:
        covered = os.open(parent, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise NamespaceRefused(f"{parent}: {error.strerror}", error.errno or 1) from error
    try:
        entries = list(os.scandir(parent))
        _mount(b"tmpfs", parent, b"tmpfs", 0)
        for entry in entries:
            _show_again(entry, Path(f"/proc/self/fd/{covered}", entry.name), parent / entry.name)
        target.mkdir()
    finally:
        os.close(covered)


def _show_again(entry: os.DirEntry[str], old: Path, new: Path) -> None:
    if entry.is_symlink():
        new.symlink_to(os.readlink(old))
        return
    if entry.is_dir():
        new.mkdir()
    else:
        new.touch()
    _mount(os.fsencode(old), new, None, _MS_BIND | _MS_REC)


def _mount(source: bytes, target: Path, kind: bytes | None, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, os.fsencode(target), kind, flags, None) != 0:
        number = ctypes.get_errno()
        raise NamespaceRefused(f"mount on {target}: {os.strerror(number)}", number or 1)
