"""Write a run as one page of HTML: verdict, pace, late ranks, machines, stacks, logs. The file loads nothing and runs nothing."""

import argparse
import json
import time
from pathlib import Path

from paceline.cli.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb
from paceline.cli.output_file import write_output
from paceline.cli.parsing import find_directories
from paceline.cli.why import judge_run
from paceline.diagnosis.case import Case
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import Evidence
from paceline.recording.evidence import evidence
from paceline.recording.layout import RunDirectory
from paceline.recording.log_tails import LogEnd, log_ends
from paceline.recording.step_columns import TimeAxis, step_columns
from paceline.views.host_load import host_loads, run_loads
from paceline.views.pace import pace
from paceline.views.report.facts import COLUMNS, Recorded, page_facts
from paceline.views.report.page import page_html
from paceline.views.report.redaction import command_without_secrets, redacted
from paceline.views.status import run_lasts

VERB = Verb(
    "report",
    __doc__ or "",
    (
        ("paceline report", "the newest run here, as report-RUN.html"),
        ("paceline report r-7f3a91 -o run.html --no-logs", "one file to send, without what the ranks wrote"),
    ),
    (
        RUN,
        Option("html", "The file to write; - is standard output.", "FILE", letter="o", default_text="report-RUN.html"),
        Option("no-logs", "Leave out what the ranks wrote."),
        Option(
            "redact",
            "Leave out values behind names like TOKEN, and credentials in URLs, everywhere. In the command line they always are.",
        ),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
    page="""\
The page says first what happened and what to do, in the words of `paceline why`. It needs no network and no script, so it opens from a
disk, from a mail, and where a strict policy forbids scripts. Of a run that lasts it is the state of now. At the end it says what it
left out.""",
    notes="`--json` prints `paceline.page/1`, what the page is made of: [its keys](schemas.md#pacelinepage1).",
)
# Bytes of telemetry of all hosts together: hours of one host, read within seconds.
_MOST_TELEMETRY_BYTES = 64 << 20
_MOST_LOG_BYTES, _MOST_STREAM_BYTES = 2 << 20, 64 << 10


def run(args: argparse.Namespace) -> int:
    """Write the page.

    Raises:  UsageError U22: the file cannot be written; as find_directories and judge_run
    """
    directories = find_directories(args, "paceline report")
    facts = page_facts(_recorded(directories, with_logs=not args.no_logs))
    facts["identity"]["command"] = command_without_secrets(facts["identity"]["command"])
    if args.redact:
        facts = redacted(facts)
    if args.json:
        print(json.dumps(facts))
        return 0
    name = args.html or f"report-{facts['identity']['run_id']}.html"
    write_output(name, page_html(facts).encode(), "paceline report -o /tmp/report.html")
    return 0


def _recorded(paths: list[Path], *, with_logs: bool) -> Recorded:
    now_ns = time.time_ns()
    case, diagnosis, _ = judge_run(paths, now_ns=now_ns)
    found = evidence(*paths, recent=True, telemetry_bytes=_MOST_TELEMETRY_BYTES)
    lasts = run_lasts(found.run)
    axis = TimeAxis(*_span(found, now_ns), COLUMNS)
    directories = [RunDirectory(path) for path in paths]
    steps, not_read = step_columns(directories, axis)
    logs: list[LogEnd] = []
    no_logs = ["what the ranks wrote (--no-logs)"]
    if with_logs:
        logs, no_logs = log_ends(
            directories,
            case.attempt,
            _asked_about(case, diagnosis),
            most_bytes=_MOST_LOG_BYTES,
            stream_bytes=_MOST_STREAM_BYTES,
        )
    return Recorded(
        evidence=found,
        case=case,
        diagnosis=diagnosis,
        pace=pace(found.ranks, ended=not lasts),
        loads=(host_loads if lasts else run_loads)(found.hosts, found.telemetry),
        axis=axis,
        steps=steps,
        logs=logs,
        not_shown=[*not_read, *no_logs],
        now_ns=now_ns,
    )


def _span(found: Evidence, now_ns: int) -> tuple[int, int]:
    """From the start of the run to its end, as far as they are known."""
    stamps = [event["t_ns"] for event in found.events if isinstance(event.get("t_ns"), int)]
    begin = found.run.started_ns or min(stamps, default=now_ns)
    end = found.run.finished_ns or (now_ns if run_lasts(found.run) else max(stamps, default=begin))
    return begin, max(end, begin + 1)


def _asked_about(case: Case, diagnosis: Diagnosis) -> frozenset[int]:
    """The ranks whose logs a reader wants first: those of the findings, and those that failed."""
    failed = {exit.rank for exit in case.exits if exit.code}
    return frozenset(failed.union(*(finding.ranks for finding in diagnosis.findings)))
