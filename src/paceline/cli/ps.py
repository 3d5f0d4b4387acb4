"""List the runs of this directory, and those that this user started elsewhere on this machine; or delete old recordings."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paceline.cli.parsing import refuse_other_forms
from paceline.cli.terminal import ascii_only, room
from paceline.diagnosis.restart_costs import totals
from paceline.diagnosis.run_state import run_state
from paceline.errors import UsageError
from paceline.facts import Status
from paceline.option import RUN_DIR, Option, Verb, section
from paceline.process_identity import start_ticks
from paceline.recording.evidence import listed_ranks, read_run
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.plain_files import open_plain
from paceline.recording.runs import (
    KnownRun,
    first_try,
    is_of_a_measurement,
    is_submitted,
    list_runs,
    read_document,
    runs_root,
)
from paceline.views.documents import json_text
from paceline.views.ps import ListedRun, ps_facts, ps_text
from paceline.views.status import run_lasts

NEWEST = 20
PRUNING = "old recordings"
VERB = Verb(
    "ps",
    __doc__ or "",
    (
        ("paceline ps", "runs that last, and the newest 20"),
        ("paceline ps --prune --older-than 30d", "delete the recordings of old runs"),
    ),
    (
        Option("all", f"Every run, not only those that last and the newest {NEWEST}; those of the bench too."),
        Option("status", "Only runs of this status. May be repeated.", "|".join(Status), default=(), repeatable=True),
        RUN_DIR,
        *section(
            PRUNING,
            Option("prune", "Delete the recordings of runs of this directory that have ended."),
            Option("older-than", "Only runs whose newest file is older than this.", "DURATION"),
            Option("keep", "The newest N runs stay.", "N"),
            Option("dry-run", "Delete nothing; list what would be deleted."),
        ),
    ),
    section_texts={
        PRUNING: "A run stays if it may still be running, if its engine cannot be asked, or if another user owns it. "
        "All tries of a job go together."
    },
    page="""\
It shows status, ranks, step, pace and age of each run, and the engine where a run was submitted. An engine is asked
about each of its jobs that has not ended. If an engine does not answer, `paceline ps` names it on stderr.""",
)
# Bytes at the end of the events file: the last event says how a run ended.
_LAST_BYTES = 4096


_FORMS = {"": ("all", "status"), "--prune": ("older-than", "keep", "dry-run")}


def run(args: argparse.Namespace) -> int:
    """Raises:  UsageError U03: options that do not belong together, or no status; as prune"""
    refuse_other_forms(args, VERB, "--prune" if args.prune else "", _FORMS)
    if args.prune:
        from paceline.cli.prune import prune

        return prune(args)
    wanted = [_status(text) for text in args.status]
    known = list_runs(Path(args.run_dir) if args.run_dir else None)
    runs = [one for one in _chosen(known, args.all or bool(wanted)) if not wanted or one.run.status in wanted]
    if args.json:
        print(json_text(ps_facts(runs)))
    else:
        here = os.path.realpath(args.run_dir or runs_root())
        print(ps_text(runs, time.time_ns(), here=here, width=room(sys.stdout), ascii_only=ascii_only(sys.stdout)))
    return 0


def _status(text: str) -> Status:
    """The status with this name; capitals do not matter.

    Raises:  UsageError U03: there is no such status
    """
    for status in Status:
        if status.lower() == text.lower():
            return status
    raise UsageError(
        "U03",
        f"--status {text!r} is no status of a run",
        saw=f"there are {', '.join(Status)}",
        next="--status Failed",
    )


def _chosen(known: Sequence[KnownRun], everything: bool) -> list[ListedRun]:
    chosen: list[ListedRun] = []
    newest = [one.path for one in known if not is_of_a_measurement(one.path)][:NEWEST]
    for candidate in known:
        is_shown = everything or candidate.path in newest
        if is_shown or _may_last(candidate):
            one = listed(candidate.path)
            if is_shown or run_lasts(one.run):
                chosen.append(one)
    return chosen


def listed(path: Path) -> ListedRun:
    """The run of a recording as it is now. An engine is asked about a submitted job that has not ended."""
    if is_submitted(path) and run_lasts(read_run((RunDirectory(path),))[0]):
        _ask_the_engine(path)
    return recorded_state(path)


def recorded_state(path: Path) -> ListedRun:
    """The run of a recording as far as it is recorded. No engine is asked."""
    directory = RunDirectory(path)
    found, events, _ = read_run((directory,), recent=True)
    ranks = listed_ranks((directory,), events)
    return ListedRun(found, run_state(found, events), ranks, _engine_of(path), totals(events))


def _ask_the_engine(path: Path) -> None:
    from paceline.recording.submitted import brought_up_to_date

    if why_not := brought_up_to_date(path, os.environ):
        print(f"not judged: {path.name}, whose engine cannot be asked: {why_not}", file=sys.stderr)


def _may_last(candidate: KnownRun) -> bool:
    # This cheap check comes first, so that a thousand old runs need no reading of a thousand event files.
    if is_submitted(candidate.path):
        return not _has_end(candidate.path)
    pid = candidate.document.get("agent_pid")
    return isinstance(pid, int) and start_ticks(pid) is not None


def _has_end(path: Path) -> bool:
    try:
        with open_plain(RunDirectory(path).events_file) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            return b'"run_finished"' in file.read()
    except OSError:
        return False


def _engine_of(path: Path) -> str:
    if not is_submitted(path):
        return ""
    return str(read_document(first_try(path) / SUBMISSION_FILE).get("engine") or "")
