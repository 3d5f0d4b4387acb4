"""Keeps a directory of checkpoints and a URL prefix in sync: existing files are fetched once, then new files are sent at each look.

A file is sent if it is the same in two looks, so it is never half written. If several hosts share the prefix, a name belongs to
the host that claimed it first. Other content of another host under the same name is reported and stays on that host.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from paceline.storage.download import DownloadTarget, Progress, install, note, read_index
from paceline.storage.errors import told
from paceline.storage.listing import Item, Listing, listing_or_nothing
from paceline.storage.ownership import ClaimResult
from paceline.storage.upload import remove
from paceline.storage.urls import CHECKPOINTS_FOLDER, as_prefix, below, file_system, renames

THREADS = 6
Seen = tuple[int, int]
"""Size and modification time (ns) of a file at a look."""


def nobody_else(digests: Mapping[str, str]) -> ClaimResult:
    """The answer if this host is the only one."""
    return ClaimResult()


@dataclass(slots=True)
class CheckpointSync:
    """Keeps the local checkpoints directory and a URL prefix in sync."""

    place: DownloadTarget
    """The local directory and its index."""
    url: str
    """The prefix in the store."""
    delete: bool = False
    """If a file that was sent or fetched is deleted here, delete it in the store as well."""
    shared: bool = False
    """Other hosts send to the same prefix, so a name has to be claimed first."""
    claim: Callable[[Mapping[str, str]], ClaimResult] = nobody_else
    """Asked before anything is sent, with the SHA-256 of each file."""
    _alike: dict[str, Seen] = field(default_factory=dict)
    """Name -> size and time at which the file was the same here and in the store."""
    _before: dict[str, Seen] = field(default_factory=dict)
    """Name -> size and time at the previous look."""
    _digests: dict[str, tuple[Seen, str]] = field(default_factory=dict)
    """Name -> size and time, and the SHA-256 at that time."""

    @property
    def prefix(self) -> str:
        return as_prefix(self.url)

    def restore(self, progress: Progress) -> None:
        """Fetch the files below the prefix. A local file that changed since it was last in sync is kept and sent later.

        Raises:  UsageError E51 (no such bucket), E52, E53, U22
        """
        doing = "checkpoints could not be fetched"
        found = listing_or_nothing(self.prefix, doing)
        known = read_index(self.place)
        wanted = tuple(
            item
            for item in found.items
            if not item.key.startswith(f"{CHECKPOINTS_FOLDER}/") and not _is_newer_here(item, self.place, known)
        )
        install(Listing(found.store, wanted), self.place, self.prefix, doing, progress, exact=False)
        for item in wanted:
            self._alike[item.key] = _seen(self.place.files / item.key)

    def look(self, progress: Progress, *, final: bool = False) -> int:
        """Send files that are new or changed and the same in two looks; `final`: the ranks have ended, so send all of them.

        Returns how many files were sent.

        Raises:  UsageError E51, E52, E53 (what was sent before stays sent; the rest is tried at the next look)
        """
        now = scan(self.place.files)
        changed = {name: seen for name, seen in now.items() if self._alike.get(name) != seen}
        due = {name: seen for name, seen in changed.items() if final or self._before.get(name) == seen}
        self._before = now
        if self.shared and due:
            due = self._claimed(due)
        if due:
            self._send(due, progress)
        if self.place.files.is_dir():
            self._take_away(now)
        return len(due)

    def _claimed(self, due: Mapping[str, Seen]) -> dict[str, Seen]:
        answer = self.claim({name: self._digest(name, seen) for name, seen in due.items()})
        for name in answer.same:
            self._alike[name] = due[name]
        return {name: seen for name, seen in due.items() if name not in answer.same and name not in answer.taken}

    def _digest(self, name: str, seen: Seen) -> str:
        known = self._digests.get(name)
        if known is None or known[0] != seen:
            with (self.place.files / name).open("rb") as file:
                known = self._digests[name] = (seen, hashlib.file_digest(file, "sha256").hexdigest())
        return known[1]

    def _send(self, due: Mapping[str, Seen], progress: Progress) -> None:
        progress.total_files, progress.total_bytes = len(due), sum(size for size, _ in due.values())
        broken = told("checkpoints could not be sent", self.prefix, there="those that were sent before are there")
        with broken, ThreadPoolExecutor(THREADS, "paceline-send") as pool:
            tasks = {name: pool.submit(self._send_one, name) for name in due}
            for name, seen in due.items():
                version = tasks[name].result()
                progress.add(seen[0], 1)
                # It was written to while it was sent. The next look sees the change and sends it again.
                if _seen(self.place.files / name) == seen:
                    self._note(name, seen, version)
        progress.tell(progress)

    def _send_one(self, name: str) -> str:
        url = below(self.prefix, name)
        store, path = file_system(url)
        first = f"{path}.part" if renames(url) else path
        store.put_file(str(self.place.files / name), first)
        if first != path:
            store.mv(first, path)
        info = store.info(path)
        return str(next((info[word] for word in ("ETag", "etag", "mtime") if info.get(word)), "")).strip('"')

    def _note(self, name: str, seen: Seen, version: str) -> None:
        self._alike[name] = seen
        self.place.records.mkdir(parents=True, exist_ok=True)
        with self.place.index.open("a+b") as index:
            note(index, name, seen[0], version, seen[1])

    def _take_away(self, now: Mapping[str, Seen]) -> None:
        # Saved steps replace each other: every one of them would be too much for any store.
        saved = f"{CHECKPOINTS_FOLDER}/"
        gone = [name for name in self._alike if name not in now and (self.delete or name.startswith(saved))]
        with told("checkpoints could not be deleted", self.prefix):
            for name in gone:
                remove(below(self.prefix, name))
                del self._alike[name]


def scan(directory: Path) -> dict[str, Seen]:
    """Every file below a directory with its size and modification time."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                seen = _seen(path)
            except OSError:
                continue  # gone between the two looks at it, or a link to nothing
            if path.is_file():
                found[path.relative_to(directory).as_posix()] = seen
    return found


def place_of(directory: Path) -> DownloadTarget:
    """The directory itself, with paceline's notes beside it: a script may read every file in it as a checkpoint."""
    return DownloadTarget(directory, directory.parent / f".{directory.name}.transfer")


def _seen(path: Path) -> Seen:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _is_newer_here(item: Item, place: DownloadTarget, known: Mapping[str, tuple[int, str, int]]) -> bool:
    try:
        size, mtime_ns = _seen(place.files / item.key)
    except OSError:
        return False
    noted = known.get(item.key)
    if noted is not None:
        return (size, mtime_ns) != (noted[0], noted[2]) and noted[1] == item.version
    return item.modified_seconds is not None and mtime_ns / 1e9 > item.modified_seconds
