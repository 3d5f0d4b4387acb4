"""Fetches from a URL into a directory: in parallel, each file under its name only when it is complete.

An interrupted transfer continues: an index says which files are complete, and of which version.
"""

import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from paceline.atomic_write import write_whole
from paceline.errors import UsageError
from paceline.storage.errors import told
from paceline.storage.listing import Item, Listing
from paceline.storage.urls import file_system, shown

THREADS = 12
LOCK_SECONDS = 0.1
# Kept free on the disk in addition to the files' sizes.
SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """Where fetched files go."""

    files: Path
    """Directory of the files."""
    records: Path
    """Directory of paceline's notes about them. It is a separate directory, because a script may read every file
    in `files`."""

    @property
    def finished(self) -> Path:
        return self.records / "finished.json"

    @property
    def index(self) -> Path:
        return self.records / "index.jsonl"

    @property
    def parts(self) -> Path:
        return self.records / "parts"


@dataclass(slots=True)
class Progress:
    """Bytes and files transferred so far. `tell` is called as they grow, at most twice a second."""

    tell: Callable[["Progress"], None]
    """Called with this object."""
    total_bytes: int = 0
    """Bytes of the whole transfer."""
    total_files: int = 0
    """Files of the whole transfer."""
    done_bytes: int = 0
    """Bytes transferred so far."""
    done_files: int = 0
    """Files transferred so far."""
    skipped_files: int = 0
    """Files that were already here."""
    _told: float = 0.0
    """Monotonic time of the last call of `tell`."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the counters."""

    def add(self, count: int, files: int = 0) -> None:
        """Add this number of bytes and of complete files."""
        with self._lock:
            self.done_bytes += count
            self.done_files += files
            now = time.monotonic()
            due = now - self._told >= 0.5
            self._told = now if due else self._told
        if due:
            self.tell(self)


def install(
    found: Listing,
    place: DownloadTarget,
    url: str,
    doing: str,
    progress: Progress,
    *,
    exact: bool = True,
    threads: int = THREADS,
) -> None:
    """Fetch these files into `place.files`. With `exact` remove every other file.

    Holds:   after it returns, finished() of the same items is True; a file under its name is complete
    Raises:  UsageError E51, E52, E53 (broken off: what is complete stays), U22 (no room)
    """
    place.parts.mkdir(parents=True, exist_ok=True)
    place.files.mkdir(parents=True, exist_ok=True)
    with _alone(place, progress):
        known = read_index(place)
        missing = [item for item in found.items if not is_complete(item, place, known)]
        progress.total_files, progress.total_bytes = len(found.items), sum(item.size_bytes for item in found.items)
        progress.skipped_files = len(found.items) - len(missing)
        progress.add(progress.total_bytes - sum(item.size_bytes for item in missing), progress.skipped_files)
        if missing or not place.finished.exists():
            place.finished.unlink(missing_ok=True)
            _require_room(missing, place, url, doing)
        if exact:
            _drop_others(found.items, place)
        if missing:
            _fetch_all(found.store, missing, place, url, doing, progress, threads)
        facts = {"url": shown(url), "files": len(found.items), "bytes": progress.total_bytes}
        write_whole(place.finished, json.dumps(facts))
    progress.tell(progress)


def nobody_asks(progress: Progress) -> None:
    """For `Progress`, where nobody wants to know how far a transfer is."""


def finished(items: Sequence[Item], place: DownloadTarget) -> bool:
    """Whether all of these files are there, complete and of this version."""
    known = read_index(place)
    return place.finished.exists() and all(is_complete(item, place, known) for item in items)


def read_index(place: DownloadTarget) -> dict[str, tuple[int, str, int]]:
    """key -> size, version and local modification time (ns) of every file that was complete once; a truncated line is skipped."""
    known: dict[str, tuple[int, str, int]] = {}
    with suppress(FileNotFoundError):
        for line in place.index.read_bytes().splitlines():
            with suppress(ValueError, TypeError):
                key, size, version, mtime_ns = json.loads(line)
                known[key] = (size, version, mtime_ns)
    return known


