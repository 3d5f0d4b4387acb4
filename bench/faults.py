"""Does a broken job explain itself? Every fault of examples/broken for real, several times, beside torchrun; writes docs/faults.md.

    .venv/bin/python bench/faults.py                       everything, on every torch that is there: hours; stop and start it
    .venv/bin/python bench/faults.py --torch 2.8.0         on that torch alone; `make torch-2.8.0` installs it
    .venv/bin/python bench/faults.py --nccl                with NCCL alone, on 2.13 and 2.15, through a library that stands in for the GPU
    .venv/bin/python bench/faults.py --only N --repeat 1   the faults whose code or script begins with N, once each
    .venv/bin/python bench/faults.py --report-only         only the page, from what is there

Each outcome is one line of ~/.cache/paceline-faults/KEY-TORCH.jsonl (PACELINE_FAULTS names another folder). KEY is a hash of src and
examples/broken: what is there already is not run again, whatever else a commit changes. The job's directory is kept beside it where the
answer was wrong. Root is needed for the faults of hosts, networks and limits; without it they are left out and listed.
With NCCL every fault is tried but those in NOT_ON_NCCL (tests/faults/catalogue.py), and its outcomes are a column of their own.
`--only healthy` watches healthy jobs alone. torchrun is tried on this environment's own torch.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("src", "tests/faults", "tests/torches")]

from baseline import GROUP_TIMEOUT_SECONDS, can_be_compared, first_trial, observe_torchrun  # noqa: E402
from build_fake_gpu import reason_to_skip  # noqa: E402
from catalogue import NCCL_TORCHES, NOT_ON_NCCL, ONE_HOST, Fault, Trial, faults, on_nccl, variants  # noqa: E402
from harness import observe  # noqa: E402
from install_torch import installed  # noqa: E402
from report import report  # noqa: E402
from results import Results, by_torch, in_order, key_of, results_of  # noqa: E402
from scoring import Outcome  # noqa: E402

HEALTHY_PIECE_SECONDS = 300.0
NEVER = 10**9
HEALTHY_TRIALS = (*ONE_HOST[:1], Trial(world_size=4, hosts=2), Trial(world_size=3, hosts=3))
OWN = version("torch").partition("+")[0]
NCCL = "nccl"


@dataclass(frozen=True)
class Tried:
    """One torch, and how often each fault is tried on it. `is_own`: it is this environment's. `nccl`: with NCCL, else with gloo."""

    version: str
    repeat: int
    is_own: bool
    nccl: bool = False

    @property
    def column(self) -> str:
        """Its name in the page and among the results."""
        return f"{self.version} {NCCL}" if self.nccl else self.version


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="CODE", help="beginning of a code or script name; may be repeated"
    )
    parser.add_argument(
        "--torch", action="append", metavar="VERSION", help="may be repeated (default: this one and all installed)"
    )
    parser.add_argument("--nccl", action="store_true", help="with NCCL alone")
    parser.add_argument(
        "--repeat", type=int, help="trials per fault (default 3 on this torch and the newest, 1 on the others)"
    )
    parser.add_argument(
        "--healthy-minutes", type=float, default=40.0, help="how long healthy jobs are watched on each torch"
    )
    parser.add_argument("--skip-torchrun", action="store_true")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "faults.md", help="page to write")
    args = parser.parse_args()

    key = key_of(REPOSITORY)
    if unknown := sorted(set(args.torch or ()) - {OWN, *installed()}):
        parser.error(f"torch {unknown[0]} is not installed: make torch-{unknown[0]}")
    if not args.report_only:
        for tried in torches(args.torch, args.repeat, args.nccl):
            results = results_of(key, tried.column)
            try:
                for outcome in trials([row for row in faults() if chosen(row, args.only)], tried, results, args):
                    results.append(outcome)
                    print(tried.column, line(outcome), flush=True)
            except KeyboardInterrupt:
                print(f"stopped; go on with the same command ({results.path})", file=sys.stderr)
                return 130
    page = report(
        by_torch(key),
        {row.name: row.what for row in faults()},
        NOT_ON_NCCL,
        own=OWN,
        commit=commit_of(REPOSITORY),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        group_timeout=GROUP_TIMEOUT_SECONDS,
    )
    args.page.write_text(page, encoding="utf-8")
    print(f"{args.page} from {results_of(key, '*').path}")
    return 0


