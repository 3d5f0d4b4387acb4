"""Write a run as one page of HTML that loads nothing: verdict, pace, late ranks, machines, stacks, logs; or for other programs."""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.cli.output_file import write_output
from paceline.cli.parsing import find_directories, refuse_other_forms
from paceline.cli.progress import ProgressLine
from paceline.cli.values import above_zero
from paceline.cli.why import judge_run
from paceline.diagnosis.case import Case
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import Evidence
from paceline.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb, section
from paceline.part import parts
from paceline.recording.clocks import HostClocks
from paceline.recording.evidence import evidence
from paceline.recording.host_prices import host_price
from paceline.recording.jsonl import ReadJsonLines, read_json_lines
from paceline.recording.lateness import late_rows
from paceline.recording.layout import RunDirectory
from paceline.recording.log_tails import LogEnd, log_ends
from paceline.recording.step_columns import TimeAxis, step_columns
from paceline.views.host_load import host_loads, run_loads
from paceline.views.pace import pace
from paceline.views.report.facts import COLUMNS, Recorded, page_facts
from paceline.views.report.page import page_html
from paceline.views.report.redaction import command_without_secrets, redacted
from paceline.views.status import run_lasts

_FORMATS = {name: one for part in parts() for name, one in part.report_formats().items()}
_OF_THE_PAGE = (
    Option("no-logs", "Leave out what the ranks wrote."),
    Option(
        "redact",
        "Leave out values behind names like TOKEN, and credentials in URLs, everywhere. In the command line they always are.",
    ),
    Option(
        "price",
        "What one host costs in an hour, in US dollars, where the recording does not say it.",
        "USD_PER_HOUR",
    ),
)
VERB = Verb(
    "report",
    __doc__ or "",
    (
        ("paceline report", "the newest run here, as report-RUN.html"),
        ("paceline report --format trace --from 5m --to 6m", "a minute of every rank, for ui.perfetto.dev"),
    ),
    (
        RUN,
        Option("format", "What is written.", choices=("html", *_FORMATS), default="html"),
        Option("save", "The file to write; - is standard output.", "FILE", letter="o", default_text="named by the run"),
        RUN_DIR,
        FURTHER_DIRECTORIES,
        *section("--format html", *_OF_THE_PAGE),
        *(row for name, one in _FORMATS.items() for row in section(f"--format {name}", *one.options)),
    ),
    section_texts={f"--format {name}": one.about for name, one in _FORMATS.items()},
    page="""\
The page says first what happened and what to do, in the words of `paceline why`. It needs no network, so it opens from a disk and from a
mail. Its script adds zoom, one cursor through all curves, search and sorting; where a policy forbids scripts, everything else is there.
Of a run that lasts it is the state of now. At the end it says what it left out.""",
    notes="`--json` prints `paceline.page/1`, what the page is made of: [its keys](schemas.md#pacelinepage1); with `--format prometheus` "
    "`paceline.metrics/1`: [its keys](schemas.md#pacelinemetrics1); with `--format trace` the Trace Event Format, with its own keys.",
)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much of a recording a page is made of, in bytes."""

    telemetry_bytes: int = 64 << 20
    """Telemetry of all hosts together: hours of one host, read within seconds."""
    step_bytes: int = 256 << 20
    """Single steps; of longer runs sums are read."""
    log_bytes: int = 2 << 20
    """What the ranks wrote, all together."""
    stream_bytes: int = 64 << 10
    """What one of them wrote."""


# Of a page that is made again and again by a server, which keeps the telemetry in memory.
LIVE_LIMITS = ReadLimits(telemetry_bytes=4 << 20, step_bytes=16 << 20, log_bytes=128 << 10, stream_bytes=8 << 10)


def run(args: argparse.Namespace) -> int:
    """Write the page, or the run in another format.

    Raises:  UsageError U22: the file cannot be written; U03: an option of another format; as find_directories and judge_run
    """
    options = {"html": _OF_THE_PAGE} | {name: one.options for name, one in _FORMATS.items()}
    forms = {f"--format {name}": [row.name for row in rows] for name, rows in options.items()}
    refuse_other_forms(args, VERB, f"--format {args.format}", forms)
    if args.format in _FORMATS:
        return _FORMATS[args.format].write(args)
    price = None if args.price is None else above_zero("--price", args.price)
    directories = find_directories(args, "paceline report")
    with ProgressLine("reading the recording", shown=not args.json):
        facts = page_facts(recorded(directories, with_logs=not args.no_logs, usd_per_hour=price))
    facts["identity"]["command"] = command_without_secrets(facts["identity"]["command"])
    if args.redact:
        facts = redacted(facts)
    if args.json:
        print(json.dumps(facts))
        return 0
    name = args.save or f"report-{facts['identity']['run_id']}.html"
    write_output(name, page_html(facts).encode(), "-o /tmp/report.html")
    return 0


def recorded(
    paths: Sequence[Path],
    *,
    with_logs: bool,
    usd_per_hour: float | None = None,
    read: ReadJsonLines = read_json_lines,
    limits: ReadLimits = ReadLimits(),
) -> Recorded:
    """What the page of a run is made of. `read`: as in evidence().

    Raises:  as judge_run
    """
    now_ns = time.time_ns()
    case, diagnosis, _ = judge_run(paths, now_ns=now_ns, read=read)
    found = evidence(*paths, recent=True, telemetry_bytes=limits.telemetry_bytes, read=read)
    lasts = run_lasts(found.run)
    axis = TimeAxis(*_span(found, now_ns), COLUMNS)
    directories = [RunDirectory(path) for path in paths]
    clocks = HostClocks(found.events)
    steps, not_read = step_columns(directories, axis, clocks=clocks, most_bytes=limits.step_bytes)
    late, late_not_read = late_rows(directories, found.events, axis)
    logs: list[LogEnd] = []
    no_logs = ["what the ranks wrote (--no-logs)"]
    if with_logs:
        logs, no_logs = log_ends(
            directories,
            case.attempt,
            _asked_about(case, diagnosis),
            most_bytes=limits.log_bytes,
            stream_bytes=limits.stream_bytes,
            clocks=clocks,
        )
    price = (usd_per_hour, "--price") if usd_per_hour is not None else host_price(directories, found.hosts)
    return Recorded(
        evidence=found,
        case=case,
        diagnosis=diagnosis,
        pace=pace(found.ranks, ended=not lasts),
        loads=(host_loads if lasts else run_loads)(found.hosts, found.telemetry),
        axis=axis,
        steps=steps,
        late=late,
        logs=logs,
        not_shown=[*not_read, *late_not_read, *no_logs, *clocks.texts()],
        now_ns=now_ns,
        usd_per_hour=None if price is None else price[0],
        price_from="" if price is None else price[1],
        hosts_read=_hosts_read(directories),
    )


def recorded_live(paths: Sequence[Path], read: ReadJsonLines) -> Recorded:
    """The same for a page that is made again and again.

    Raises:  as judge_run
    """
    return recorded(paths, with_logs=True, read=read, limits=LIVE_LIMITS)


def _hosts_read(directories: Sequence[RunDirectory]) -> frozenset[str]:
    """The hosts that have a directory of their own here."""
    return frozenset(path.name for one in directories for path in one.path.glob("hosts/*") if path.is_dir())


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
