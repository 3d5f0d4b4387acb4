"""Plain logs as lines of ranks: whose line it is, when it was written, and the tracebacks in it. Pure."""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import islice

from paceline.probes.stacks import is_users_file

# What stands before a line that a rank wrote, a layer each: the platform's stamp and stream, then the launcher's mark.
# Sources: c10/util/Logging.cpp ([rankN]: since torch 2.2), torch/distributed/elastic/multiprocessing/tail_log.py ([defaultN]:),
# Open MPI's --tag-output ([job,rank]<stderr>:, since 5.0 [name@job,rank]<stderr>:), SageMaker's training toolkit, docker compose,
# kubectl logs --prefix, Ray's worker output.
_PREFIXES = (
    re.compile(r"\[rank ?(?P<rank>\d{1,6})\]:? ?", re.IGNORECASE),
    re.compile(r"\[(?:default|worker|trainer)(?P<rank>\d{1,6})\]: ?"),
    re.compile(r"\[(?:[\w.-]+@)?\d+,(?:mpirank:)?(?P<rank>\d{1,6})(?:,(?P<host>[\w.-]+))?\]<std(?:err|out)>: ?"),
    re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]+(?=\S)"),
    re.compile(r"(?:[\w-]+/)?(?P<host>algo-\d+)(?:[-/][\w/-]*)?(?:\s+\||:)?[ \t]+"),
    re.compile(r"[\w.-]*\d\s+\|\s"),
    re.compile(r"\[pod/[\w./-]+\] "),
    re.compile(r"\([\w.:]+ pid=\d+(?:, ip=[\w.:]+)?\) "),
)
_MOST_LAYERS = 6
# srun --label. A number and a colon is nothing special in a line, only where nearly every line begins so.
_LABELLED = re.compile(r"(?m)^ {0,4}\d{1,5}: ")
_LABEL = re.compile(r" {0,4}(?P<rank>\d{1,5}): ")
_LABELLED_FRACTION = 0.9
_LABELS_READ = 1 << 16
# Terminal colours and cursor moves; a progress bar is full of them.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_RANK_INSIDE = re.compile(r"\[rank(\d{1,6})\]|\brank(\d{1,6})\]?:|\[(?:PG [^\]\[]*)?Rank (\d{1,6})\]")
_RANK_OF_NAME = re.compile(r"rank[_-]?(\d+)|/(\d+)/std(?:err|out)\.log$")
# glog writes month, day and time, c10's own logging since torch 2.4 the month without a zero before it; everybody else the date.
_GLOG = re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?")
_TIME_OF_DAY = re.compile(r"\s{0,8}\[?(\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?\]?\s")
_ISO = re.compile(r"\b\d{4}-(\d\d)-(\d\d)[T_ ](\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?")
_TRACEBACK = "Traceback (most recent call last)"
# Without a function: where the compiler found a SyntaxError.
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+)|$)')
_OUTCOME = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?\Z")
_BARE = re.compile(r"(?m)^(?P<type>(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)): (?P<message>[^\n]+)")
_MOST_MESSAGE_LINES = 30
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# What torch puts into the message of an exception that a DataLoader worker raised. Source: torch/_utils.py, ExceptionWrapper
_ORIGINAL = f"Original {_TRACEBACK}"
# Exceptions that Python prints and that end nothing: of destructors, and of a log call that does not fit its arguments.
# Sources: CPython, Python/errors.c, PyErr_WriteUnraisable; Lib/logging/__init__.py, Handler.handleError
_ENDS_NOTHING = ("Exception ignored ", "--- Logging error ---")
_DAY_SECONDS = 86400
_HALF_A_YEAR = 183
_STAMP_WITHIN = 400
_LONGEST_LINE = 1 << 12
_TOO_LONG = re.compile(rf"(?m)^([^\n]{{{_LONGEST_LINE}}})[^\n]+")
_MOST_TRACEBACK_LINES = 400
_MOST_TRACEBACKS = 256
_LOOKED_BACK = 40

# Month, day, hour, minute, second, millisecond; month and day 0 where only the time of day is known.
Moment = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class RankLine:
    """One line of a log."""

    log: str
    """Name of the file."""
    number: int
    """Number of the line, from 1."""
    text: str
    """The line without its launcher's prefix."""
    rank: int | None = None
    """The rank that wrote it; None: not known."""
    host: str = ""
    """Its host, if the prefix names one."""
    whole: str = ""
    """The unchanged line."""

    def shown(self, most: int = 200) -> str:
        """ "slurm.out:120: text", cut where it is long."""
        text = (self.whole if len(self.whole) <= most else self.text).strip()
        return f"{self.log}:{self.number}: {text if len(text) <= most else text[:most] + ' ...'}"


