"""The gallery as recordings, so that every change judges all of it in seconds: a job of each fault, as its run directory was left.

`recorded/NAME.tar.xz` has `trial.json` and the run directory of the first host; bench/record_gallery.py makes them.
"""

import json
import tarfile
from pathlib import Path

from catalogue import Fault, Trial, faults, live_on_nccl
from scoring import Answer, Told, false_highs, worth

from paceline.cli.why import judge_run
from paceline.recording.fact_json import to_plain

RECORDED = Path(__file__).parent / "recorded"


def rows() -> tuple[Fault, ...]:
    """The faults and decoys that are recorded: all that can be had on a machine, and those of them that are live on NCCL as well."""
    return tuple(row for row in (*faults(), *live_on_nccl()) if not row.why_not_here)


def kept(name: str, folder: Path) -> tuple[Trial, Path, int]:
    """The trial that was recorded of a row, its run directory, unpacked below `folder`, and when it was judged, in ns since the epoch."""
    with tarfile.open(RECORDED / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    facts = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
    return Trial(**facts["trial"]), folder / "run", facts["judged_ns"]


def judged(run: Path, now_ns: int) -> Answer:
    """What is said of a recording."""
    _, diagnosis, _ = judge_run([run], now_ns=now_ns)
    return Answer(tuple(to_plain(finding) for finding in diagnosis.findings), diagnosis.not_judged)


def wrong(fault: Fault, trial: Trial, answer: Answer) -> str:
    """What is wrong with an answer, or nothing.

    Holds:   the first finding of a fault has one of its codes and a set of its ranks; of a decoy nothing is said surely that is not true
    """
    said = (
        ", ".join(f"{finding['code']} ranks {list(finding.get('ranks') or ())}" for finding in answer.findings)
        or "nothing"
    )
    if fault.is_decoy:
        false = ", ".join(false_highs(fault, answer.findings))
        return f"said surely: {false}" if false else ""
    if worth(fault, answer.findings, answer.not_judged) != Told.RIGHT:
        return f"wanted {', '.join(sorted(fault.expected))}, said {said}"
    right = fault.right_ranks(trial)
    named = frozenset(answer.findings[0].get("ranks") or ())
    return "" if right is None or named in right else f"wanted ranks {[sorted(ranks) for ranks in right]}, said {said}"
