"""Where saved steps are: a directory or a URL, with a directory of files for each step. No file is changed once it has its name."""

import errno
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from paceline.storage.urls import below, file_system, is_url, renames

BLOCK_BYTES = 4 << 20
_LOCAL = "file://"


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

    def content(self, name: str) -> bytes | None:
        """The content of a small file; None: it is not there."""
        try:
            return b"".join(self.read(name))
        except FileNotFoundError:
            return None


def state_store(place: str) -> StateStore:
    """The store at a directory's path or a URL.

    Raises:  UsageError E50: nothing installed reaches the URL
    """
    if is_url(place) and not place.startswith(_LOCAL):
        return _UrlStore(place)
    return _DirectoryStore(Path(place.removeprefix(_LOCAL)))


class _DirectoryStore(StateStore):
    def __init__(self, path: Path) -> None:
        self._path = path

    def folders(self) -> list[str]:
        return [entry.name for entry in _entries(self._path) if entry.is_dir()]

    def files(self, folder: str) -> list[str]:
        return [entry.name for entry in _entries(self._path / folder) if entry.is_file()]

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        try:
            with draft.open("wb") as file:
                for block in blocks:
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _make_lasting(path.parent)
        _make_lasting(self._path)

    def read(self, name: str) -> Iterator[bytes]:
        with (self._path / name).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def remove(self, name: str) -> None:
        path = self._path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


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


def below_checkpoints(checkpoint_url: str, *names: str) -> str:
    """The place of saved states below the URL of a job's checkpoints."""
    return below(checkpoint_url, CHECKPOINTS_FOLDER, *names)


CHECKPOINTS_FOLDER = ".paceline"
"""What paceline keeps below the URL of a job's checkpoints. It is no checkpoint."""


def _entries(path: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _make_lasting(folder: Path) -> None:
    """Make new names in a directory safe from a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call for a directory: they do it by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
