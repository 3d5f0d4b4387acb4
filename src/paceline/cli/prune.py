"""`paceline ps --prune`: deletes recordings of runs of this directory that have ended."""

import argparse
import os
import sys
from pathlib import Path

from paceline.cli.terminal import ascii_only, room
from paceline.cli.values import counted, duration
from paceline.errors import PacelineError, UsageError
from paceline.recording.evidence import read_run
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.prune import delete, delete_remains, old_runs
from paceline.recording.runs import first_try, read_document, runs_root
from paceline.views.documents import json_text
from paceline.views.prune import prune_facts, prune_text
from paceline.views.status import run_lasts


def prune(args: argparse.Namespace) -> int:
    """Delete the chosen recordings and list them.

    Raises:  UsageError U03: nothing says what may go; U22: a recording cannot be deleted
    """
    if args.older_than is None and args.keep is None:
        raise UsageError(
            "U03",
            "nothing says which recordings may be deleted",
            saw="neither --older-than nor --keep",
            next="--older-than 30d --dry-run",
        )
    root = Path(args.run_dir) if args.run_dir else runs_root()
    chosen = old_runs(
        root,
        _lasts,
        older_than_seconds=duration("--older-than", args.older_than, example="30d") if args.older_than else 0.0,
        keep=counted("--keep", args.keep, zero=True) if args.keep else 0,
    )
    refused: UsageError | None = None
    if not args.dry_run:
        for kept in delete_remains(root):
            print(f"paceline  {kept}", file=sys.stderr)
        for one in chosen:
            try:
                delete(one)
            except OSError as error:
                where = error.filename or one.directories[0]
                refused = refused or UsageError(
                    "U22", f"{where} cannot be deleted", saw=error.strerror or str(error), next=f"ls -ld {where}"
                )
    if args.json:
        print(json_text(prune_facts(chosen, dry_run=args.dry_run)))
    else:
        width, plain = room(sys.stdout), ascii_only(sys.stdout)
        print(prune_text(chosen, dry_run=args.dry_run, width=width, ascii_only=plain))
    if refused is not None:
        raise refused
    return 0


def _lasts(path: Path) -> bool:
    """Whether this run may still be running. A submitted job with retries may start again after its last recorded end."""
    lasts = run_lasts(read_run((RunDirectory(path),))[0])
    first = first_try(path)
    job = read_document(first / SUBMISSION_FILE).get("job")
    if not isinstance(job, dict) or not (lasts or job.get("retries")):
        return lasts
    from paceline.recording.submitted import submitted_job

    try:
        return not submitted_job(first, os.environ).observe().ended
    except PacelineError as error:
        print(f"not judged: {first.name}, whose engine cannot be asked: {error.what}: {error.saw}", file=sys.stderr)
        return True
