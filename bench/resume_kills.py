"""`make resume`: does a killed job write what an undisturbed one writes? 200 kills by time, 50 by phase; writes docs/resume.md.

The kinds of kills take turns; then every script of tests/parts/resume/whole runs once on 2 and on 3 ranks without a kill. The results are
kept as one line of JSON for each run, in a directory outside the clone that is named by a hash of src/ and of the scripts, and by the
versions of torch and Python; a second call goes on where the first one stopped. Each run has its seed in its line.
"""

import argparse
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "parts" / "resume" / "whole"
sys.path[:0] = [str(ROOT / "src"), str(TESTS), str(ROOT / "tests" / "shared")]

from kills import (  # noqa: E402
    CASES,
    PHASES,
    Case,
    Launch,
    Outcome,
    Plan,
    as_json,
    from_json,
    random_plans,
    run_with_kills,
    table,
)

BY_TIME, BY_PHASE = 200, 50
KILLS_OF_A_RUN = 5
PAGE = ROOT / "docs" / "resume.md"


@dataclass(frozen=True)
class Group:
    """Kills of one kind. `wanted`: how many; 0: each case once, without."""

    name: str
    ranks: int = 2
    hosts: int = 1
    workers: bool = False
    victims: tuple[str, ...] = ("rank", "rank", "rank", "all")
    wanted: int = 0
    phases: tuple[str, ...] = ()


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    groups = _groups(args.kills, args.phases)
    versions = "torch-{}-python-{}.{}".format(importlib.metadata.version("torch"), *sys.version_info)
    kept = args.results / f"{_hash_of_source()}-{versions}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, list[Outcome]] = {group.name: [] for group in groups}
    if kept.exists():
        for line in kept.read_text().splitlines():
            name, _, text = line.partition("\t")
            outcomes.setdefault(name, []).append(from_json(text))
    print(f"{sum(map(len, outcomes.values()))} runs are in {kept}", flush=True)
    until = time.monotonic() + 60 * args.minutes
    with kept.open("a") as file:
        for group, (launch, plans, seed) in _in_turn(groups, outcomes, args.seed, args.only):
            if time.monotonic() > until:
                break
            load = os.getloadavg()[0]
            outcome = _run(launch, plans, seed, args.results / "references" / kept.stem)
            outcome.load = round((load + os.getloadavg()[0]) / 2, 1)
            outcomes[group.name].append(outcome)
            print(f"{group.name}\t{as_json(outcome)}", file=file, flush=True)
            print(_line(group, outcome), flush=True)
    everything = [outcome for group in groups for outcome in outcomes[group.name]]
    print(table(everything))
    wrong = [outcome for outcome in everything if outcome.verdict == "wrong"]
    for outcome in wrong:
        print(
            f"  wrong: {outcome.case} on {outcome.ranks} x {outcome.hosts}, seed {outcome.seed}: {outcome.complaints[0]}"
        )
    if not args.only and not args.no_page:
        PAGE.write_text(_page(groups, outcomes))
        print(f"wrote {PAGE}")
    return bool(wrong)


def _groups(by_time: int, by_phase: int) -> tuple[Group, ...]:
    each = by_time // 4
    return (
        Group("no kill, 2 ranks", 2),
        Group("no kill, 3 ranks", 3),
        Group("2 ranks", 2, victims=("rank", "rank", "rank", "all", "fork server"), wanted=each),
        Group("3 ranks", 3, wanted=each),
        Group("4 ranks on 2 local hosts", 2, 2, victims=("rank", "rank", "host", "all"), wanted=each),
        Group("2 ranks with loader workers", 2, workers=True, victims=("rank", "rank", "worker", "all"), wanted=each),
        Group("by phase, 3 ranks", 3, wanted=by_phase, phases=PHASES),
    )


def _in_turn(
    groups: Sequence[Group], outcomes: dict[str, list[Outcome]], seed: int, only: Sequence[str]
) -> Iterator[tuple[Group, tuple[Launch, tuple[Plan, ...], int]]]:
    """The runs that are still to be made, one of each group after the other: those with kills first, then those without."""
    for some in ([group for group in groups if group.wanted], [group for group in groups if not group.wanted]):
        runs = [(group, _runs(group, outcomes[group.name], seed, only)) for group in some]
        while runs:
            for group, of_group in list(runs):
                if (run := next(of_group, None)) is None:
                    runs.remove((group, of_group))
                else:
                    yield group, run


