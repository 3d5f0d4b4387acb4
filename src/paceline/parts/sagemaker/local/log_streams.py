"""The output of a job's hosts in the form of CloudWatch Logs: one stream per host, one event per line, each with its time.

A stream is a file of JSON lines `[milliseconds, text]` that only grows. The offsets of its lines are kept in memory, so reading a page
costs as much as the page, not as much as the file.
"""

import json
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GROUP = "/aws/sagemaker/TrainingJobs"
LONGEST_EVENT_BYTES = 262_118
PAGE_BYTES = 1 << 20
_PER_EVENT_BYTES = 26


@dataclass(frozen=True, slots=True)
class StreamLine:
    """One event: its time in milliseconds, its arrival time, and its text without the line break."""

    time_ms: int
    text: str


@dataclass(slots=True)
class LogStream:
    """One host's lines. `name` has the form of CloudWatch: JOB/HOST-NUMBER."""

    name: str
    path: Path
    _starts: list[int] = field(default_factory=list)
    _times: list[int] = field(default_factory=list)
    _end: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, time_ms: int, text: str) -> None:
        """Add a line. Times never decrease within a stream, and an event that is too long is split into several.

        Raises:  OSError: the file cannot be written
        """
        with self._lock, self.path.open("ab") as file:
            last = self._times[-1] if self._times else 0
            for piece in pieces(text):
                written = json.dumps([max(time_ms, last), piece]).encode() + b"\n"
                file.write(written)
                self._note(max(time_ms, last), written)

    def load(self) -> None:
        """Find the lines of a file that an earlier server wrote. An incomplete line at the end is removed."""
        with self._lock, self.path.open("rb+") as file:
            for written in file:
                if not written.endswith(b"\n"):
                    break
                self._note(int(json.loads(written)[0]), written)
            file.truncate(self._end)

    def times(self) -> tuple[int, int] | None:
        """First and last time; None if the stream is empty."""
        with self._lock:
            return (self._times[0], self._times[-1]) if self._times else None

    def between(self, start_ms: int | None, end_ms: int | None) -> range:
        """The numbers of the lines from `start_ms` (included) to `end_ms` (excluded)."""
        with self._lock:
            first = 0 if start_ms is None else bisect_left(self._times, start_ms)
            last = len(self._times) if end_ms is None else bisect_left(self._times, end_ms)
        return range(first, max(first, last))

    def read(self, numbers: range) -> list[StreamLine]:
        """The lines with these numbers, in order."""
        with self._lock:
            if not numbers:
                return []
            start = self._starts[numbers[0]]
            end = self._starts[numbers[-1] + 1] if numbers[-1] + 1 < len(self._starts) else self._end
            with self.path.open("rb") as file:
                file.seek(start)
                kept = file.read(end - start).splitlines()
        return [StreamLine(*json.loads(line)) for line in kept]

    def _note(self, time_ms: int, written: bytes) -> None:
        self._starts.append(self._end)
        self._times.append(time_ms)
        self._end += len(written)


def pieces(text: str) -> list[str]:
    """The text in pieces that each fit an event.

    Holds:   "".join(pieces(text)) == text
    """
    most = LONGEST_EVENT_BYTES // 4
    return [text[start : start + most] for start in range(0, len(text), most)] or [""]


def page(numbers: range, *, limit: int, token: str | None, from_head: bool) -> range:
    """The lines for one GetLogEvents answer: `f/N` continues forwards at N, `b/N` backwards from N; no token: the first or last lines.

    Raises:  ValueError: not one of this server's tokens
    Holds:   pages that follow forward tokens have every number once
    """
    if token is None:
        first = numbers.start if from_head else max(numbers.start, numbers.stop - limit)
        return range(first, min(numbers.stop, first + limit))
    way, _, place = token.partition("/")
    at = int(place)
    if way == "f":
        first = min(max(at, numbers.start), max(numbers.stop, numbers.start))
        return range(first, min(numbers.stop, first + limit))
    if way != "b":
        raise ValueError(token)
    last = min(at, numbers.stop)
    return range(max(numbers.start, last - limit), max(last, numbers.start))


def fitting(lines: Sequence[StreamLine], *, newest: bool = False) -> list[StreamLine]:
    """As many lines as fit into an answer, at least one: the first ones, or with `newest` the last ones."""
    kept: list[StreamLine] = []
    room = PAGE_BYTES
    for line in reversed(lines) if newest else lines:
        room -= len(line.text.encode()) + _PER_EVENT_BYTES
        if room < 0 and kept:
            break
        kept.append(line)
    return kept[::-1] if newest else kept


def matcher(pattern: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The terms of an unstructured filter pattern: terms that must occur, terms of which one must occur, terms that must not occur.

    Raises:  ValueError: a pattern for JSON or for fields, which this server does not support
    Source:  CloudWatch Logs, "Filter pattern syntax", unstructured log events
    """
    if pattern.lstrip()[:1] in ("{", "[", "%"):
        raise ValueError(pattern)
    wanted: tuple[list[str], list[str], list[str]] = ([], [], [])
    rest = pattern.strip()
    while rest:
        kind = {"?": 1, "-": 2}.get(rest[0], 0)
        rest = rest[1:] if kind else rest
        if rest.startswith('"') and '"' in rest[1:]:
            term, _, rest = rest[1:].partition('"')
        else:
            term, _, rest = rest.partition(" ")
        if term:
            wanted[kind].append(term)
        rest = rest.strip()
    return tuple(wanted[0]), tuple(wanted[1]), tuple(wanted[2])


def matches(text: str, wanted: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]) -> bool:
    """Whether a line matches the terms that `matcher` found in a pattern."""
    every, some, none = wanted
    return (
        all(term in text for term in every)
        and (not some or any(term in text for term in some))
        and not any(term in text for term in none)
    )


def stream_facts(stream: LogStream, arn: str) -> dict[str, Any]:
    """One stream in the form of DescribeLogStreams."""
    times = stream.times()
    facts: dict[str, Any] = {"logStreamName": stream.name, "arn": f"{arn}:log-stream:{stream.name}", "storedBytes": 0}
    if times is not None:
        first, last = times
        facts |= {"creationTime": first, "firstEventTimestamp": first, "lastEventTimestamp": last}
        facts |= {"lastIngestionTime": last, "uploadSequenceToken": "0"}
    return facts
