"""Watch a run: its pace, its ranks, its machines. A terminal is repainted every second and has keys; elsewhere a snapshot is one line."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.cli.parsing import find_directories
from paceline.cli.terminal import ascii_only, room, rows
from paceline.cli.top_screen import has_keys, open_terminal
from paceline.cli.values import duration_seconds
from paceline.errors import PacelineError, UsageError
from paceline.facts import Evidence, RankRecord
from paceline.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb
from paceline.recording.evidence import evidence
from paceline.recording.follow import FollowedFiles
from paceline.recording.layout import RunDirectory
from paceline.recording.log_tails import log_ends
from paceline.terminal_text import own_code
from paceline.views.documents import json_text
from paceline.views.error import error_text
from paceline.views.host_load import HostUsage, RunLoad, host_loads, run_loads
from paceline.views.pace import Pace, pace
from paceline.views.status import run_lasts
from paceline.views.top import TopDocument, top_facts, top_line, top_line_header, top_text
from paceline.views.top_screen import Action, Screen, chosen_ranks, pressed, text_lines
from paceline.views.top_strip import LivePace, PaceHistory, late_fractions, rank_usage, strips

VERB = Verb(
    "top",
    __doc__ or "",
    (
        ("paceline top", "watch the newest run of this directory"),
        ("paceline top r-7f3a91 --once --json", "one picture for a program"),
    ),
    (
        RUN,
        Option("once", "Show one picture, then end; --json does the same."),
        Option("interval", "Time between two pictures.", "DURATION", default="1s"),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
    page="""\
Rates are over half a second or more. Of a run that has ended it shows the median of the ranks' steady steps, and mean
and peak of each machine over the run (of a very long run, over its last hours). With `--json` each host has `mean`
and `peak` beside its last sample.

LATE is how much later than the first rank a rank comes to the collectives, as a share of the step: all ranks have the same step, and this
is who makes it long. CPU is in percent of one CPU, RSS is memory; both are those of the rank and of what it started. GPU is the use of
the GPU with its local number.

On a terminal each host has a strip of its last 60 seconds, and keys work without Enter:

