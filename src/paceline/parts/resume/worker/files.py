"""What the script writes, so that a script that runs again from the top loses none of it.

At each kept state the size of every file is noted that the script has opened for writing. In a new process these files are cut to that
size, because the steps after it are made again. Until the state is put back the script only repeats its beginning: its writes to these
files are discarded, because the files already contain them; a directory that it makes may exist; a file or directory of the script that it
removes or renames stays. In a step that is made again a file may be removed already, and a directory made already.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
import stat
import sys
import weakref
from typing import Any

from ....worker.no_compile import passed_over_by_warnings
from .descriptors import OpenFiles
from .object_graph import CannotKeep, CannotPutBack

# The folder of the package.
_OURS = os.path.dirname(__file__).removesuffix(os.path.join("parts", "resume", "worker"))
_MOST_FILES = 256
_NOT_THE_SCRIPTS = ("/dev/", "/proc/", "/sys/")


class Files:
    """The files of this process."""

    def __init__(self, session: Any) -> None:
        self._session = session
        # Path -> the file objects that write to it; in the order in which they were opened.
        self._written: dict[str, list[weakref.ref[Any]]] = {}
        self._directories: list[str] = []
        self._open_files = OpenFiles()
        # Of a saved state: number -> path of the files that were open.
        self.open_before: dict[int, str] = {}
        # The ones of them that this process has made.
        self._made: set[str] = set()
        self._removed: str | None = None
        # Of a saved state, until it is put back: path -> size, directories that the script had made.
        self._sizes: dict[str, int] = {}
        self._made_before: frozenset[str] = frozenset()
        self._repeating = False
        # Files of the repeated beginning: the object, its path.
        self._to_join: list[tuple[weakref.ref[Any], str]] = []

    # ------------------------------------------------------------------------------------------------- saved state

    def kept(self) -> tuple[list[tuple[str, int]], list[str], list[tuple[int, str]]]:
        """Path and size of each file, the directories that the script has made, and number and path of what is open.

        Raises:  CannotKeep: a file or directory would be lost in a new process
        """
        if self._removed is not None:
            raise CannotKeep(f"the script removes `{self._removed}`, and would remove it again after a restart")
        sizes = []
        # Threads of the script open files too.
        for path, writers in list(self._written.items()):
            for writer in list(writers):
                file = writer()
                if file is not None and not file.closed:
                    _flush(file, path)
            try:
                sizes.append((path, os.stat(path).st_size))
            except OSError:
                continue
        return sizes, self._directories, list(self._open_files.names().items())

    def expect(self, kept: tuple[Any, ...]) -> None:
        """Cut the files of a saved state to their sizes. The script is about to repeat its beginning.

        `kept`: as above; what an older paceline has saved lacks what was open.
        """
        self._repeating = True
        self.open_before = dict(kept[2]) if len(kept) > 2 else {}
        self._sizes = dict(kept[0])
        self._made_before = frozenset(kept[1])
        self._directories = list(kept[1])
        for path, size in self._sizes.items():
            self._written[path] = []
            if os.path.exists(path) and os.stat(path).st_size > size:
                os.truncate(path, size)

    def put_back(self) -> None:
        """The beginning is over: files that it has opened are written to again, from where they were."""
        self._repeating = False
        for reference, path in self._to_join:
            file = reference()
            if file is None or file.closed:
                continue
            file.flush()
            descriptor = os.open(path, _flags(file.mode), 0o666)
            os.dup2(descriptor, file.fileno(), inheritable=False)
            os.close(descriptor)
            file.seek(0, os.SEEK_END)
        self._to_join.clear()

    # ------------------------------------------------------------------------------------------------------- calls

    def patch(self) -> None:
        """Replace the functions that open, make and remove."""
        opens: Any = builtins.open
        files = self

        @functools.wraps(opens)
        def open(*args: Any, **kwargs: Any) -> Any:
            file, mode = _argument(args, kwargs, 0, "file"), _argument(args, kwargs, 1, "mode")
            if not isinstance(mode, str) or not _WRITING.intersection(mode):
                return opens(*args, **kwargs)
            if not files._is_the_scripts(file, sys._getframe(1).f_code.co_filename):
                return opens(*args, **kwargs)
            path = os.path.abspath(os.fsdecode(file))
            if (
                files._repeating
                and path in files._sizes
                and "r" not in mode
                and "opener" not in kwargs
                and len(args) < 8
            ):
                nowhere = _access(mode) | os.O_CLOEXEC
                made = opens(*args, **kwargs, opener=lambda *_: os.open(os.devnull, nowhere))
                files._to_join.append((weakref.ref(made), path))
                files._note(path, made)
                return made
            if "x" in mode and files._session.makes_steps_again():
                rest = {name: value for name, value in kwargs.items() if name not in ("file", "mode")}
                made = opens(file, mode.replace("x", "w"), *args[2:], **rest)
            else:
                made = opens(*args, **kwargs)
            # Of a pipe or a device nothing can be cut, and a flush would wait for its reader.
            if stat.S_ISREG(os.fstat(made.fileno()).st_mode):
                files._note(path, made)
            return made

        # Where pickle finds it.
        open.__module__ = io.__name__
        builtins.open = io.open = passed_over_by_warnings(open)
        for module, name, decide in (
            (os, "mkdir", self._makes),
            (os, "remove", self._removes),
            (os, "unlink", self._removes),
            (os, "rmdir", self._removes_directory),
            (shutil, "rmtree", self._removes_tree),
        ):
            self._replace(module, name, decide)
        for name in ("rename", "replace"):
            self._replace_renaming(name)

    def _replace(self, module: Any, name: str, decide: Any) -> None:
        own = getattr(module, name)
        session = self._session

        @functools.wraps(own)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            path = _argument(args, kwargs, 0, "path")
            if isinstance(path, str | os.PathLike) and session.follows() and "dir_fd" not in kwargs:
                absolute = os.path.abspath(os.fsdecode(path))
                if decide(absolute):
                    return None
            return own(*args, **kwargs)

        _put(module, name, own, replaced)

    def _replace_renaming(self, name: str) -> None:
        own = getattr(os, name)

        @functools.wraps(own)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            paths = [_argument(args, kwargs, 0, "src"), _argument(args, kwargs, 1, "dst")]
            named = all(isinstance(path, str | os.PathLike) for path in paths) and len(args) + len(kwargs) == 2
            if not named or not self._session.follows():
                return own(*args, **kwargs)
            source, target = (os.path.abspath(os.fsdecode(path)) for path in paths)
            if not self._is_renamed(source, target):
                own(*args, **kwargs)
                if source in self._written:
                    self._written[target] = self._written.pop(source)
            return None

        _put(os, name, own, replaced)

    def _is_renamed(self, source: str, target: str) -> bool:
        """Whether the script only repeats a renaming."""
        if self._repeating and self._is_kept(source):
            return True
        if self._repeating and target in self._sizes:
            os.remove(source)
            return True
        return False

    def _makes(self, path: str) -> bool:
        if os.path.isdir(path) and (
            self._session.makes_steps_again() or (self._repeating and path in self._made_before)
        ):
            return True
        if not os.path.exists(path) and not path.startswith(_NOT_THE_SCRIPTS) and len(self._directories) < _MOST_FILES:
            self._directories.append(path)
            self._made.add(path)
        return False

    def _removes(self, path: str) -> bool:
        if (self._repeating and path in self._sizes) or self._is_removed_already(path):
            return True
        self._written.pop(path, None)
        return False

    def _removes_directory(self, path: str) -> bool:
        return (self._repeating and self._is_kept(path)) or self._is_removed_already(path)

    def _is_removed_already(self, path: str) -> bool:
        return self._session.makes_steps_again() and not os.path.lexists(path)

    def _is_kept(self, path: str) -> bool:
        """Whether the kept state knows this file, or this directory, or something in it."""
        inside = path + os.sep
        known = (*self._sizes, *self._made_before)
        return any(one == path or one.startswith(inside) for one in known)

    def _removes_tree(self, path: str) -> bool:
        if (self._repeating and self._is_kept(path)) or self._is_removed_already(path):
            return True
        is_of_before = os.path.isdir(path) and path not in self._made and not path.startswith(_temporary())
        if is_of_before and self._repeating:
            # Steps have been made since: what is in there may be theirs.
            self._session.cannot_put_back(
                CannotPutBack(f"the script removes `{path}`, which it did not remove when the job began")
            )
        if is_of_before and not self._session.is_training():
            self._removed = path
        inside = path + os.sep
        for written in [one for one in self._written if one.startswith(inside)]:
            del self._written[written]
        return False

    def _note(self, path: str, file: Any) -> None:
        writers = self._written.setdefault(path, [])
        writers[:] = [one for one in writers if (found := one()) is not None and not found.closed]
        writers.append(weakref.ref(file))
        if len(self._written) > _MOST_FILES:
            del self._written[next(iter(self._written))]

    def _is_the_scripts(self, file: Any, caller: str) -> bool:
        if not isinstance(file, str | os.PathLike) or caller.startswith(_OURS) or not self._session.is_of_rank():
            return False
        return not os.path.abspath(os.fsdecode(file)).startswith(_NOT_THE_SCRIPTS)


_WRITING = frozenset("wax+")


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    """An argument that a caller may give by its place or by its name; None: it was not given."""
    return args[place] if len(args) > place else kwargs.get(name)


def _put(module: Any, name: str, own: Any, replaced: Any) -> None:
    """Put a replacement where scripts and pickle find it, and into the sets in which `os` says what a function can."""
    replaced.__module__ = module.__name__
    setattr(module, name, passed_over_by_warnings(replaced))
    for can in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if own in can:
            can.add(replaced)


def _flush(file: Any, path: str) -> None:
    """Write out what a file object holds.

    Raises:  CannotKeep: another process writes to the file too
    """
    file.flush()
    descriptor = file.fileno()
    if "a" in file.mode and os.lseek(descriptor, 0, os.SEEK_CUR) < os.fstat(descriptor).st_size and file.tell():
        raise CannotKeep(f"another process writes to {path} too")


def _flags(mode: str) -> int:
    return _access(mode) | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if "a" in mode else 0)


def _access(mode: str) -> int:
    return os.O_RDWR if "+" in mode else os.O_WRONLY


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir() + os.sep
