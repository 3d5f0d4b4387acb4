"""Print a run in Prometheus' text format, for node_exporter's textfile collector or for a scrape by a program of yours."""

import argparse
import json
import sys
import time

from paceline.cli.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb
from paceline.cli.parsing import find_directories
from paceline.cli.values import counted
from paceline.cli.why import judge_run
from paceline.views.host_load import host_loads
from paceline.views.metrics import metrics, metrics_facts, metrics_text
from paceline.views.pace import pace
from paceline.views.status import run_lasts

VERB = Verb(
    "metrics",
    __doc__ or "",
    (
        ("paceline metrics", "the newest run here"),
        ("paceline metrics --worst 0", "without samples of single ranks"),
    ),
    (
        RUN,
        Option("worst", "So many of the slowest ranks get samples of their own; 0: none.", "N", default="8"),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
    page="""\
Text format 0.0.4. Each call reads the recording, so a call in each scrape interval costs the job nothing but the reading. Counters do
not fall over restarts. What is not known has no sample. The number of series does not grow with the ranks: those of ranks are the slowest
`--worst`. The names are on [the page about metrics](howto/metrics.md).""",
    notes="`--json` prints `paceline.metrics/1`: [its keys](schemas.md#pacelinemetrics1).",
)


def run(args: argparse.Namespace) -> int:
    """Print the metrics.

    Raises:  UsageError P02, U03: --worst is no number; as find_directories and judge_run
    """
    worst = counted("--worst", args.worst, zero=True)
    directories = find_directories(args, "paceline metrics")
    now_ns = time.time_ns()
    case, diagnosis, found = judge_run(directories, now_ns=now_ns)
    now = pace(found.ranks, ended=not run_lasts(found.run))
    loads = host_loads(found.hosts, found.telemetry)
    made = metrics(found, case, diagnosis, now, loads, now_ns=now_ns, ranks=worst)
    if args.json:
        print(json.dumps(metrics_facts(made, found.run)))
    else:
        sys.stdout.write(metrics_text(made))
    return 0
