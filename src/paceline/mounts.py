"""Mounts a directory over a path such as /opt/ml, visible to this process only. Standard library only."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from paceline.namespaces import NamespaceRefused, enter_with_hosts

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC = 0x1, 0x20, 0x1000, 0x4000
_MNT_DETACH = 2
_CLONE_NEWUTS = 0x04000000
_TRY_SECONDS = 20


def bind_over(source: Path, target: Path, *, keep: bool = False) -> None:
    """Bind `source` over `target`, inside the mount namespace that this process has entered. Nothing of it is visible outside.

    If `target` does not exist, a file system in memory covers its parent. It shows the parent's previous content and `target` beside it.

    `keep`: a program loses nothing that was there. The new `target` also shows what only the old one has; `source` keeps an empty file or
    directory for each. The file system that covers the parent is read-only: no program writes a file that nobody would find again.

    Raises:  NamespaceRefused: a mount was refused, or `target` has no parent to cover; the mounts are as they were before
    """
    is_new = not target.is_dir()
    if is_new:
        _make_room(target)
    before = os.open(target, os.O_PATH | os.O_DIRECTORY)
    try:
        entries = list(os.scandir(target)) if keep and os.access(target, os.R_OK) else []
        _mount(os.fsencode(source), target, None, _MS_BIND | _MS_REC)
        try:
            for entry in entries:
                if not os.path.lexists(target / entry.name):
                    _show_again(entry, Path(f"/proc/self/fd/{before}", entry.name), target / entry.name)
            if keep and is_new:
                _mount(b"none", target.parent, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        except (NamespaceRefused, OSError):
            _unmount(target)
            raise
    except (NamespaceRefused, OSError) as refused:
        if is_new:
            _unmount(target.parent)
        raise _as_refusal(refused, target) from refused
    finally:
        os.close(before)


def bind_refusal(target: Path) -> str | None:
    """Why a program in namespaces of its own cannot bind a directory over `target`; None: it can. A program really tries it."""
    package = str(Path(__file__).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {package!r}); from paceline.mounts import try_bind; try_bind(sys.argv[1])"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, str(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or f"exit {done.returncode}"


def try_bind(target: str) -> None:
    """Bind a directory over `target` in new namespaces of this process, which ends with the reason if that is refused."""
    try:
        enter_with_hosts({})
        bind_over(Path("/"), Path(target))
    except (NamespaceRefused, OSError) as refused:
        sys.exit(str(refused.args[0] if isinstance(refused, NamespaceRefused) else refused))


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
        _mount(b"tmpfs", parent, b"tmpfs", 0, b"mode=0755")
        try:
            for entry in entries:
                _show_again(entry, Path(f"/proc/self/fd/{covered}", entry.name), parent / entry.name)
            target.mkdir()
        except (NamespaceRefused, OSError):
            _unmount(parent)
            raise
    except (NamespaceRefused, OSError) as refused:
        raise _as_refusal(refused, parent) from refused
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


def _mount(source: bytes, target: Path, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, os.fsencode(target), kind, flags, data) != 0:
        number = ctypes.get_errno()
        raise NamespaceRefused(f"mount on {target}: {os.strerror(number)}", number or 1)


def _unmount(target: Path) -> None:
    ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(target), _MNT_DETACH)


def _as_refusal(refused: NamespaceRefused | OSError, target: Path) -> NamespaceRefused:
    if isinstance(refused, NamespaceRefused):
        return refused
    return NamespaceRefused(f"{target}: {refused.strerror}", refused.errno or 1)