@dataclass(frozen=True, slots=True)
class Traceback:
    """A Python traceback. Chained tracebacks count as one."""

    line: RankLine
    """Its first line."""
    type: str
    """Type of the last exception."""
    message: str
    """Text of the last exception, whole."""
    frames: tuple[tuple[str, int, str], ...]
    """(file, line, function), outermost first."""
    at: Moment | None = None
    """Time of the nearest timestamp before it."""

    def users_frame(self) -> str:
        """The innermost line that is neither of an installed package nor of a console script; "": there is none."""
        return next((_spelled(frame) for frame in reversed(self.frames) if _is_users(frame[0])), "")

    def innermost(self) -> str:
        """The innermost line, whosever it is; "": there is none."""
        return _spelled(self.frames[-1]) if self.frames else ""

    def said(self) -> str:
        """ "KeyError: 'x'", whole."""
        return f"{self.type}: {self.message}" if self.message else self.type


def _spelled(frame: tuple[str, int, str]) -> str:
    file, line, function = frame
    return f"{file}:{line} in {function}" if function else f"{file}:{line}"


def _is_users(file: str) -> bool:
    folder, _, name = file.rpartition("/")
    is_console_script = folder.endswith("/bin") and "." not in name
    return is_users_file(file) and not is_console_script


@dataclass(frozen=True)
class Log:
    """The text of one file."""

    name: str
    """Name of the file."""
    text: str
    """Its text."""
    note: str = ""
    """What was not read of it."""

    @cached_property
    def rank(self) -> int | None:
        """The rank that the file's name speaks of."""
        match = _RANK_OF_NAME.search(self.name)
        return int(match[1] or match[2]) if match else None

    @cached_property
    def _labelled(self) -> bool:
        """Whether srun --label wrote it: nearly every line begins with its rank."""
        head = self.text[:_LABELS_READ]
        lines = [line for line in head.splitlines() if line.strip()]
        return len(lines) > 1 and len(_LABELLED.findall(head)) >= _LABELLED_FRACTION * len(lines)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\n", self.text))]

    def line_at(self, offset: int) -> RankLine:
        """The whole line around a character."""
        number = bisect_right(self._starts, offset)
        return self.line(number)

    def line(self, number: int) -> RankLine:
        """Line `number`, from 1."""
        whole = self.raw(number)
        text, rank, host = without_prefix(whole)
        if rank is None and self._labelled and (label := _LABEL.match(whole)):
            text, rank, host = without_prefix(whole[label.end() :])
            rank = int(label["rank"]) if rank is None else rank
        if rank is None and (inside := _RANK_INSIDE.search(text)):
            rank = int(inside[1] or inside[2] or inside[3])
        return RankLine(self.name, number, text, self.rank if rank is None else rank, host, whole)

    def raw(self, number: int) -> str:
        """Line `number` as it stands in the file, of a line without end its beginning."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start : min(end, start + _LONGEST_LINE)]

    @property
    def line_count(self) -> int:
        return len(self._starts) - (self._starts[-1] == len(self.text))

    def moment_before(self, number: int) -> Moment | None:
        """The newest time stamp at or before a line."""
        for near in range(number, max(number - _LOOKED_BACK, 0), -1):
            if (found := moment_in(self.raw(near)[:_STAMP_WITHIN])) is not None:
                return found
        return None


def plain_text(text: str) -> str:
    """Text without colours, each step of a progress bar a line of its own, no line longer than anybody reads."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    # A search over a line may take the square of its length.
    return _TOO_LONG.sub(r"\1", plain)


def without_prefix(text: str) -> tuple[str, int | None, str]:
    """A line without the marks before it, and the rank and host that they name: of several, the one nearest to the text."""
    rank, host = None, ""
    for _ in range(_MOST_LAYERS):
        match = next((found for prefix in _PREFIXES if (found := prefix.match(text))), None)
        if match is None:
            break
        named = match.groupdict()
        rank = int(named["rank"]) if named.get("rank") else rank
        host = named.get("host") or host
        text = text[match.end() :]
    return text, rank, host


def moment_in(text: str) -> Moment | None:
    """Month, day, hour, minute, second, millisecond of the first time stamp in a line."""
    match = _ISO.search(text) or _GLOG.search(text)
    if match is None:
        return None
    month, day, hour, minute, second = (int(match[place]) for place in range(1, 6))
    return month, day, hour, minute, second, int(match[6] or 0)


def stamp_in(text: str) -> Moment | None:
    """As `moment_in`, and where a line begins with a time of day alone, that one with month and day 0."""
    if (moment := moment_in(text)) is not None:
        return moment
    match = _TIME_OF_DAY.match(text)
    return None if match is None else (0, 0, int(match[1]), int(match[2]), int(match[3]), int(match[4] or 0))