def torches(asked: Sequence[str] | None, repeat: int | None, nccl: bool) -> list[Tried]:
    """Which versions are tried: this environment's first, then the newest; at last with NCCL, where that is asked for alone or can be."""
    others = sorted({*(asked or installed())} - {OWN}, key=in_order, reverse=True)
    versions = [OWN] * (asked is None or OWN in asked) + others
    newest = max([OWN, *installed()], key=in_order)
    with_gloo = [Tried(name, repeat or (3 if name in (OWN, newest) else 1), name == OWN) for name in versions]
    return with_gloo * (not nccl) + [
        Tried(name, repeat or 1, is_own=False, nccl=True)
        for name in NCCL_TORCHES
        if (asked is None or name in asked) and has_nccl(name)
    ]


def has_nccl(torch: str) -> bool:
    """Whether NCCL can be tried on this torch; says so where not."""
    if reason := reason_to_skip(torch):
        print(f"NCCL on torch {torch}: left out, {reason}", file=sys.stderr)
    return not reason


def trials(rows: list[Fault], tried: Tried, results: Results, args: argparse.Namespace) -> Iterator[Outcome]:
    """Every trial that has not been made yet: faults and decoys round by round, torchrun, then healthy minutes."""
    rows = [*on_nccl(tried.version, rows)] if tried.nccl else [on(tried, row) for row in rows]
    for fault, number in variants(rows, tried.repeat):
        kind = "decoy" if fault.is_decoy else "fault"
        if results.has(kind, fault.name, number) or not possible(fault):
            continue
        with tempfile.TemporaryDirectory(prefix="paceline-fault-") as folder:
            outcome = observe(fault, fault.trial(number), Path(folder) / "job", number=number)
            if missed(outcome):
                results.keep(Path(folder) / "job", outcome)
            yield outcome
    if tried.is_own and not args.skip_torchrun:
        for fault in rows:
            if can_be_compared(fault) and possible(fault) and not results.has("torchrun", fault.name, 0):
                with tempfile.TemporaryDirectory(prefix="paceline-fault-") as folder:
                    yield observe_torchrun(fault, first_trial(fault), Path(folder) / "job")
    if not args.only or "healthy" in args.only:
        yield from healthy(tried, results, args.healthy_minutes)


def on(tried: Tried, fault: Fault) -> Fault:
    return fault if tried.is_own else replace(fault, torch=tried.version)


def healthy(tried: Tried, results: Results, minutes: float) -> Iterator[Outcome]:
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
                (job,) = on_nccl(tried.version, [fault]) if tried.nccl else [on(tried, fault)]
                outcome = observe(job, trial, Path(folder) / "job", number=number, kind="healthy")
                if missed(outcome):
                    results.keep(Path(folder) / "job", outcome)
                yield outcome
        left -= HEALTHY_PIECE_SECONDS
        number += 1


def missed(outcome: Outcome) -> bool:
    said_wrong = outcome.cause_right is False or outcome.rank_right is False or outcome.alarms or outcome.false_highs
    return bool(said_wrong or outcome.was_ended or outcome.problem)


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
    rank = {None: "", True: ", rank right", False: ", rank WRONG"}[outcome.rank_right]
    verdict = f"{outcome.told}{rank}" if outcome.told else ""
    alarms += f"  HIGH {', '.join(outcome.false_highs)}" * bool(outcome.false_highs) + "  ENDED" * outcome.was_ended
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