def note(index: IO[bytes], key: str, size_bytes: int, version: str, mtime_ns: int) -> None:
    """Add a complete file; an earlier truncated line (the disk was full, the process was killed) is ended first."""
    if index.seek(0, os.SEEK_END):
        index.seek(-1, os.SEEK_END)
        if index.read(1) != b"\n":
            index.write(b"\n")
    index.write(json.dumps([key, size_bytes, version, mtime_ns]).encode() + b"\n")
    index.flush()


def is_complete(item: Item, place: DownloadTarget, known: dict[str, tuple[int, str, int]]) -> bool:
    """Whether the file is unchanged since it was fetched, and the URL has no other version of it now."""
    noted = known.get(item.key)
    if noted is None or noted[:2] != (item.size_bytes, item.version):
        return False
    try:
        status = (place.files / item.key).stat()
    except OSError:
        return False
    return status.st_size == item.size_bytes and status.st_mtime_ns == noted[2]


def fetch(url: str, target: Path, doing: str) -> None:
    """Fetch one file, which is at `target` whole or not at all.

    Raises:  UsageError E51 (not there), E52 (denied), E53 (broken off), U22 (no room)
    """
    with told(doing, url):
        store, path = file_system(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        store.get_file(path, str(part))
        part.replace(target)


@contextmanager
def _alone(place: DownloadTarget, progress: Progress) -> Iterator[None]:
    """One process at a time fills a directory: a second one finds everything there, or continues after a first one that died."""
    with (place.records / "lock").open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress.add(0)
                time.sleep(LOCK_SECONDS)
            except OSError:
                break  # a file system without locks: both fetch, and each file still appears whole
        yield


def _require_room(missing: Sequence[Item], place: DownloadTarget, url: str, doing: str) -> None:
    needed, free = sum(item.size_bytes for item in missing), shutil.disk_usage(place.records).free
    if needed + SPARE_BYTES > free and missing:
        raise UsageError(
            "U22",
            f"{doing}: {shown(url)}: no room on this host's disk",
            saw=f"{needed / 1e9:.1f} GB to fetch, {free / 1e9:.1f} GB free at {place.files}",
            next=f"df -h {place.files}",
        )


def _drop_others(items: Sequence[Item], place: DownloadTarget) -> None:
    keys = {item.key for item in items}
    for directory, folders, names in os.walk(place.files, topdown=False):
        for name in names:
            path = Path(directory, name)
            if path.relative_to(place.files).as_posix() not in keys:
                path.unlink()
        for folder in folders:
            with suppress(OSError):
                Path(directory, folder).rmdir()


def _fetch_all(
    store: Any, missing: Sequence[Item], place: DownloadTarget, url: str, doing: str, progress: Progress, threads: int
) -> None:
    noting = threading.Lock()
    pool = ThreadPoolExecutor(threads, "paceline-fetch")
    try:
        with place.index.open("a+b") as index:

            def one(item: Item) -> None:
                mtime_ns = _fetch(store, item, place, progress)
                with noting:
                    note(index, item.key, item.size_bytes, item.version, mtime_ns)

            tasks = [pool.submit(one, item) for item in missing]
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            with told(doing, url, there=f"{progress.done_files} of {progress.total_files} files are here, whole"):
                for task in done:
                    task.result()
    finally:
        # The first failure is reported at once; running transfers end with this process.
        pool.shutdown(wait=False, cancel_futures=True)


def _fetch(store: Any, item: Item, place: DownloadTarget, progress: Progress) -> int:
    from fsspec.callbacks import Callback

    name = f"{hashlib.sha256(item.key.encode()).hexdigest()[:16]}.{item.key.rpartition('/')[2][:80]}.part"
    part, target = place.parts / name, place.files / item.key
    target.parent.mkdir(parents=True, exist_ok=True)
    seen = 0

    class Count(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            nonlocal seen
            # A library that starts a file again counts its bytes again.
            inc = min(inc, item.size_bytes - seen)
            seen += inc
            progress.add(inc)

    store.get_file(item.path, str(part), callback=Count())
    status = part.stat()
    if status.st_size != item.size_bytes:
        part.unlink()
        raise ConnectionError(f"{item.key}: {status.st_size} of {item.size_bytes} bytes came")
    part.replace(target)
    progress.add(item.size_bytes - seen, 1)
    return status.st_mtime_ns
