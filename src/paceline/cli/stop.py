"""End a run: every rank gets SIGTERM and, after the run's grace, SIGKILL. With --now it gets SIGKILL at once."""

import argparse
import json
import os
import sys
from pathlib import Path

from paceline.cli.option import RUN, Option, Verb
from paceline.errors import UsageError
from paceline.facts import Status
from paceline.launch.engines import jobs
from paceline.recording.control import ask
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import find_run, first_try, is_below, is_submitted

VERB = Verb(
    "stop",
    __doc__ or "",
    (
        ("paceline stop", "ask the newest run of this directory to end"),
        ("paceline stop r-7f3a91 --now", "kill every rank of one run at once"),
    ),
    (
        RUN,
        Option(
            "run-dir",
            "The directory below which the run is recorded, as `paceline run` was given it.",
            "DIR",
            default_text=".paceline/runs",
        ),
        Option("now", "Send SIGKILL at once, without grace."),
    ),
    page="""\
The grace is `--stop-grace` of the run. A submitted job is ended through its engine. Any other job is ended on the
machine of the run's first host. Without `RUN` it is the newest run of this directory, never one that is recorded
elsewhere. Only the user who started a run can end it.""",
)


def run(args: argparse.Namespace) -> int:
    path = _found(args.run, args.run_dir)
    if is_submitted(path):
        return _cancel(first_try(path), args)
    found, _, _ = read_run((RunDirectory(path),))
    ended = found.status in (Status.COMPLETED, Status.STOPPED) or (
        found.status is Status.FAILED and found.finished_ns is not None
    )
    if not ended:
        answer = ask(found, {"command": "stop", "now": args.now})
        accepted = answer.get("ok") is True
    else:
        accepted = False
    if args.json:
        facts = {"schema": "paceline.stop/1", "run": found.id, "asked": accepted, "now": args.now, "ended": ended}
        print(json.dumps({**facts, "status": str(found.status), "exit_code": found.exit_code}))
    elif ended:
        code = "" if found.exit_code is None else f", exit {found.exit_code}"
        print(f"{found.id} has already ended: {found.status}{code}", file=sys.stderr)
    elif accepted:
        how = "SIGKILL to every rank" if args.now else "SIGTERM to every rank, SIGKILL after its grace"
        print(f"{found.id} is told to stop: {how}", file=sys.stderr)
    else:
        print(f"{found.id} did not accept it: {answer.get('error', 'no reason given')}", file=sys.stderr)
    return 0 if ended or accepted else 1


def _found(text: str | None, run_dir: str | None) -> Path:
    """The run that `text` names. Without an id, the run must be recorded below this directory, or below the named directory.

    Raises:  UsageError U09: no such run, or the only run belongs to another directory and no id was given
    """
    root = Path(run_dir) if run_dir else None
    path = find_run(text, root, verb="paceline stop")
    here = root or Path.cwd()
    # A directory's own folder of runs may be a link to a larger disk. A folder shared by all directories is not this directory's own.
    if text is None and not (is_below(path, here) or is_below(path, here / ".paceline")):
        raise UsageError(
            "U09",
            "the newest run that can be found is not recorded in this directory",
            saw=f"{path}, not below {here}",
            next=f"paceline stop {path.name}",
        )
    return path


def _cancel(run_dir: Path, args: argparse.Namespace) -> int:
    """End a job that an engine runs, wherever it runs."""
    seen = jobs.observe(run_dir, os.environ)
    if not seen.ended:
        jobs.cancel(run_dir, os.environ, now=args.now)
    if args.json:
        facts = {
            "schema": "paceline.stop/1",
            "run": run_dir.name,
            "asked": not seen.ended,
            "now": args.now,
            "ended": seen.ended,
        }
        print(json.dumps({**facts, "status": str(seen.status), "exit_code": seen.exit_code}))
    elif seen.ended:
        code = "" if seen.exit_code is None else f", exit {seen.exit_code}"
        print(f"{run_dir.name} has already ended: {seen.status}{code}", file=sys.stderr)
    else:
        print(f"{run_dir.name} is told to stop, through its engine", file=sys.stderr)
    return 0