def seconds_between(first: Moment, then: Moment) -> float | None:
    """From one stamp to a later one, over midnight and the new year where it must be; None: a stamp is no real time."""
    try:
        days = _day_of(then) - _day_of(first) if first[0] and then[0] else 0
    except ValueError:
        return None
    if abs(days) > _HALF_A_YEAR:
        days += 366 if days < 0 else -366
    seconds = _second_of(then) - _second_of(first)
    return seconds + days * _DAY_SECONDS if first[0] and then[0] else seconds % _DAY_SECONDS


def moved_back(moment: Moment, seconds: float) -> str:
    """ "11:00:02", this long before a stamp."""
    whole = math.floor(_second_of(moment) - seconds) % _DAY_SECONDS
    return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def in_words(seconds: float) -> str:
    """ "12 s", "30 min", "2 h 05 min"."""
    minutes, hours = round(seconds / 60), round(seconds / 60) // 60
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes % 60:02d} min" if hours else f"{minutes} min"


def _day_of(moment: Moment) -> int:
    # A leap year: 29 February is a day, and the stamps name no year.
    return date(2000, moment[0], moment[1]).timetuple().tm_yday


def _second_of(moment: Moment) -> float:
    _, _, hour, minute, second, millisecond = moment
    return hour * 3600 + minute * 60 + second + millisecond / 1000


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
            if not _ends_nothing(log, first):
                yield traceback


def _of_whom(log: Log, number: int) -> int | None:
    return log.line(number).rank


def _ends_nothing(log: Log, first: RankLine) -> bool:
    near = (log.line(number) for number in range(first.number - 1, max(first.number - _LOOKED_BACK, 0), -1))
    before = next((line for line in near if line.rank == first.rank), None)
    return before is not None and before.text.startswith(_ENDS_NOTHING)


def _read(log: Log, first: RankLine) -> tuple[Traceback | None, int]:
    frames: list[tuple[str, int, str]] = []
    outcomes: list[tuple[str, list[str]]] = []
    last = first.number
    in_frames, is_chained = True, False
    for number in range(first.number + 1, min(first.number + _MOST_TRACEBACK_LINES, log.line_count) + 1):
        line = log.line(number)
        if line.rank != first.rank:
            continue
        text = line.text
        if _TRACEBACK in text:
            if in_frames or not (is_chained or text.startswith(_ORIGINAL)):
                break
            frames, in_frames, is_chained = [], True, False
        elif match := _FRAME.match(text):
            frames.append((match["file"], int(match["line"]), match["function"] or ""))
        elif in_frames and text[:1] not in (" ", "\t", "") and (outcome := _OUTCOME.match(text.strip())):
            outcomes.append((outcome["type"], [(outcome["message"] or "").strip()]))
            in_frames = False
        elif text.startswith(_CHAINED):
            is_chained = True
        elif not in_frames and text.strip():
            # torch's own mark stands before the lines of an exception alone, a launcher's before all that a rank writes.
            # Source: torch/distributed/distributed_c10d.py, _distributed_excepthook
            is_marked = "[rank" in line.whole.removesuffix(text)
            is_more = text[:1] in (" ", "\t") or is_marked or _goes_on(log, line)
            if not is_more or len(outcomes[-1][1]) >= _MOST_MESSAGE_LINES or _is_another_message(text):
                break
            outcomes[-1][1].append(text.strip())
        last = number
    if not outcomes:
        return None, last
    type_, message = outcomes[-1]
    at = log.moment_before(first.number)
    return Traceback(first, type_, "\n".join(line for line in message if line), tuple(frames), at), last


def _goes_on(log: Log, line: RankLine) -> bool:
    """Whether a line announces indented ones: `This process was started with:`."""
    following = log.line(line.number + 1) if line.number < log.line_count else None
    return line.text.rstrip().endswith(":") and following is not None and following.text[:1] in (" ", "\t")


def _is_another_message(text: str) -> bool:
    return stamp_in(text[:_STAMP_WITHIN]) is not None or text.startswith(("=====", "-----"))


def bare_exceptions(log: Log) -> Iterator[Traceback]:
    """Lines of a log without any traceback that name an exception: who catches one often prints its text alone."""
    found = _BARE.finditer(log.text) if _TRACEBACK not in log.text else ()
    for match in islice(found, _MOST_TRACEBACKS):
        line = log.line_at(match.start())
        yield Traceback(line, match["type"], match["message"].strip(), (), log.moment_before(line.number))


def _error_file(log: Log) -> Iterator[Traceback]:
    """torch's error file: {"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": ...}}}."""
    if not log.text.lstrip().startswith("{") or "py_callstack" not in log.text:
        return
    try:
        stack = json.loads(log.text)["message"]["extraInfo"]["py_callstack"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if isinstance(stack, str):
        yield from tracebacks(Log(log.name, stack))