| Key | Does |
|---|---|
| `s` | sort the ranks by number, LATE, MS/STEP, CPU, RSS |
| `/` | show only some ranks (`0-3,7`) or hosts (part of a name); Enter keeps the filter, Esc takes it away |
| `1` `2` `3` `4` | the strips show lateness, step, CPU, GPU |
| `w` | what `paceline why` says |
| `t` | what `paceline stack` says |
| `l` | the end of the log of the first rank in the table |
| `q` | end; the job goes on |""",
)
_LONGEST_INTERVAL_SECONDS = 86400
# Bytes of telemetry of all hosts together: hours of one host, read within a second.
_MOST_TELEMETRY_BYTES = 16 << 20
_LOG_BYTES = 32 << 10
# Move the cursor home; after the text, erase to the end. One write that paints over the old picture does not flicker.
_HOME, _TO_LINE_END, _TO_SCREEN_END = own_code("[H"), own_code("[K"), own_code("[J")


def run(args: argparse.Namespace) -> int:
    interval_seconds = duration_seconds("--interval", args.interval, "1s")
    if not 0 < interval_seconds <= _LONGEST_INTERVAL_SECONDS:
        raise UsageError(
            "U03",
            f"--interval {args.interval} is not above 0 and at most a day",
            saw=args.interval,
            next="--interval 1s",
        )
    directory, *more = find_directories(args, "paceline top")

    followed = FollowedFiles()

    def look() -> Evidence:
        return evidence(directory, *more, recent=True, read=followed.read_json_lines)

    def whole() -> Evidence:
        """The evidence, with the telemetry of the whole run if the run has ended."""
        found = look()
        return (
            found
            if run_lasts(found.run)
            else evidence(directory, *more, recent=True, telemetry_bytes=_MOST_TELEMETRY_BYTES)
        )

    if args.json:
        print(json_text(_facts(whole())))
    elif args.once:
        print(_picture(whole(), (), None))
    elif has_keys():
        if _watch(look, [directory, *more], interval_seconds):
            sys.stdout.write(f"{_HOME}{_TO_SCREEN_END}{_picture(whole(), (), None)}\n")
    elif sys.stdout.isatty():
        _paint(look, interval_seconds)
        sys.stdout.write(f"{_HOME}{_TO_SCREEN_END}{_picture(whole(), (), None)}\n")
    else:
        _lines(look, interval_seconds)
    return 0


def _watch(look: Callable[[], Evidence], directories: Sequence[Path], interval_seconds: float) -> bool:
    """Repaint and take keys until the run has ended or the user ends it. Returns whether the run has ended."""
    with open_terminal() as terminal:
        screen, found = Screen(), look()
        live = LivePace(found.ranks, time.time_ns())
        now, due = _pace(found, ()), time.monotonic() + interval_seconds
        while True:
            height, width = rows(sys.stdout) or 24, room(sys.stdout)
            terminal.paint(
                text_lines(screen, height, width)
                if screen.text
                else _live_picture(found, now, screen, live.history, height)
            )
            try:
                keys = terminal.keys(due - time.monotonic())
            except EOFError:
                return False
            for key in keys:
                screen, action = pressed(screen, key, height)
                if action is Action.QUIT:
                    return False
                if action is not None:
                    terminal.paint("looking")
                    screen = replace(screen, text=_asked(action, found, now, screen, directories, width), first=0)
            if time.monotonic() >= due:
                found = look()
                if not run_lasts(found.run):
                    return True
                now, due = live.look(found.ranks, time.time_ns()), time.monotonic() + interval_seconds


def _live_picture(found: Evidence, now: Pace, screen: Screen, history: PaceHistory, height: int) -> str:
    now_ns = time.time_ns()
    return top_text(
        found,
        now,
        host_loads(found.hosts, found.telemetry),
        now_ns=now_ns,
        width=room(sys.stdout),
        height=height,
        ascii_only=ascii_only(sys.stdout),
        screen=screen,
        strips=strips(found.hosts, screen.shown, history, found.telemetry, now_ns),
    )


def _asked(
    action: Action, found: Evidence, now: Pace, screen: Screen, directories: Sequence[Path], width: int | None
) -> tuple[str, ...]:
    """The lines of `why`, of the stacks or of a log, or of the error that is there instead."""
    try:
        if action is Action.WHY:
            text = _why(directories, width)
        elif action is Action.STACKS:
            text = _stacks(found)
        else:
            text = _log(found, now, screen, directories)
    except PacelineError as error:
        text = error_text(error, color=False)
    return tuple(text.splitlines())


def _why(directories: Sequence[Path], width: int | None) -> str:
    from paceline.cli.why import judge_run
    from paceline.views.why import WhyPage, why_text

    case, diagnosis, _ = judge_run(directories, now_ns=time.time_ns())
    return why_text(diagnosis, case, WhyPage(width=width, ascii_only=ascii_only(sys.stdout)))


def _stacks(found: Evidence) -> str:
    from paceline.cli.stack import take_snapshots_now
    from paceline.views.stack import stack_text

    snapshots, complaints = take_snapshots_now(found.run, None, deep=False)
    return stack_text(found.run.id, snapshots, lasts=True, diff=False, not_judged=complaints, color=False)


def _log(found: Evidence, now: Pace, screen: Screen, directories: Sequence[Path]) -> str:
    """The end of what the first rank of the table wrote."""
    chosen = chosen_ranks(screen, now.ranks, late_fractions(now), rank_usage(found.telemetry))
    if not chosen:
        return "no rank to show the log of"
    rank = chosen[0].rank
    attempt = max((record.attempt for record in found.ranks), default=0)
    places = [RunDirectory(path) for path in directories]
    ends, complaints = log_ends(places, attempt, {rank}, most_bytes=2 * _LOG_BYTES, stream_bytes=_LOG_BYTES)
    parts = [f"std{end.stream} of rank {rank} on {end.host}\n{end.text.rstrip()}" for end in ends if end.rank == rank]
    return "\n\n".join(parts) or "\n".join([f"rank {rank} wrote nothing that is here", *complaints])


def _paint(look: Callable[[], Evidence], interval_seconds: float) -> None:
    before: tuple[RankRecord, ...] = ()
    found = look()
    while run_lasts(found.run):
        text = _picture(found, before, rows(sys.stdout)).replace("\n", f"{_TO_LINE_END}\n")
        sys.stdout.write(f"{_HOME}{text}{_TO_LINE_END}{_TO_SCREEN_END}")
        sys.stdout.flush()
        before = found.ranks
        time.sleep(interval_seconds)
        found = look()


def _lines(look: Callable[[], Evidence], interval_seconds: float) -> None:
    print(top_line_header())
    before: tuple[RankRecord, ...] = ()
    while True:
        found = look()
        print(
            top_line(
                _pace(found, before),
                host_loads(found.hosts, found.telemetry),
                now_ns=time.time_ns(),
                width=room(sys.stdout),
            ),
            flush=True,
        )
        if not run_lasts(found.run):
            return
        before = found.ranks
        time.sleep(interval_seconds)


def _picture(found: Evidence, before: tuple[RankRecord, ...], height: int | None) -> str:
    return top_text(
        found,
        _pace(found, before),
        _loads(found),
        now_ns=time.time_ns(),
        width=room(sys.stdout),
        height=height,
        ascii_only=ascii_only(sys.stdout),
    )


def _facts(found: Evidence) -> TopDocument:
    return top_facts(found, _pace(found, ()), _loads(found), now_ns=time.time_ns())


def _pace(found: Evidence, before: tuple[RankRecord, ...]) -> Pace:
    """The pace since the last snapshot. In the first snapshot, it is the pace over the ranks' whole lives."""
    return pace(found.ranks, before, ended=not run_lasts(found.run))


def _loads(found: Evidence) -> tuple[HostUsage, ...] | tuple[RunLoad, ...]:
    """The current load. For an ended run, it is the load over the whole run."""
    loads = host_loads if run_lasts(found.run) else run_loads
    return loads(found.hosts, found.telemetry)
