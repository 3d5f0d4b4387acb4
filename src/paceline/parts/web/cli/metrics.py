"""`paceline report --format prometheus`: a run in Prometheus' text format, for a scrape or node_exporter's textfile collector."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.output_file import write_output
from paceline.cli.parsing import find_directories
from paceline.cli.values import counted
from paceline.cli.why import judge_run
from paceline.facts import Run
from paceline.option import Option
from paceline.part import ReportFormat
from paceline.parts.web.views.metrics import Metric, metrics, metrics_facts, metrics_text
from paceline.recording.jsonl import ReadJsonLines, read_json_lines
from paceline.views.documents import json_text
from paceline.views.host_load import host_loads
from paceline.views.pace import pace
from paceline.views.status import run_lasts


def metrics_of(
    directories: Sequence[Path], read: ReadJsonLines = read_json_lines, ranks: int | None = None
) -> tuple[Run, tuple[Metric, ...]]:
    """A run and its metrics, with so many of its slowest ranks; None: of all ranks. `read`: as in evidence().

    Raises:  as judge_run
    """
    now_ns = time.time_ns()
    case, diagnosis, found = judge_run(directories, now_ns=now_ns, read=read)
    now = pace(found.ranks, ended=not run_lasts(found.run))
    loads = host_loads(found.hosts, found.telemetry)
    count = len(now.ranks) if ranks is None else ranks
    return found.run, metrics(found, case, diagnosis, now, loads, now_ns=now_ns, ranks=count)


def write(args: argparse.Namespace) -> int:
    """Print the metrics, or write them to the file that the user named.

    Raises:  UsageError U03: --worst is no number; U22: the file cannot be written; as find_directories and judge_run
    """
    worst = counted("--worst", args.worst, zero=True)
    directories = find_directories(args, "paceline report --format prometheus")
    run, made = metrics_of(directories, ranks=worst)
    text = json_text(metrics_facts(made, run)) + "\n" if args.json else metrics_text(made)
    write_output(args.save or "-", text.encode(), "-o /tmp/paceline.prom")
    return 0


FORMAT = ReportFormat(
    about="""\
Text format 0.0.4, to standard output without `-o`, for node_exporter's textfile collector or a scrape. Each call reads the recording,
which costs the job nothing. Counters do not fall over restarts. What is not known has no sample. The names are on [the page about
metrics](howto/metrics.md).""",
    options=(Option("worst", "So many of the slowest ranks get samples of their own; 0: none.", "N", default="8"),),
    write=write,
)