def _runs(
    group: Group, done: Sequence[Outcome], seed: int, only: Sequence[str]
) -> Iterator[tuple[Launch, tuple[Plan, ...], int]]:
    """The runs that are still to be made; `done` grows meanwhile."""
    cases = [case for case in CASES if _is_of(case, group) and (not only or case.script in only)]
    if not group.wanted:
        for case in cases[len(done) :]:
            yield Launch(case, case.ranks or group.ranks, group.hosts, slow_seconds=0.0), (), seed
        return
    most_runs = 4 * group.wanted
    while cases and sum(len(outcome.kills) for outcome in done) < group.wanted and len(done) < most_runs:
        number = len(done)
        rng = random.Random(f"{seed} {group.name} {number}")
        case = cases[number % len(cases)]
        if group.phases:
            # Each in its turn, and each of them with every case in the end.
            names = [group.phases[(2 * number + i + number // len(cases)) % len(group.phases)] for i in range(2)]
            plans = tuple(Plan(name) for name in names)
        else:
            plans = tuple(random_plans(rng, KILLS_OF_A_RUN, victims=group.victims, span_seconds=0.7))
        # Without a pause in the step, so that a rank is somewhere else most of the time.
        slow_seconds = 0.0 if group.phases else 0.03
        yield (
            Launch(case, case.ranks or group.ranks, group.hosts, slow_seconds=slow_seconds),
            plans,
            rng.randrange(1 << 30),
        )


def _is_of(case: Case, group: Group) -> bool:
    if case.needs is not None and importlib.util.find_spec(case.needs) is None:
        return False
    if case.ranks is not None and (group.ranks, group.hosts) != (2, 1):
        return False
    return not group.wanted or (case.refused is None and ("--workers" in case.argv) == group.workers)


def _run(launch: Launch, plans: Sequence[Plan], seed: int, references: Path) -> Outcome:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_"))}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    directory = Path(tempfile.mkdtemp(prefix="resume-"))
    try:
        environment["XDG_STATE_HOME"] = str(directory / "state")
        return run_with_kills(launch, plans, references, directory / "run", environment, seed=seed)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _line(group: Group, outcome: Outcome) -> str:
    cost = f"{len(outcome.kills)} kills, made again {outcome.redone}"
    return f"{group.name:28} {outcome.case:40} {outcome.seconds:6.1f} s  {outcome.verdict}, {cost}  {'; '.join(outcome.complaints[:2])}"


def _page(groups: Sequence[Group], outcomes: dict[str, list[Outcome]]) -> str:
    head = ["# Resume: measured", ""]
    head += [f"Written by `make resume` at commit {_commit()} on {datetime.now(UTC):%Y-%m-%d}; not edited by hand.", ""]
    head += [
        "Training scripts that know nothing of paceline (`tests/parts/resume/whole/scripts`) run under `paceline run --resume auto`, and",
        "processes of theirs are ended by SIGKILL: at random instants, and in chosen phases. Each script writes a line for each step",
        "of each rank: loss, learning rate, counters, random draws, the batch; at its end the hash of the model's and the optimizer's",
        "state. A run is *equal* when every line is that of an undisturbed run under torchrun, when a step that was made again has",
        "exactly the same line again, and when no kill costs more steps than lie between two kept states, and the step under way. A",
        "script is *refused* when paceline says a code and the script goes on without resume. Everything else is *wrong*.",
        "",
        f"torch {importlib.metadata.version('torch')}, gloo, {os.cpu_count()} CPUs. Victims: a rank, all ranks, a host, a loader worker,",
        "the fork server together with a rank. Times are those of the machine as it was:" + _loads(outcomes),
        _made(groups, outcomes),
        "",
        "| | runs | kills | equal | refused | wrong | steps made again for one kill | kill to next step: median (max) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [_row(group.name, outcomes[group.name]) for group in groups]
    phases = [_phase_row(phase, outcomes[groups[-1].name]) for phase in groups[-1].phases]
    middle = ["", "## By phase", "", "| phase | kills | not met in time |", "|---|---|---|", *phases]
    scripts = [
        "",
        "## By script",
        "",
        "```text",
        table([one for group in groups for one in outcomes[group.name]]),
        "```",
        "",
    ]
    return "\n".join([*head, *rows, *middle, *scripts])


def _loads(outcomes: dict[str, list[Outcome]]) -> str:
    loads = [one.load for some in outcomes.values() for one in some if one.load is not None]
    if not loads:
        return " its load was not noted."
    return f" load average {min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}."


def _made(groups: Sequence[Group], outcomes: dict[str, list[Outcome]]) -> str:
    """How many of the planned kills were made, where some are missing."""
    wanted = sum(group.wanted for group in groups)
    made = sum(len(one.kills) for group in groups if group.wanted for one in outcomes[group.name])
    return f"{made} of {wanted} planned kills were made." + ("" if made >= wanted else " The others are still to come.")


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    seconds = [kill.seconds for one in outcomes for kill in one.kills if kill.seconds is not None]
    redone = [steps for one in outcomes for steps in one.redone]
    refused = sum(one.verdict.startswith("refused") for one in outcomes)
    cells = (
        name,
        len(outcomes),
        sum(len(one.kills) for one in outcomes),
        sum(one.verdict == "equal" for one in outcomes),
        refused,
        sum(one.verdict == "wrong" for one in outcomes),
        ", ".join(f"{steps}: {redone.count(steps)} times" for steps in sorted(set(redone))),
        f"{statistics.median(seconds):.2f} s ({max(seconds):.2f} s)" if seconds else "",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _phase_row(phase: str, outcomes: Sequence[Outcome]) -> str:
    kills = sum(kill.when == phase for one in outcomes for kill in one.kills)
    return f"| {phase} | {kills} | {sum(one.missed.count(phase) for one in outcomes)} |"


def _hash_of_source() -> str:
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *TESTS.rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _commit() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=BY_TIME, help="by time, a quarter of them for each kind of job")
    parser.add_argument("--phases", type=int, default=BY_PHASE, help="kills by phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after so many minutes")
    parser.add_argument(
        "--only", action="append", default=[], metavar="SCRIPT", help="these scripts; the page is not written"
    )
    parser.add_argument("--no-page", action="store_true", help="docs/resume.md stays as it is")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    parser.add_argument("--results", type=Path, default=state / "paceline" / "resume", metavar="DIRECTORY")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
