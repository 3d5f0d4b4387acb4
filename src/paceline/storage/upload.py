"""A directory as one gzipped tar behind a URL: model.tar.gz and output.tar.gz, with the files of several hosts in one."""

import hashlib
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paceline.storage.download import Progress
from paceline.storage.errors import told
from paceline.storage.files import file_names
from paceline.storage.urls import file_system, renames

BLOCK_BYTES = 4 << 20
# Weights hardly shrink; a higher level would only take longer.
GZIP_LEVEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostArchive:
    """The files of one further host."""

    host: str
    """Name of the host."""
    archive: Path
    """Archive of its files, on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An archive that was made."""

    file_count: int
    """Files in it."""
    size_bytes: int
    """Their total size, uncompressed."""
    clashes: dict[str, list[str]]
    """Name -> hosts whose content differs from the first host's. Their files are in the archive below <host>/."""


def pack(directory: Path, archive: Path, parts: Sequence[HostArchive] = ()) -> Packed:
    """Write the files below `directory`, then those of other hosts, into one archive.

    Holds:   every name of every host is in the archive with that host's content; if other content has the name, below <host>/
    """
    digests: dict[str, str] = {}
    clashes: dict[str, list[str]] = {}
    total = 0
    with tarfile.open(archive, "w:gz", compresslevel=GZIP_LEVEL) as tar:
        for name in file_names(directory):
            path = directory / name
            # Read only where another host may have the same name.
            digests[name] = _digest_of(path) if parts else ""
            _add_file(tar, name, path)
            total += path.stat().st_size
        for part in parts:
            total += _add_part(tar, part, digests, clashes)
    return Packed(file_count=len(digests), size_bytes=total, clashes=clashes)


def pack_files(files: Mapping[str, Path], archive: Path) -> None:
    """Write files that lie in several directories into one archive: name in the archive -> file; of a link, what it leads to."""
    with tarfile.open(archive, "w:gz", compresslevel=GZIP_LEVEL) as tar:
        for name, path in files.items():
            _add_file(tar, name, path)


def _add_file(tar: tarfile.TarFile, name: str, path: Path) -> None:
    tar.add(path.resolve(), arcname=name, recursive=False, filter=_plain)


def _add_part(tar: tarfile.TarFile, part: HostArchive, digests: dict[str, str], clashes: dict[str, list[str]]) -> int:
    total = 0
    with tarfile.open(part.archive, "r:gz") as other, tempfile.TemporaryFile(dir=part.archive.parent) as spool:
        for member in other:
            content = other.extractfile(member)
            if not member.isfile() or content is None:
                continue
            spool.seek(0)
            spool.truncate()
            digest = hashlib.sha256()
            while block := content.read(BLOCK_BYTES):
                digest.update(block)
                spool.write(block)
            found = digest.hexdigest()
            if digests.get(member.name) == found:
                continue
            if member.name in digests:
                clashes.setdefault(member.name, []).append(part.host)
            while member.name in digests:
                member.name = f"{part.host}/{member.name}"
            digests[member.name] = found
            spool.seek(0)
            tar.addfile(member, spool)
            total += member.size
    return total


def send(local: Path, url: str, doing: str, progress: Progress) -> None:
    """Upload one file to a URL. It appears there complete or not at all.

    Raises:  UsageError E51 (no such bucket), E52 (denied), E53 (broken off)
    """
    from fsspec.callbacks import Callback

    class Count(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            progress.add(inc)

    progress.total_files, progress.total_bytes = 1, local.stat().st_size
    kept = f"the file is kept here: {local}"
    with told(doing, url, there=kept, again=f"check the network, then copy {local} there"):
        store, path = file_system(url)
        if renames(url):
            with suppress(FileExistsError):
                store.makedirs(path.rpartition("/")[0], exist_ok=True)
            store.put_file(str(local), f"{path}.part", callback=Count())
            store.mv(f"{path}.part", path)
        else:
            # An object store stores an object completely or not at all.
            store.put_file(str(local), path, callback=Count())
        if (there := store.info(path)["size"]) not in (None, progress.total_bytes):
            raise ConnectionError(f"{there} of {progress.total_bytes} bytes arrived")
    progress.done_files, progress.done_bytes = 1, progress.total_bytes
    progress.tell(progress)


def remove(url: str) -> None:
    """Delete the file at a URL; a missing file is no error."""
    store, path = file_system(url)
    with suppress(FileNotFoundError):
        store.rm(path)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    # A user who downloads the model should not see who trained it.
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
