"""Records a job of each fault of the gallery, for tests/faults/test_recorded.py.

python bench/record_gallery.py [NAME ...]    these rows again, or all of them: twenty minutes, as root, on a machine with nothing else to do

A recording has no path or name of the machine (tests/shared/elsewhere.py). It is kept if it is judged right.
"""

import io
import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests" / folder) for folder in ("faults", "shared", "torches")]

from catalogue import Fault, Trial  # noqa: E402
from elsewhere import ELSEWHERE, go_elsewhere  # noqa: E402
from harness import observe  # noqa: E402
from recorded import RECORDED, judged, rows, wrong  # noqa: E402

_TRIES = 3


def record(fault: Fault, folder: Path) -> str:
    """Record a row and keep it if it is judged right; what was wrong with the last try, or nothing."""
    trial, problem = fault.trial(0), ""
    for number in range(_TRIES):
        directory = folder / f"{fault.name}_{number}"
        outcome = observe(fault, trial, directory)
        run = next((path.parent for path in sorted(directory.glob("**/.paceline/runs/*/events.jsonl"))), None)
        if run is None or outcome.problem:
            problem = outcome.problem or "no recording"
            continue
        shutil.rmtree(run / "hosts" / "localhost" / "ml", ignore_errors=True)
        now_ns = time.time_ns()
        if not (problem := wrong(fault, trial, judged(run, now_ns))):
            _pack(fault.name, trial, run, now_ns)
            return ""
    return problem


def _pack(name: str, trial: Trial, run: Path, now_ns: int) -> None:
    facts = json.dumps({"trial": asdict(trial), "judged_ns": now_ns}).encode()
    RECORDED.mkdir(exist_ok=True)
    with tarfile.open(RECORDED / f"{name}.tar.xz", "w:xz", preset=9) as packed:
        described = tarfile.TarInfo("trial.json")
        described.size = len(facts)
        packed.addfile(described, io.BytesIO(facts))
        packed.add(run, "run", filter=_of_nobody)


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(names: Sequence[str]) -> int:
    go_elsewhere("bench/record_gallery.py", names)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="jobs-", dir=ELSEWHERE) as folder:
        for fault in rows():
            if not names or fault.name in names:
                problem = record(fault, Path(folder))
                failed += bool(problem)
                print(f"{fault.name}: {problem or 'kept'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
