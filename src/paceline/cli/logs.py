"""Print what the ranks of a run wrote, rank after rank; with --follow, as it comes."""

import argparse
import itertools
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from paceline.cli.parsing import find_directories
from paceline.cli.values import duration_seconds
from paceline.errors import NotEnoughEvidence, UsageError
from paceline.facts import Run
from paceline.option import FURTHER_DIRECTORIES, RANKS, RUN, RUN_DIR, Option, Verb
from paceline.recording.clocks import HostClocks
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, LogFile, LogName, StreamedLogs, log_files, streamed_logs
from paceline.recording.rank_sets import parse_ranks
from paceline.recording.runs import is_submitted
from paceline.views.logs import log_line, log_line_json
from paceline.views.status import run_lasts

VERB = Verb(
    "logs",
    __doc__ or "",
    (
        ("paceline logs --rank 3 --stderr", "stderr of rank 3 of the newest run"),
        ("paceline logs -f --grep loss", "lines with 'loss' of all ranks, as they come"),
    ),
    (
        RUN,
        RANKS,
        Option("host", "Only this host.", "HOST"),
        Option("attempt", "Only this attempt, counted from 0.", "N", kind=int),
        Option("stdout", "Only stdout.", stored_as="stream", const="out"),
        Option("stderr", "Only stderr.", stored_as="stream", const="err"),
        Option("follow", "Continue until the run ends.", letter="f"),
        Option("since", "Only lines since then: 90s, 5m, 2h, 1d, or 2026-11-20T11:42:30Z.", "TIME"),
        Option(
            "tail",
            "Only the last N lines of each rank's stream, then what comes with --follow.",
            "N",
            kind=int,
            letter="n",
        ),
        Option("grep", "Only lines in which this regular expression is found.", "RE"),
        Option(
            "raw",
            "Print control characters as the ranks wrote them: colours and progress bars, but tricks of a log from elsewhere too.",
            more="Without it they are shown as text, such as `\\x1b`, and of a progress bar its last state.",
        ),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
)
_T = TypeVar("_T")
POLL_SECONDS = 0.2


def run(args: argparse.Namespace) -> int:
    if args.tail is not None and args.tail < 0:
        raise UsageError("U03", f"--tail {args.tail} is not 0 or more", saw=str(args.tail), next="--tail 20")
    directories = tuple(RunDirectory(path) for path in find_directories(args, "paceline logs"))
    if not directories[0].path.joinpath("hosts").exists() and is_submitted(directories[0].path):
        return _of_the_engine(directories[0].path, args)
    found, events, _ = read_run(directories)
    printer = Printer(
        run_id=found.id,
        since_ns=_since_ns(args.since, time.time_ns()),
        pattern=_pattern(args.grep),
        as_json=args.json,
        raw=args.raw,
    )
    reader = Reader(directories, _choice(args), printer, HostClocks(events))
    reader.read(args.tail)
    if not reader.saw_any and not args.follow:
        raise _nothing(found, directories)
    while args.follow and _lasts(directories):
        sys.stdout.flush()
        time.sleep(POLL_SECONDS)
        reader.read()
    reader.read()
    reader.finish()
    return 0


def _of_the_engine(path: Path, args: argparse.Namespace) -> int:
    from paceline.cli.job.engine_logs import print_logs

    _say("shown is what the engine kept; the ranks' own logs are not here")
    print_logs(path, follow=args.follow, raw=args.raw)
    return 0


@dataclass(slots=True)
class Printer:
    """Selects lines and writes them."""

    run_id: str
    """Id of the run."""
    since_ns: int | None
    """Lines older than this moment (Unix ns) are left out; None: no line is."""
    pattern: re.Pattern[str] | None
    """Only lines that match are written; None: all lines are."""
    as_json: bool
    """Whether lines are written as JSON."""
    raw: bool
    """Whether control characters are written unchanged."""
    with_host: bool = False
    """Whether each line names its host, because there are several."""
    attempt: int | None = None
    """The attempt of the newest line, counted from 0; None: no line yet."""

    def takes(self, text: bytes, time_ns: int | None = None) -> bool:
        """Whether the line is selected."""
        if self.since_ns is not None and time_ns is not None and time_ns < self.since_ns:
            return False
        return self.pattern is None or bool(self.pattern.search(text.decode("utf-8", "replace")))

    def line(self, name: LogName, text: bytes, time_ns: int | None = None) -> None:
        """Write the line if it is selected."""
        if self.takes(text, time_ns):
            self.write(name, text, time_ns)

    def write(self, name: LogName, text: bytes, time_ns: int | None) -> None:
        """Write the line."""
        if self.as_json:
            out = log_line_json(self.run_id, name.host, name.attempt, name.rank, name.stream, text, time_ns)
        else:
            out = log_line(name.host if self.with_host else None, name.rank, text, raw=self.raw)
        sys.stdout.buffer.write(out)

    def begin_attempt(self, attempt: int) -> None:
        """Report a restart on stderr, beside the output."""
        if self.attempt is not None and attempt != self.attempt:
            sys.stdout.flush()
            print(f"-- attempt {attempt} --", file=sys.stderr)
        self.attempt = attempt


class Reader:
    """Reads every selected log of a run, including logs that appear later."""

    def __init__(
        self, directories: Sequence[RunDirectory], choice: LogChoice, printer: Printer, clocks: HostClocks
    ) -> None:
        self._directories, self._choice, self._printer, self._clocks = directories, choice, printer, clocks
        self._files: dict[LogName, LogFile] = {}
        self._streams: dict[str, StreamedLogs] = {}

    @property
    def saw_any(self) -> bool:
        return bool(self._files or self._streams)

    def read(self, tail: int | None = None) -> None:
        """Print everything new since the last call. `tail`: only this many last lines of each stream; None: all lines."""
        self._discover()
        for name, file in self._files.items():
            new = file.stamped_lines() if self._printer.as_json else ((None, text) for text in file.lines())
            lines = ((time_ns, text) for time_ns, text in new if self._printer.takes(text))
            for time_ns, text in lines if tail is None else deque(lines, tail):
                self._printer.begin_attempt(name.attempt)
                self._printer.write(name, text, time_ns)
        streamed = [line for line in self._streamed() if self._printer.takes(line[2], line[1])]
        for name, group in itertools.groupby(streamed, key=lambda line: line[0]):
            for _, time_ns, text in deque(group, tail):
                self._printer.line(name, text, time_ns)

    def finish(self) -> None:
        """Print last lines without a line break, and report what could not be read."""
        for name, file in self._files.items():
            time_ns, rest = file.stamped_rest()
            if rest and self._printer.takes(rest):
                self._printer.write(name, rest, time_ns)
            if file.unread:
                _say(f"not judged: {file.path.name} of {name.host} cannot be read: {file.unread}")
        for host, stream in self._streams.items():
            _say(f"{host}: complete logs stay on that host; shown is what it streamed to the first one")
            if stream.unread_lines:
                _say(f"not judged: {stream.unread_lines} streamed lines of {host} cannot be read")

    def _discover(self) -> None:
        for file in log_files(self._directories, self._choice, self._clocks):
            if file.name not in self._files:
                self._files[file.name] = file
                self._skip_old(file)
        for stream in streamed_logs(self._directories, self._choice, self._clocks):
            self._streams.setdefault(stream.host, stream)
        hosts = {name.host for name in self._files} | set(self._streams)
        self._printer.with_host = self._printer.with_host or len(hosts) > 1

    def _skip_old(self, file: LogFile) -> None:
        since_ns = self._printer.since_ns
        if since_ns is not None and not file.skip_to(since_ns) and not file.unread and file.path.stat().st_size:
            _say(
                f"not judged: when the lines of {file.path.name} on {file.name.host} came (no index that can be read); all are shown"
            )

    def _streamed(self) -> Iterator[tuple[LogName, int, bytes]]:
        for stream in self._streams.values():
            lines = (line for line in stream.lines() if self._choice.takes(line[0]))
            yield from sorted(lines, key=lambda line: (line[0].attempt, line[0].rank, line[0].stream == "err"))


def _choice(args: argparse.Namespace) -> LogChoice:
    return LogChoice(
        ranks=_usage("--rank", args.rank, parse_ranks, "0-3,7") if args.rank is not None else None,
        host=args.host,
        attempt=args.attempt,
        streams=frozenset({args.stream} if args.stream else {"out", "err"}),
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return None if text is None else _usage("--grep", text, re.compile, re.escape(text))


def _usage(option: str, text: str, parse: Callable[[str], _T], example: str) -> _T:
    try:
        return parse(text)
    except (ValueError, re.error) as error:
        raise UsageError("U03", f"{option} {text!r}: {error}", next=f"{option} {shlex.quote(example)}") from error


def _since_ns(text: str | None, now_ns: int) -> int | None:
    """Unix ns of "5m" ago, or of a timestamp. A timestamp without a zone is UTC.

    Raises:  UsageError U03: not one of the two
    """
    if text is None:
        return None
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return now_ns - int(_seconds_ago(text) * 1e9)
    return int((stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp() * 1e9)


def _seconds_ago(text: str) -> float:
    try:
        return duration_seconds("--since", text)
    except UsageError:
        raise UsageError(
            "U03",
            f"--since {text!r} is no time",
            saw="a time is 5m, which is five minutes ago, or 2026-11-20T11:42:30Z",
            next="--since 5m",
        ) from None


def _lasts(directories: Sequence[RunDirectory]) -> bool:
    return run_lasts(read_run(directories)[0])


def _nothing(run: Run, directories: Sequence[RunDirectory]) -> NotEnoughEvidence:
    every = log_files(directories, LogChoice())
    have = ", ".join(sorted({f"rank {file.name.rank} on {file.name.host}" for file in every})[:8])
    if not have and not run_lasts(run):
        code = "" if run.exit_code is None else f" ({run.exit_code})"
        return NotEnoughEvidence(
            "U20",
            f"no rank of {run.id} has left a log here",
            saw=f"{run.status}{code}: {run.reason or 'no reason was recorded'}",
            next=f"paceline why {run.id}",
        )
    if not have:
        return NotEnoughEvidence(
            "U20",
            f"no rank of {run.id} has started yet",
            saw=str(run.secondary_status),
            next=f"paceline logs {run.id} --follow",
        )
    return NotEnoughEvidence(
        "U20",
        f"{run.id} holds no such log",
        saw=f"logs of {have}",
        next=f"paceline logs {run.id}",
    )


def _say(text: str) -> None:
    sys.stdout.flush()
    print(text, file=sys.stderr)
