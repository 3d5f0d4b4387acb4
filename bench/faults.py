"""Does a broken job explain itself? Every fault of examples/broken for real, several times, beside torchrun; writes docs/faults.md.

    .venv/bin/python bench/faults.py                       everything: hours; stop it and start it again as you like
    .venv/bin/python bench/faults.py --only N --repeat 1   the faults whose code or script begins with N, once each
    .venv/bin/python bench/faults.py --report-only         only the page, from what is there

Each outcome is one line of .paceline-faults/COMMIT.jsonl; what is there already is not run again. The job's directory is kept
beside it where the cause or the rank was missed. Root is needed for the faults of hosts, networks and limits; without it they
are left out and listed. `--only healthy` watches healthy jobs alone.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests" / "faults")]

from baseline import GROUP_TIMEOUT_SECONDS, can_be_compared, first_trial, observe_torchrun  # noqa: E402
from catalogue import ONE_HOST, Fault, Trial, faults, variants  # noqa: E402
from harness import observe  # noqa: E402
from report import report  # noqa: E402
from scoring import Outcome  # noqa: E402

HEALTHY_PIECE_SECONDS = 300.0
NEVER = 10**9
HEALTHY_TRIALS = (*ONE_HOST[:1], Trial(world_size=4, hosts=2), Trial(world_size=3, hosts=3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="CODE", help="beginning of a code or script name; may be repeated"
    )
    parser.add_argument("--repeat", type=int, default=3, help="trials per fault (default 3)")
    parser.add_argument("--healthy-minutes", type=float, default=60.0, help="how long healthy jobs are watched")
    parser.add_argument("--skip-torchrun", action="store_true")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--results", type=Path, help="JSONL file to go on with (default .paceline-faults/COMMIT.jsonl)")
    parser.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "faults.md", help="page to write")
    args = parser.parse_args()

    commit = commit_of(REPOSITORY)
    results = Results(args.results or REPOSITORY / ".paceline-faults" / f"{commit}.jsonl")
    rows = [row for row in faults() if chosen(row, args.only)]
    if not args.report_only:
        try:
            for outcome in trials(rows, results, args):
                results.append(outcome)
                print(line(outcome), flush=True)
        except KeyboardInterrupt:
            print(f"stopped; go on with the same command ({results.path})", file=sys.stderr)
            return 130
    titles = {row.name: row.what for row in faults()}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    page = report(results.all(), titles, commit=commit, date=date, group_timeout=GROUP_TIMEOUT_SECONDS)
    args.page.write_text(page, encoding="utf-8")
    print(f"{args.page} from {results.path}")
    return 0


class Results:
    """Outcomes in a file, one JSON line each, in the order in which they came. A cut last line is as if it had not come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.name == ".paceline-faults":
            (path.parent / ".gitignore").write_text("*\n")

    def all(self) -> list[Outcome]:
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        return [outcome for text in lines if (outcome := outcome_of(text)) is not None]

    def append(self, outcome: Outcome) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome.to_plain()) + "\n")

    def has(self, kind: str, name: str, number: int) -> bool:
        return any((o.kind, o.name, o.number) == (kind, name, number) for o in self.all())

    def keep(self, directory: Path, outcome: Outcome) -> None:
        """The job's directory, for whoever wants to know why the answer was wrong."""
        kept = self.path.with_suffix("") / f"{outcome.kind}-{outcome.name}-{outcome.number}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(directory, kept, symlinks=True, ignore_dangling_symlinks=True)


def outcome_of(text: str) -> Outcome | None:
    """One line of a results file."""
    try:
        plain = json.loads(text)
    except ValueError:
        return None
    return Outcome(**{name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()})


def trials(rows: list[Fault], results: Results, args: argparse.Namespace) -> Iterator[Outcome]:
    """Every trial that has not been made yet: faults and decoys round by round, torchrun, then healthy minutes."""
    for fault, number in variants(rows, args.repeat):
        kind = "decoy" if fault.is_decoy else "fault"
        if results.has(kind, fault.name, number) or not possible(fault):
            continue
        with tempfile.TemporaryDirectory(prefix="paceline-fault-") as folder:
            outcome = observe(fault, fault.trial(number), Path(folder) / "job", number=number)
            if missed(outcome):
                results.keep(Path(folder) / "job", outcome)
            yield outcome
    if not args.skip_torchrun:
        for fault in rows:
            if can_be_compared(fault) and possible(fault) and not results.has("torchrun", fault.name, 0):
                with tempfile.TemporaryDirectory(prefix="paceline-fault-") as folder:
                    yield observe_torchrun(fault, first_trial(fault), Path(folder) / "job")
    if not args.only or "healthy" in args.only:
        yield from healthy(results, args.healthy_minutes)


def healthy(results: Results, minutes: float) -> Iterator[Outcome]:
    """Jobs in which nothing breaks, five minutes each, of different sizes, until they make up so many minutes."""
    (script,) = (row.script for row in faults() if row.name == "n01_asleep")
    number = 0
    left = minutes * 60
    while left > 1:
        if not results.has("healthy", "healthy", number):
            trial = replace(HEALTHY_TRIALS[number % len(HEALTHY_TRIALS)], at_step=NEVER)
            options = {"--steps": str(NEVER)}
            seconds = min(left, HEALTHY_PIECE_SECONDS)
            fault = Fault(name="healthy", code="", what="", script=script, budget_seconds=seconds, options=options)
            with tempfile.TemporaryDirectory(prefix="paceline-fault-") as folder:
                outcome = observe(fault, trial, Path(folder) / "job", number=number, kind="healthy")
                if outcome.alarms:
                    results.keep(Path(folder) / "job", outcome)
                yield outcome
        left -= HEALTHY_PIECE_SECONDS
        number += 1


def missed(outcome: Outcome) -> bool:
    return bool(outcome.cause_right is False or outcome.rank_right is False or outcome.alarms or outcome.problem)


def chosen(fault: Fault, only: list[str] | None) -> bool:
    return not only or any(fault.code.startswith(text.upper()) or fault.name.startswith(text) for text in only if text)


def possible(fault: Fault) -> bool:
    """Whether this user on this machine can inject it; says so where not."""
    if not fault.needs_root or os.geteuid() == 0:
        return True
    print(f"{fault.name}: left out, it needs root", file=sys.stderr)
    return False


def line(outcome: Outcome) -> str:
    """One trial on one line of the terminal."""
    size = f"rank {outcome.rank}/{outcome.world_size}/{outcome.hosts}"
    said = f"{','.join(outcome.codes[:2]) or '-':12} ranks {','.join(map(str, outcome.ranks)) or '-'}"
    times = f"detected {outcome.detected_after_seconds} judged {outcome.judged_after_seconds}"
    alarms = f"  ALARMS {'; '.join(outcome.alarms)}" if outcome.alarms else ""
    right = {None: "", True: "right", False: "WRONG"}
    verdict = (
        f"cause {right[outcome.cause_right]} rank {right[outcome.rank_right]}"
        if outcome.cause_right is not None
        else ""
    )
    stamp = time.strftime("%H:%M:%S")
    return f"{stamp} {outcome.kind:8} {outcome.name:22} {size:12} {said}  {times}  {verdict}{alarms} {outcome.problem}".rstrip()


def commit_of(repository: Path) -> str:
    """The commit whose code is measured, marked where the tree differs from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
