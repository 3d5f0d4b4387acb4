"""End a run: every rank gets SIGTERM and, after the run's grace, SIGKILL. With --now it gets SIGKILL at once."""

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.facts import Status
from paceline.option import RUN, RUN_DIR, Option, Verb
from paceline.recording.control import ask
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import find_run, first_try, is_below, is_submitted
from paceline.recording.submitted import submitted_job

VERB = Verb(
    "stop",
    __doc__ or "",
    (
        ("paceline stop", "ask the newest run of this directory to end"),
        ("paceline stop r-7f3a91 --now", "kill every rank of one run at once"),
    ),
    (
        RUN,
        RUN_DIR,
        Option("now", "Send SIGKILL at once, without grace."),
    ),
    page="""\
The grace is `--stop-grace` of the run. A submitted job is ended through its engine. Any other job is ended on the
machine of the run's first host. Without `RUN` it is the newest run of this directory, never one that is recorded
elsewhere. Only the user who started a run can end it.""",
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of the wish to end a run."""

    run_id: str
    """Id of the run."""
    accepted: bool
    """Whether the run was told to end, and accepted it."""
    ended: bool
    """Whether it had ended already."""
    status: Status
    """Its status before."""
    exit_code: int | None
    """Its exit code, if it had ended."""
    how: str
    """What happens now, or why it did not accept it."""


def run(args: argparse.Namespace) -> int:
    found = stopped(_found(args.run, args.run_dir), now=args.now)
    if args.json:
        print(json.dumps(stop_facts(found, now=args.now)))
    elif found.ended:
        code = "" if found.exit_code is None else f", exit {found.exit_code}"
        print(f"{found.run_id} has already ended: {found.status}{code}", file=sys.stderr)
    elif found.accepted:
        print(f"{found.run_id} is told to stop{found.how}", file=sys.stderr)
    else:
        print(f"{found.run_id} did not accept it: {found.how}", file=sys.stderr)
    return 0 if found.ended or found.accepted else 1


def stop_told(path: Path) -> str:
    """Tell a run to end, with its grace, and say in words what became of that.

    Raises:  as stopped
    """
    found = stopped(path, now=False)
    if found.ended:
        return f"{found.run_id} has already ended: {found.status}"
    return (
        f"{found.run_id} is told to stop{found.how}"
        if found.accepted
        else f"{found.run_id} did not accept it: {found.how}"
    )


def stop_facts(found: Stopped, *, now: bool) -> dict[str, Any]:
    """The answer for a program. `now`: it was to end without grace."""
    facts = {name: value for name, value in asdict(found).items() if name != "how"}
    return {"schema": "paceline.stop/2", **facts, "now": now}


def stopped(path: Path, *, now: bool) -> Stopped:
    """Tell a run to end; a submitted job through its engine. It does not wait for the end.

    Raises:  UsageError U19, U25: it cannot be reached from here, or is another user's; HostLost U19: its agent is gone
             PacelineError: the engine cannot be asked
    """
    if is_submitted(path):
        return _cancelled(first_try(path), now=now)
    found, _, _ = read_run((RunDirectory(path),))
    ended = found.status in (Status.COMPLETED, Status.STOPPED) or (
        found.status is Status.FAILED and found.finished_ns is not None
    )
    if ended:
        return Stopped(found.id, False, True, found.status, found.exit_code, "")
    answer = ask(found, {"command": "stop", "now": now})
    asked = answer.get("ok") is True
    how = ": SIGKILL to every rank" if now else ": SIGTERM to every rank, SIGKILL after its grace"
    said = how if asked else str(answer.get("error", "no reason given"))
    return Stopped(found.id, asked, False, found.status, found.exit_code, said)


def _cancelled(run_dir: Path, *, now: bool) -> Stopped:
    """End a job that an engine runs, wherever it runs."""
    job = submitted_job(run_dir, os.environ)
    seen = job.observe()
    if not seen.ended:
        job.cancel(now=now)
    return Stopped(run_dir.name, not seen.ended, seen.ended, seen.status, seen.exit_code, ", through its engine")


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
            next="paceline ps",
        )
    return path
