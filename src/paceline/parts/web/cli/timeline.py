"""`paceline report --format trace`: what each rank did when, for ui.perfetto.dev; with --json for chrome://tracing."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.output_file import write_output
from paceline.cli.parsing import find_directories
from paceline.cli.progress import ProgressLine
from paceline.cli.stack import wanted_ranks
from paceline.cli.values import duration
from paceline.errors import UsageError
from paceline.option import RANKS, Option
from paceline.part import ReportFormat
from paceline.parts.web.views.timeline import chrome, perfetto, timeline
from paceline.recording.clocks import HostClocks
from paceline.recording.evidence import evidence
from paceline.recording.layout import RunDirectory
from paceline.recording.rank_spans import rank_spans

_MOST_RECORDS = 200_000
_MOST_TELEMETRY_BYTES = 16 << 20


def trace_of(directories: Sequence[Path], ranks: frozenset[int] | None) -> bytes:
    """The whole run of these ranks (None: all) in Perfetto's format."""
    found = evidence(*directories, recent=True, telemetry_bytes=_MOST_TELEMETRY_BYTES)
    from_ns, to_ns = found.run.started_ns, time.time_ns()
    places = [RunDirectory(path) for path in directories]
    spans, _ = rank_spans(places, from_ns=from_ns, to_ns=to_ns, ranks=ranks, most_records=_MOST_RECORDS)
    return perfetto(timeline(spans, found.events, found.telemetry, from_ns=from_ns, to_ns=to_ns))


def write(args: argparse.Namespace) -> int:
    """Write the trace.

    Raises:  UsageError U03: the window ends before it begins; U22: the file cannot be written; as find_directories
    """
    begin = duration("--from", args.begin, example="5m", zero=True) if args.begin else 0.0
    end = duration("--to", args.end, example="6m") if args.end else None
    if end is not None and end <= begin:
        raise UsageError(
            "U03",
            "the window ends before it begins",
            saw=f"--from {args.begin} --to {args.end}",
            next="--from 5m --to 6m",
        )
    directories = find_directories(args, "paceline report --format trace")
    with ProgressLine("reading the recording", shown=not args.json):
        run_id, content, left_out = _content(args, directories, begin, end)
    for text in left_out:
        print(f"left out: {text}", file=sys.stderr)
    name = args.save or ("-" if args.json else f"timeline-{run_id}.pftrace")
    write_output(name, content, "-o /tmp/timeline.pftrace")
    return 0


def _content(
    args: argparse.Namespace, directories: Sequence[Path], begin: float, end: float | None
) -> tuple[str, bytes, list[str]]:
    """The run's id, the trace, and what was left out. `begin`, `end`: seconds since the start of the run; None: now."""
    found = evidence(*directories, recent=True, telemetry_bytes=_MOST_TELEMETRY_BYTES)
    from_ns = found.run.started_ns + round(begin * 1e9)
    to_ns = time.time_ns() if end is None else found.run.started_ns + round(end * 1e9)
    ranks = wanted_ranks(args.rank)
    places = [RunDirectory(path) for path in directories]
    clocks = HostClocks(found.events)
    spans, left_out = rank_spans(
        places, from_ns=from_ns, to_ns=to_ns, ranks=ranks, most_records=_MOST_RECORDS, clocks=clocks
    )
    drawn = timeline(spans, found.events, found.telemetry, from_ns=from_ns, to_ns=to_ns)
    content = chrome(drawn).encode() if args.json else perfetto(drawn)
    return found.run.id, content, left_out


FORMAT = ReportFormat(
    about="""\
The job (attempts, hangs, causes, restarts), each rank (steps, phases, waits for collectives) and each host (CPU, memory), for
ui.perfetto.dev, or with `--json` for chrome://tracing. One collective is connected across ranks. A step's waiting for data and its exposed
communication are arguments of the step: the recording has their length and not their place. At most 200,000 records are written, the
newest of each rank, and a line says what was left out.""",
    options=(
        Option("from", "Begin this long after the start of the run.", "DURATION", stored_as="begin"),
        Option("to", "End this long after the start of the run.", "DURATION", stored_as="end"),
        RANKS,
    ),
    write=write,
)
