"""Where saved steps are: a directory or a URL, with a directory of files for each step. No file is changed once it has its name."""

import errno
import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.errors import UsageError
from paceline.storage.urls import file_system, is_url, renames
from paceline.user_names import user_name

BLOCK_BYTES = 4 << 20
_LOCAL = "file://"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class StateStore(ABC):
    """A place with directories of files. Names have at most one slash. Every method raises what the file system or its library raises."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Names of the directories in it; none if the place does not exist."""

    @abstractmethod
    def files(self, folder: str) -> list[str]:
        """Names of the files in one of its directories."""

    @abstractmethod
    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file. It gets its name when it is complete and safe from a crash of the machine."""

    @abstractmethod
    def read(self, name: str) -> Iterator[bytes]:
        """The content of a file, in blocks.

        Raises:  FileNotFoundError
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or a directory; a missing one is no error."""

    def content(self, name: str, most_bytes: int = 64 << 20) -> bytes | None:
        """The content of a small file; None: it is not there, or is larger than `most_bytes`."""
        found = bytearray()
        try:
            for block in self.read(name):
                found += block
                if len(found) > most_bytes:
                    return None
        except FileNotFoundError:
            return None
        return bytes(found)


def state_store(place: str, *, own_verb: str | None = None) -> StateStore:
    """The store at a directory's path or a URL.

    `own_verb`: nothing is read but what belongs to the caller or to root, which the command of this name needs; None: whatever is there.

    Raises:  UsageError E01: nothing installed reaches the URL
    """
    if is_url(place) and not place.startswith(_LOCAL):
        return _UrlStore(place)
    return _DirectoryStore(Path(place.removeprefix(_LOCAL)), own_verb)


class _DirectoryStore(StateStore):
    """The user may have linked the place itself to where there is room. Below it no link is followed, and a file is an ordinary one."""

    def __init__(self, path: Path, own_verb: str | None = None) -> None:
        self._path = path
        self._own_verb = own_verb

    def folders(self) -> list[str]:
        return self._names("", stat.S_ISDIR)

    def files(self, folder: str) -> list[str]:
        return self._names(folder, stat.S_ISREG)

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        folder, file_name = _parts(name)
        # Whatever the umask, what is taken back is its user's alone to change.
        self._path.mkdir(0o755, parents=True, exist_ok=True)
        (self._path / folder).mkdir(0o755, parents=True, exist_ok=True)
        draft = f".{file_name}.part"
        with self._opened(folder) as directory:
            # What was left here is not opened: it may be a link.
            _unlink(draft, directory)
            try:
                with os.fdopen(os.open(draft, _NEW, 0o644, dir_fd=directory), "wb") as file:
                    for block in blocks:
                        file.write(block)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, file_name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                _unlink(draft, directory)
                raise
            _make_lasting(directory)
        with self._opened("") as directory:
            _make_lasting(directory)

    def read(self, name: str) -> Iterator[bytes]:
        folder, file_name = _parts(name)
        with self._opened(folder) as directory:
            descriptor = _not_a_link(file_name, os.O_NONBLOCK | os.O_NOCTTY, directory)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "not an ordinary file", str(self._path / name))
        with os.fdopen(descriptor, "rb") as file:
            self._require_own(found.st_uid, name)
            while block := file.read(BLOCK_BYTES):
                yield block

    def remove(self, name: str) -> None:
        folder, file_name = _parts(name)
        try:
            with self._opened(folder) as directory:
                if stat.S_ISDIR(os.lstat(file_name, dir_fd=directory).st_mode):
                    shutil.rmtree(file_name, dir_fd=directory)
                else:
                    os.unlink(file_name, dir_fd=directory)
        except FileNotFoundError:
            return

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        """Descriptor of one of the directories; of the place itself for an empty name.

        Raises:  FileNotFoundError: there is none; UsageError U25: it is another user's
        """
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._require_own(os.fstat(descriptor).st_uid, "")
            if folder:
                place, descriptor = descriptor, -1
                try:
                    descriptor = _not_a_link(folder, os.O_DIRECTORY, place)
                finally:
                    os.close(place)
                self._require_own(os.fstat(descriptor).st_uid, folder)
            yield descriptor
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _require_own(self, owner: int, name: str) -> None:
        if self._own_verb is not None and owner not in (0, os.geteuid()):
            raise UsageError(
                "U25",
                f"{self._path / name if name else self._path} belongs to another user: a saved state runs what it names",
                saw=f"owner {user_name(owner)}, asked by {user_name(os.geteuid())}",
                next=f"make a copy your own if you trust its writer (cp -r {self._path} DIRECTORY), then {self._own_verb} DIRECTORY",
            )

    def _names(self, folder: str, is_wanted: Callable[[int], bool]) -> list[str]:
        try:
            with self._opened(folder) as directory, os.scandir(directory) as found:
                return [entry.name for entry in found if is_wanted(entry.stat(follow_symlinks=False).st_mode)]
        except (FileNotFoundError, NotADirectoryError):
            return []


class _UrlStore(StateStore):
    def __init__(self, url: str) -> None:
        self._url = url
        self._system, self._path = file_system(url.rstrip("/"))

    def folders(self) -> list[str]:
        return self._names("", "directory")

    def files(self, folder: str) -> list[str]:
        return self._names(folder, "file")

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        path = self._at(name)
        if not renames(self._url):
            self._write(path, blocks)
            return
        with suppress(FileExistsError):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._write(f"{path}.part", blocks)
        self._system.mv(f"{path}.part", path)

    def _write(self, path: str, blocks: Iterable[bytes]) -> None:
        # Without a directory on this machine in between: there may be no room for one.
        file = self._system.open(path, "wb")
        try:
            for block in blocks:
                file.write(block)
        except BaseException:
            # Closing the file would store what has been written so far, as if it were complete.
            with suppress(Exception):
                file.discard()
            raise
        file.close()

    def read(self, name: str) -> Iterator[bytes]:
        with self._system.open(self._at(name), "rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._system.rm(self._at(name), recursive=True)

    def _names(self, folder: str, kind: str) -> list[str]:
        try:
            found = self._system.ls(self._at(folder), detail=True)
        except FileNotFoundError:
            return []
        return [str(one["name"]).rstrip("/").rpartition("/")[2] for one in found if one["type"] == kind]

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}".rstrip("/")


def _parts(name: str) -> tuple[str, str]:
    """Directory and file of a name.

    Raises:  FileNotFoundError: it leads out of the place
    """
    folder, _, file_name = name.rpartition("/")
    if "/" in folder or file_name in ("", ".", "..") or folder in (".", "..") or "\0" in name:
        raise FileNotFoundError(errno.ENOENT, "no name of a saved file", name)
    return folder, file_name


def _not_a_link(name: str, flags: int, directory: int) -> int:
    """Descriptor of an entry of a directory, for reading.

    Raises:  FileNotFoundError: there is none, or it is a link or of another kind
    """
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, "not an ordinary file or directory", name) from error
        raise


def _unlink(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _make_lasting(directory: int) -> None:
    """Make new names in a directory safe from a crash of the machine."""
    try:
        os.fsync(directory)
    except OSError as error:
        # Some network file systems have no such call for a directory: they do it by themselves.
        if error.errno != errno.EINVAL:
            raise
