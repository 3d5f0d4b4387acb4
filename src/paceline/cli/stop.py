"""End a run: SIGTERM to every rank and, after its grace, SIGKILL; with --now SIGKILL at once."""

import argparse
import json
import sys

from paceline.facts import Status
from paceline.recording.control import ask
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import find_run

EXAMPLES = (
    ("paceline stop", "ask the newest run of this directory to end"),
    ("paceline stop r-7f3a91 --now", "kill every rank of one run at once"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="id, beginning of an id, or directory (the newest run here)"
    )
    parser.add_argument("--now", action="store_true", help="SIGKILL at once, no grace")


def run(args: argparse.Namespace) -> int:
    found, _, _ = read_run((RunDirectory(find_run(args.run)),))
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
