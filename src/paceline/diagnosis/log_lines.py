"""Plain logs as lines of ranks: whose line it is, when it was written, and the tracebacks in it. Pure."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

# How launchers mark a line with its rank: torch's excepthook and torchrun --tee, mpirun and SageMaker, NCCL and c10d.
_PREFIXES = (
    re.compile(r"\[rank ?(?P<rank>\d+)\]:? ?", re.IGNORECASE),
    re.compile(r"\[(?:default|worker|trainer)(?P<rank>\d+)\]: ?"),
    re.compile(r"\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,(?P<host>[\w.-]+))?\]<std(?:err|out)>: ?"),
)
_RANK_INSIDE = re.compile(r"\[(?:PG [^\]]*)?Rank (\d+)\]|\[rank(\d+)\]|\brank(\d+)\]?:")
_RANK_OF_NAME = re.compile(r"rank[_-]?(\d+)|/(\d+)/std(?:err|out)\.log$")
# glog writes month, day and time; everybody else the date.
_GLOG = re.compile(r"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{3})")
_ISO = re.compile(r"\b\d{4}-(\d\d)-(\d\d)[T_ ](\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?")
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
_OUTCOME = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?\Z")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MOST_TRACEBACK_LINES = 400
_MOST_TRACEBACKS = 256

Moment = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its launcher's prefix. `rank` None: nothing says whose it is."""

    log: str
    number: int
    text: str
    rank: int | None = None
    host: str = ""

    def shown(self, most: int = 200) -> str:
        """ "slurm.out:120: text", cut where it is long."""
        text = self.text.strip()
        return f"{self.log}:{self.number}: {text if len(text) <= most else text[:most] + ' ...'}"


@dataclass(frozen=True, slots=True)
class Traceback:
    """A Python traceback, chained ones as one. `first_type` is what the chain began with; `at`: time of the nearest stamp before it."""

    line: Line
    type: str
    message: str
    first_type: str
    frames: tuple[tuple[str, int, str], ...]
    at: Moment | None = None

    def users_frame(self) -> str:
        """The innermost line that is not of an installed package, else the innermost."""
        own = [
            f
            for f in self.frames
            if "site-packages" not in f[0] and "/lib/python" not in f[0] and "<frozen" not in f[0]
        ]
        frames = own or list(self.frames)
        if not frames:
            return ""
        file, line, function = frames[-1]
        return f"{file}:{line} in {function}"

    def said(self) -> str:
        """ "KeyError: 'x'", its first line."""
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True)
class Log:
    """One file's text. `note` says what of it was not read."""

    name: str
    text: str
    note: str = ""

    @cached_property
    def rank(self) -> int | None:
        """The rank that the file's name speaks of."""
        match = _RANK_OF_NAME.search(self.name)
        return int(match[1] or match[2]) if match else None

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\n", self.text))]

    def line_at(self, offset: int) -> Line:
        """The whole line around a character."""
        number = bisect_right(self._starts, offset)
        return self.line(number)

    def line(self, number: int) -> Line:
        """Line `number`, from 1."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        text, rank, host = without_prefix(self.text[start:end])
        if rank is None and (inside := _RANK_INSIDE.search(text)):
            rank = int(inside[1] or inside[2] or inside[3])
        return Line(self.name, number, text, self.rank if rank is None else rank, host)

    @property
    def line_count(self) -> int:
        return len(self._starts) - (self._starts[-1] == len(self.text))

    def moment_before(self, number: int, reach: int = 40) -> Moment | None:
        """The newest time stamp at or before a line."""
        for near in range(number, max(number - reach, 0), -1):
            if (found := moment_in(self.line(near).text)) is not None:
                return found
        return None


def without_prefix(text: str) -> tuple[str, int | None, str]:
    """A line without its launcher's mark, and the rank and host that the mark names."""
    for prefix in _PREFIXES:
        if match := prefix.match(text):
            return text[match.end() :], int(match["rank"]), match.groupdict().get("host") or ""
    return text, None, ""


def moment_in(text: str) -> Moment | None:
    """Month, day, hour, minute, second, millisecond of the first time stamp in a line."""
    match = _ISO.search(text) or _GLOG.search(text)
    if match is None:
        return None
    month, day, hour, minute, second = (int(match[place]) for place in range(1, 6))
    return month, day, hour, minute, second, int(match[6] or 0)


def tracebacks(log: Log) -> Iterator[Traceback]:
    """Every traceback of a log in its order, of each rank its own where lines are marked; also from torch's error files."""
    yield from _error_file(log)
    offset, done, found = 0, 0, 0
    while (offset := log.text.find(_TRACEBACK, offset)) >= 0 and found < _MOST_TRACEBACKS:
        first = log.line_at(offset)
        offset += len(_TRACEBACK)
        # Lines of another rank in between do not end it; a chain that was read on is not read again.
        if first.number <= done and _of_whom(log, done) == first.rank:
            continue
        traceback, last = _read(log, first)
        if traceback is not None:
            done, found = last, found + 1
            yield traceback


def _of_whom(log: Log, number: int) -> int | None:
    return log.line(number).rank


def _read(log: Log, first: Line) -> tuple[Traceback | None, int]:
    frames: list[tuple[str, int, str]] = []
    outcomes: list[tuple[str, str]] = []
    last = first.number
    in_frames = True
    for number in range(first.number + 1, min(first.number + _MOST_TRACEBACK_LINES, log.line_count) + 1):
        line = log.line(number)
        if line.rank != first.rank:
            continue
        text = line.text
        if _TRACEBACK in text:
            if not outcomes or in_frames:
                break
            frames, in_frames = [], True
        elif match := _FRAME.match(text):
            frames.append((match["file"], int(match["line"]), match["function"]))
        elif in_frames and text[:1] not in (" ", "\t", "") and (outcome := _OUTCOME.match(text.strip())):
            outcomes.append((outcome["type"], (outcome["message"] or "").strip()))
            in_frames = False
        elif not in_frames and text.strip() and not text.startswith(_CHAINED):
            break
        last = number
    if not outcomes:
        return None, last
    (first_type, _), (type_, message) = outcomes[0], outcomes[-1]
    at = log.moment_before(first.number)
    return Traceback(first, type_, message, first_type, tuple(frames), at), last


def _error_file(log: Log) -> Iterator[Traceback]:
    """torch's error file: {"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": ...}}}."""
    if not log.text.lstrip().startswith("{") or "py_callstack" not in log.text:
        return
    try:
        stack = json.loads(log.text)["message"]["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError):
        return
    if isinstance(stack, str):
        yield from tracebacks(Log(log.name, stack))
