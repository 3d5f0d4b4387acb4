"""The runs that can be found, read once each: of ten thousand of them only those that are shown are looked into."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.facts import Status
from paceline.parts.web.views.runs_page import SORTED_BY, RunRow
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import KnownRun, KnownRuns
from paceline.views.ps import ListedRun
from paceline.views.status import run_lasts

_LOOK_SECONDS = 2.0
# An answer reads recordings for so long. Runs beyond that are shown by their names, and read for the next answer.
_READ_SECONDS = 0.15
_LASTING_SECONDS = 1.0
MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Wish:
    """Which runs, in which order."""

    find: str = ""
    """Words, all of which occur in id, name or command."""
    status: Status | None = None
    """Only runs of this status."""
    sort: str = "started"
    """A column of the list."""
    is_upwards: bool = False
    """The smallest first."""
    limit: int = MOST_ROWS
    """So many at most."""


@dataclass(frozen=True, slots=True)
class RunListing:
    """The runs that are shown."""

    rows: tuple[RunRow, ...]
    """Each of them."""
    found_count: int
    """How many can be found, also without the wish."""
    left_out: tuple[str, ...]
    """What is not shown, in words."""


@dataclass(slots=True)
class RunList:
    """The runs below a folder and of this user's index."""

    root: Path | None
    """The folder of runs; None: that of the current directory."""
    read: Callable[[Path], ListedRun]
    """Reads a run as the list shows it."""
    _known: KnownRuns = field(init=False)
    _runs: list[KnownRun] = field(default_factory=list)
    _looked_at: float = -1e9
    _read: dict[Path, tuple[tuple[int, int], float, ListedRun]] = field(default_factory=dict)
    _busy: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._known = KnownRuns(self.root)

    def runs(self) -> list[KnownRun]:
        """Every run that can be found, the newest first."""
        with self._busy:
            now = time.monotonic()
            if now - self._looked_at > _LOOK_SECONDS:
                self._runs = self._known.newest_first()
                self._looked_at = now
            return self._runs

    def find(self, run_id: str) -> Path | None:
        """The directory of the run with this id."""
        return next((run.path for run in self.runs() if run.id == run_id), None)

    def get_ready(self) -> None:
        """Read what the first list will show, before anybody asks for it."""
        while any(row.listed is None for row in self.listing(Wish()).rows):
            continue

    def listing(self, wish: Wish) -> RunListing:
        """The runs that are wished for."""
        with self._busy:
            runs = self.runs()
            words = wish.find.lower().split()
            named = [run for run in runs if _has_all(run, words)]
            rows, not_looked_at = self._rows(named, wish)
            shown = rows[: wish.limit]
            left_out = [f"{len(runs) - len(named)} runs without these words"] if words else []
            if len(named) - not_looked_at > len(shown) and wish.status is None:
                left_out.append(f"{len(named) - len(shown)} older runs: give a word of their names")
            if not_looked_at and wish.status is not None:
                left_out.append(f"{not_looked_at} older runs, whose status was not looked at")
            return RunListing(tuple(_in_order(shown, wish)), len(runs), tuple(left_out))

    def _rows(self, runs: Sequence[KnownRun], wish: Wish) -> tuple[list[RunRow], int]:
        """The newest runs that are wished for, and how many were not looked at because there is no time."""
        until = time.monotonic() + _READ_SECONDS
        rows: list[RunRow] = []
        not_looked_at = 0
        for place, run in enumerate(runs):
            listed = self._listed(run, until)
            if (wish.status is not None and listed is None) or len(rows) >= wish.limit:
                not_looked_at = len(runs) - place if wish.status is not None else 0
                break
            if wish.status is None or (listed is not None and listed.run.status is wish.status):
                rows.append(RunRow(run, listed))
        # What was never read comes first: runs that last are read again as long as there is time.
        return [RunRow(row.known, self._newest(row, until)) for row in rows], not_looked_at

    def _listed(self, run: KnownRun, until: float) -> ListedRun | None:
        """The state of a run as it was last read; None: it was not yet, and there is no time."""
        if run.path in self._read:
            return self._read[run.path][2]
        return self._read_now(run.path) if time.monotonic() < until else None

    def _newest(self, row: RunRow, until: float) -> ListedRun | None:
        if row.listed is None or time.monotonic() >= until:
            return row.listed
        stamp, read_at, listed = self._read[row.known.path]
        is_old = run_lasts(listed.run) and time.monotonic() - read_at > _LASTING_SECONDS
        return self._read_now(row.known.path) if is_old or stamp != _stamp(row.known.path) else listed

    def _read_now(self, path: Path) -> ListedRun:
        stamp = _stamp(path)
        listed = self.read(path)
        self._read[path] = (stamp, time.monotonic(), listed)
        return listed


def _stamp(path: Path) -> tuple[int, int]:
    try:
        state = RunDirectory(path).events_file.stat()
    except OSError:
        return (-1, -1)
    return (state.st_size, state.st_mtime_ns)


def _has_all(run: KnownRun, words: Sequence[str]) -> bool:
    if not words:
        return True
    command = run.document.get("command")
    told = [run.id, run.document.get("name"), *(command if isinstance(command, list) else ())]
    text = " ".join(str(one) for one in told).lower()
    return all(word in text for word in words)


def _in_order(rows: Iterable[RunRow], wish: Wish) -> list[RunRow]:
    """In the wished order; rows without the value come last."""
    value = SORTED_BY.get(wish.sort, SORTED_BY["started"])
    listed = list(rows)
    known = [row for row in listed if value(row) is not None]
    known.sort(key=lambda row: value(row), reverse=not wish.is_upwards)
    return [*known, *(row for row in listed if value(row) is None)]
