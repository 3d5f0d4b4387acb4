"""Show where each rank is in its code, with identical stacks folded. Of a run that has ended, it shows where each rank was last seen."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.cli.parsing import find_directories
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import use_color
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.errors import HostLost, NotEnoughEvidence, UsageError
from paceline.facts import Run
from paceline.option import FURTHER_DIRECTORIES, RANKS, RUN, RUN_DIR, Option, Verb
from paceline.recording.control import ask
from paceline.recording.evidence import read_run
from paceline.recording.fact_json import fact_or_none
from paceline.recording.layout import RunDirectory
from paceline.recording.rank_sets import parse_ranks, spell_ranks
from paceline.views.documents import json_text
from paceline.views.stack import stack_facts, stack_text
from paceline.views.status import run_lasts

VERB = Verb(
    "stack",
    __doc__ or "",
    (
        ("paceline stack", "where each rank of the newest run is, now"),
        ("paceline stack r-7f3a91 --diff", "only ranks that are elsewhere than most"),
    ),
    (
        RUN,
        Option("diff", "Only the ranks that are elsewhere than most."),
        RANKS,
        Option("native", "Show C++ frames too, of a job that runs. This stops each rank for up to a second."),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
    page="""\
Ranks that are at the same lines are one block, the largest first. The user's own lines are marked `>`; DataLoader
workers follow below their rank. A job that runs is looked at by py-spy, without stopping it, and only on the machine
of the run's first host. Of a run that has ended, the last snapshot of each rank is shown; snapshots are taken when
something seems wrong.""",
)


def run(args: argparse.Namespace) -> int:
    wanted = wanted_ranks(args.rank)
    found, events, _ = read_run(tuple(RunDirectory(path) for path in find_directories(args, "paceline stack")))
    lasts = run_lasts(found)
    with ProgressLine(
        f"looking at the ranks of {found.id}", shown=not args.json, waits_for="the agent of its first host"
    ):
        snapshots, complaints = (
            take_snapshots_now(found, wanted, deep=args.native) if lasts else (last_snapshots(events, wanted), [])
        )
    if args.native and not lasts:
        complaints.append("C++ frames: the run has ended, and they are read from a process that runs")
    if not snapshots:
        raise _nothing(found, wanted, lasts, complaints)
    if wanted is not None and (missing := wanted - {snapshot.rank for snapshot in snapshots}):
        complaints.append(f"rank {spell_ranks(missing)}: not looked at")
    if args.json:
        print(json_text(stack_facts(found.id, snapshots, lasts=lasts, not_judged=complaints)))
        return 0
    print(
        stack_text(
            found.id,
            snapshots,
            lasts=lasts,
            diff=args.diff,
            not_judged=complaints,
            color=use_color(args.color, sys.stdout),
        )
    )
    return 0


def stacks_now(directories: Sequence[Path], wanted: frozenset[int] | None) -> str:
    """Where these ranks (None: all) are now, or were last seen, as text.

    Raises:  as look_now; NotEnoughEvidence U20: no rank was looked at
    """
    found, events, _ = read_run(tuple(RunDirectory(path) for path in directories))
    lasts = run_lasts(found)
    snapshots, complaints = (
        take_snapshots_now(found, wanted, deep=False) if lasts else (last_snapshots(events, wanted), [])
    )
    if not snapshots:
        raise _nothing(found, wanted, lasts, complaints)
    return stack_text(found.id, snapshots, lasts=lasts, not_judged=complaints)


def take_snapshots_now(
    found: Run, wanted: frozenset[int] | None, *, deep: bool
) -> tuple[list[RankSnapshot], list[str]]:
    """The current stacks of these ranks (None: all) from the first host's agent, and what the agent could not see.

    Raises:  UsageError U19, HostLost U19: the agent cannot be asked, or does not answer
    """
    answer = ask(found, {"command": "look", "ranks": None if wanted is None else sorted(wanted), "deep": deep})
    if answer.get("ok") is not True:
        raise HostLost(
            "U19",
            f"the agent of {found.id} did not look",
            saw=str(answer.get("error") or "it gave no reason"),
            next=f"paceline top {found.id} --once",
        )
    complaints = answer.get("not_judged")
    return _snapshots(answer.get("looks")), [str(text) for text in complaints] if isinstance(complaints, list) else []


def last_snapshots(events: Iterable[Mapping[str, Any]], wanted: frozenset[int] | None) -> list[RankSnapshot]:
    """The newest snapshot of each rank, from the last attempt that has snapshots."""
    snapshots = _snapshots([event.get("look") for event in events if event.get("event") == "look"])
    attempt = max((snapshot.attempt for snapshot in snapshots), default=0)
    newest = {
        snapshot.rank: snapshot
        for snapshot in snapshots
        if snapshot.attempt == attempt and (wanted is None or snapshot.rank in wanted)
    }
    return [newest[rank] for rank in sorted(newest)]


def _snapshots(plain: Any) -> list[RankSnapshot]:
    """The readable snapshots: a recording may be truncated, or of a later version."""
    snapshots = (fact_or_none(RankSnapshot, one) for one in (plain if isinstance(plain, Sequence) else ()))
    return [snapshot for snapshot in snapshots if snapshot is not None]


def wanted_ranks(text: str | None) -> frozenset[int] | None:
    """The ranks of --rank; None: all.

    Raises:  UsageError U03: it is no list of ranks
    """
    if text is None:
        return None
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise UsageError("U03", f"--rank: {error}", next="--rank 0-3,7") from None


def _nothing(found: Run, wanted: frozenset[int] | None, lasts: bool, complaints: Sequence[str]) -> NotEnoughEvidence:
    if lasts:
        return NotEnoughEvidence(
            "U20",
            f"no rank of {found.id} could be looked at",
            saw="; ".join(complaints) or "the agent knows no such rank that runs",
            next=f"paceline top {found.id} --once",
        )
    return NotEnoughEvidence(
        "U20",
        f"{found.id} holds no stack of " + ("a rank" if wanted is None else f"rank {spell_ranks(wanted)}"),
        saw="it has ended, and a rank is looked at only while something seems wrong with it",
        next=f"paceline why {found.id}",
    )
