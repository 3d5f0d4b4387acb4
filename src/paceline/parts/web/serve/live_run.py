"""The page of one run, made anew while the run goes on. All tabs share it, and who asks gets the parts that changed since it last asked."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from paceline.recording.clocks import HostClocks
from paceline.recording.follow import FollowedFiles
from paceline.recording.jsonl import ReadJsonLines
from paceline.recording.layout import RunDirectory
from paceline.recording.segments import newest_steps, segments
from paceline.views.report.facts import Recorded, page_facts
from paceline.views.report.page import for_the_script, page_title, sections
from paceline.views.report.redaction import command_without_secrets
from paceline.views.status import run_lasts

Record = Callable[[Sequence[Path], ReadJsonLines], Recorded]
"""Reads what the page of a run is made of."""
# A page that takes long to make is made the more seldom: of a core, one part in so many goes into it. Where it would get older than so
# many seconds, up to one part in _LARGEST_SHARE.
_SHARE, _LARGEST_SHARE, _OLD_SECONDS = 50, 10, 15.0
_LOOK_SECONDS = 0.25
# So long a page that is being made is waited for; then the old one is the answer.
_WAIT_SECONDS = 0.3
# A run whose agent is gone writes nothing more, and its page must say so.
_LEAST_OFTEN_SECONDS = 10.0
# A page that is older is not said to be of now, and what can be read at once stands beside it: of so many ranks the newest step.
_BEHIND_SECONDS, _MOST_SEGMENTS = 1.0, 64
_Found = TypeVar("_Found")
# Two kinds of parts: what the server made HTML of, and what the script draws.
HTML_PART, _MODEL = "html ", "model "


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the page as it was last sent, and since which version it is so."""

    content: str
    version: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed."""

    cursor: str
    """The version now."""
    texts: dict[str, str]
    """The texts that changed."""
    names: tuple[str, ...]
    """The names of all texts, in order."""


@dataclass(slots=True)
class Parts:
    """Named texts. Each version has the texts that changed with it."""

    _name: str = field(default_factory=lambda: os.urandom(4).hex())
    # Replaced as a whole: other threads read while one writes.
    _state: tuple[int, dict[str, _Part]] = (0, {})

    def put(self, texts: Mapping[str, str]) -> None:
        """The texts from now on."""
        version, before = self._state
        changed = {name for name, text in texts.items() if name not in before or before[name].content != text}
        if changed or list(texts) != list(before):
            parts = {n: _Part(text, version + 1) if n in changed else before[n] for n, text in texts.items()}
            self._state = (version + 1, parts)

    @property
    def cursor(self) -> str:
        """Names the version now, of this object and no other."""
        return f"{self._name}.{self._state[0]}"

    def since(self, cursor: str) -> Changes | None:
        """What changed since the version of that cursor, everything if the cursor is not one of these; None: nothing changed.

        Holds:   whoever applies what it gets, from "" on, always has the newest text of each name
        """
        version, parts = self._state
        if cursor == f"{self._name}.{version}":
            return None
        name, _, number = cursor.partition(".")
        known = (
            int(number) if name == self._name and number.isascii() and number.isdecimal() and len(number) < 19 else 0
        )
        known = known if known <= version else 0
        changed = {name: part.content for name, part in parts.items() if part.version > known}
        return Changes(f"{self._name}.{version}", changed, tuple(parts))


class LiveRun:
    """One run that is looked at."""

    def __init__(
        self, directories: Sequence[Path], record: Record, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.directories = tuple(directories)
        self._record, self._clock = record, clock
        self._followed = FollowedFiles()
        self._building = threading.Lock()
        self._parts = Parts()
        self._title, self._lasts = "", True
        self._seen: tuple[Any, ...] = ()
        self._looked_at = self._built_at = -1e9
        self._cost_seconds = 0.0
        self.facts: dict[str, Any] = {}
        self.clocks = HostClocks()
        self._segments: list[Path] = []

    def since(self, cursor: str, *, may_stop: bool = False, note: str = "") -> dict[str, Any]:
        """The parts of the page that changed since `cursor`, "" for all of them. `may_stop`, `note`: as in since_facts.

        Raises:  PacelineError: the recording has nothing to show yet
        """
        self.bring_up_to_date()
        return {**self.changes(cursor, may_stop=may_stop, note=note), **self.behind()}

    def behind(self) -> dict[str, Any]:
        """Of a page that is made seldom: how old it is, and how far the job is now."""
        seconds = self._clock() - self._built_at
        if not self._lasts or seconds < _BEHIND_SECONDS or self._clock() - self._looked_at < _BEHIND_SECONDS:
            return {}
        found = newest_steps(self._segments)
        ago = None if found is None else max(time.time_ns() - found[1], 0) / 1e9
        step = None if found is None else found[0]
        return {"behind_seconds": round(seconds, 1), "step": step, "last_step_seconds_ago": ago}

    def changes(self, cursor: str, *, may_stop: bool = False, note: str = "") -> dict[str, Any]:
        """The same of the page as it was last made."""
        changes = self._parts.since(cursor)
        if changes is None:
            return {"cursor": cursor}
        return since_facts(changes, self._title, ended=not self._lasts, may_stop=may_stop, note=note)

    @property
    def cursor(self) -> str:
        """Names the page as it is now."""
        return self._parts.cursor

    def bring_up_to_date(self) -> None:
        """Make the page anew if the recording has changed, not more often than its cost allows. Who comes meanwhile waits a little."""
        if not self._building.acquire(timeout=_WAIT_SECONDS if self.facts else -1):
            return
        try:
            now = self._clock()
            if now - self._looked_at < _LOOK_SECONDS or now - self._built_at < _pause_seconds(self._cost_seconds):
                return
            self._looked_at = now
            seen = _stamps(self.directories)
            is_due = self._lasts and now - self._built_at > _LEAST_OFTEN_SECONDS
            if seen != self._seen or is_due:
                self._build(now)
                self._seen = seen
        finally:
            self._building.release()

    def reading(self, read: Callable[[ReadJsonLines], _Found]) -> _Found:
        """What `read` makes of the recording, with a reader that goes on from where it was. One at a time."""
        with self._building:
            return read(self._followed.read_json_lines)

    def _build(self, now: float) -> None:
        began = time.thread_time()
        made = self._record(self.directories, self._followed.read_json_lines)
        facts = page_facts(made)
        facts["identity"]["command"] = command_without_secrets(facts["identity"]["command"])
        html = {HTML_PART + name: str(part) for name, part in sections(facts).items() if name != "foot"}
        model = {_MODEL + name: json.dumps(value) for name, value in for_the_script(facts).items()}
        self._title = page_title(facts)
        self._lasts = run_lasts(made.evidence.run)
        self._parts.put({**html, **model})
        self.facts, self.clocks = facts, HostClocks(made.evidence.events)
        self._segments = _some_segments(self.directories) if self._lasts else []
        self._built_at, self._cost_seconds = now, time.thread_time() - began


def since_facts(
    changes: Changes, title: str, *, ended: bool = False, may_stop: bool = False, note: str = ""
) -> dict[str, Any]:
    """`paceline.since/1`: what the script of a live page exchanges.

    `ended`: whether no more will change; `may_stop`: whether the page may stop the run; `note`: why an engine could not be asked.
    """
    return {
        "schema": "paceline.since/1",
        "cursor": changes.cursor,
        "title": title,
        "ended": ended,
        "may_stop": may_stop,
        "note": note,
        "order": list(_of_kind(HTML_PART, dict.fromkeys(changes.names, ""))),
        "html": _of_kind(HTML_PART, changes.texts),
        "model": {name: json.loads(text) for name, text in _of_kind(_MODEL, changes.texts).items()},
    }


def _pause_seconds(cost_seconds: float) -> float:
    """Time between two pages that take so much of a core's time."""
    return max(_LARGEST_SHARE * cost_seconds, min(_SHARE * cost_seconds, _OLD_SECONDS))


def _of_kind(kind: str, texts: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(kind): text for name, text in texts.items() if name.startswith(kind)}


def _some_segments(directories: Sequence[Path]) -> list[Path]:
    """Segments of the newest attempt, of hosts from the first to the last."""
    found = segments([RunDirectory(path) for path in directories])
    newest = max((_attempt_of(path) for path in found), default=0)
    current = [path for path in found if _attempt_of(path) == newest]
    return current[:: -(-len(current) // _MOST_SEGMENTS) or 1]


def _attempt_of(path: Path) -> int:
    number = path.parent.name.removeprefix("attempt_")
    return int(number) if number.isascii() and number.isdecimal() else -1


def _stamps(directories: Sequence[Path]) -> tuple[Any, ...]:
    """Sizes and times of the files that grow while a run lasts: an agent samples its host every second."""
    files: list[Path] = []
    for directory in directories:
        files += [directory / "run.json", RunDirectory(directory).events_file]
        files += [*directory.glob("hosts/*/telemetry.jsonl"), *directory.glob("hosts/*/peers/*.jsonl")]
    return tuple(_stamp(path) for path in files)


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        state = path.stat()
    except OSError:
        return (str(path), -1, -1)
    return (str(path), state.st_size, state.st_mtime_ns)
