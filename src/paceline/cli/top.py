"""Watch a run: its pace, its ranks, its machines. A terminal is repainted every second; elsewhere each look is one line."""

import argparse
import json
import sys
import time
from collections.abc import Callable

from paceline.cli.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb
from paceline.cli.parsing import find_directories
from paceline.cli.terminal import ascii_only, room, rows
from paceline.cli.values import duration_seconds
from paceline.errors import UsageError
from paceline.facts import Evidence, RankRecord
from paceline.recording.evidence import evidence
from paceline.terminal_text import own_code
from paceline.views.host_load import HostUsage, RunLoad, host_loads, run_loads
from paceline.views.pace import Pace, pace
from paceline.views.status import run_lasts
from paceline.views.top import top_facts, top_line, top_line_header, top_text

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
and `peak` beside its last sample.""",
)
_LONGEST_INTERVAL_SECONDS = 86400
# Bytes of telemetry of all hosts together: hours of one host, read within a second.
_MOST_TELEMETRY_BYTES = 16 << 20
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

    def look() -> Evidence:
        return evidence(directory, *more, recent=True)

    def whole() -> Evidence:
        """The evidence, with the telemetry of the whole run if the run has ended."""
        found = look()
        return (
            found
            if run_lasts(found.run)
            else evidence(directory, *more, recent=True, telemetry_bytes=_MOST_TELEMETRY_BYTES)
        )

    if args.json:
        print(json.dumps(_facts(whole())))
    elif args.once:
        print(_picture(whole(), (), None))
    elif sys.stdout.isatty():
        _paint(look, interval_seconds)
        sys.stdout.write(f"{_HOME}{_TO_SCREEN_END}{_picture(whole(), (), None)}\n")
    else:
        _lines(look, interval_seconds)
    return 0


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


def _facts(found: Evidence) -> dict[str, object]:
    return top_facts(found, _pace(found, ()), _loads(found), now_ns=time.time_ns())


def _pace(found: Evidence, before: tuple[RankRecord, ...]) -> Pace:
    """The pace since the last look. On the first look, it is the pace over the ranks' whole lives."""
    return pace(found.ranks, before, ended=not run_lasts(found.run))


def _loads(found: Evidence) -> tuple[HostUsage, ...] | tuple[RunLoad, ...]:
    """The current load. For an ended run, it is the load over the whole run."""
    loads = host_loads if run_lasts(found.run) else run_loads
    return loads(found.hosts, found.telemetry)
