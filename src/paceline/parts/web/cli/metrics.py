"""Print a run in Prometheus' text format, for node_exporter's textfile collector or for a scrape by a program of yours."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.parsing import find_directories
from paceline.cli.values import counted
from paceline.cli.why import judge_run
from paceline.errors import UsageError
from paceline.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb
from paceline.parts.web.views.metrics import Metric, metrics, metrics_facts, metrics_text
from paceline.recording.jsonl import ReadJsonLines
from paceline.views.documents import json_text
from paceline.views.host_load import host_loads
from paceline.views.pace import pace
from paceline.views.status import run_lasts

VERB = Verb(
    "metrics",
    __doc__ or "",
    (
        ("paceline metrics", "the newest run here"),
        ("paceline metrics --tensorboard logs --follow", "CPU, memory, network, GPU and pace in TensorBoard"),
    ),
    (
        RUN,
        Option("worst", "So many of the slowest ranks get samples of their own; 0: none.", "N", default="8"),
        Option(
            "tensorboard",
            "Write TensorBoard event files of the machines' and the run's figures below this directory.",
            "DIR",
        ),
        Option("follow", "With --tensorboard: add to the files every 10 s until the run ends.", letter="f"),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
    page="""\
Text format 0.0.4. Each call reads the recording, so a call in each scrape interval costs the job nothing but the reading. Counters do
not fall over restarts. What is not known has no sample. The number of series does not grow with the ranks: those of ranks are the slowest
`--worst`. With `--tensorboard` nothing is printed but the folder, and the axis of steps is seconds since the start of the run; nothing of
the script's own is in the files. The names are on [the page about metrics](howto/metrics.md).""",
    notes="`--json` prints `paceline.metrics/1`: [its keys](schemas.md#pacelinemetrics1).",
)


def metrics_of(directories: Sequence[Path], read: ReadJsonLines, ranks: int | None) -> tuple[Metric, ...]:
    """The metrics of a run, with so many of its slowest ranks; None: of all ranks. `read`: as in evidence().

    Raises:  as judge_run
    """
    now_ns = time.time_ns()
    case, diagnosis, found = judge_run(directories, now_ns=now_ns, read=read)
    now = pace(found.ranks, ended=not run_lasts(found.run))
    loads = host_loads(found.hosts, found.telemetry)
    count = len(now.ranks) if ranks is None else ranks
    return metrics(found, case, diagnosis, now, loads, now_ns=now_ns, ranks=count)


def run(args: argparse.Namespace) -> int:
    """Print the metrics.

    Raises:  UsageError P02, U03: --worst is no number; as find_directories and judge_run
    """
    worst = counted("--worst", args.worst, zero=True)
    if args.follow and not args.tensorboard:
        raise UsageError("U03", "--follow is for --tensorboard", next="paceline metrics --tensorboard DIR --follow")
    directories = find_directories(args, "paceline metrics")
    if args.tensorboard:
        from paceline.parts.web.cli.tensorboard import write_event_files

        print(write_event_files(directories, Path(args.tensorboard), follow=args.follow))
        return 0
    now_ns = time.time_ns()
    case, diagnosis, found = judge_run(directories, now_ns=now_ns)
    now = pace(found.ranks, ended=not run_lasts(found.run))
    loads = host_loads(found.hosts, found.telemetry)
    made = metrics(found, case, diagnosis, now, loads, now_ns=now_ns, ranks=worst)
    if args.json:
        print(json_text(metrics_facts(made, found.run)))
    else:
        sys.stdout.write(metrics_text(made))
    return 0
