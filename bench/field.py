"""Is what paceline says of other people's trouble true? Runs folders of cases and scores each answer.

    .venv/bin/python bench/field.py                    the cases in tests/field
    .venv/bin/python bench/field.py DIR... --verbose   other folders, with what was printed

A case is a folder with case.json: `run`, the commands; and regular expressions over what they print. An answer is harmful or wrong if
one of those is found, right if all of `right` are, partly right if all of `partly` are or the cause is listed as not judged, else silent.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
SCORES = ("right", "partly", "silent", "wrong", "harmful")
_SECONDS = 300


def cases(folders: Sequence[Path]) -> list[Path]:
    """The folders below these that are cases, in order."""
    return sorted(file.parent for folder in folders for file in folder.rglob("case.json"))


def answered(case: Path, says: Mapping[str, Any]) -> str:
    """What the commands of a case print, run in a copy of its folder."""
    with tempfile.TemporaryDirectory(prefix="paceline-field-") as scratch:
        copy = Path(shutil.copytree(case, Path(scratch) / case.name))
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_STATE_HOME": f"{scratch}/state",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            ["bash", "-c", "\n".join(says["run"])],
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    return done.stdout


def score(says: Mapping[str, Any], text: str) -> str:
    """One of SCORES."""

    def found(name: str) -> list[bool]:
        return [re.search(pattern, text) is not None for pattern in says.get(name, ())]

    for bad in ("harmful", "wrong"):
        if any(found(bad)):
            return bad
    if all(found("right")):
        return "right"
    return "partly" if found("partly") and all(found("partly")) else "silent"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[REPOSITORY / "tests" / "field"])
    parser.add_argument("--verbose", action="store_true", help="print the answers that are not right")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for case in cases(args.folders):
        says = json.loads((case / "case.json").read_text(encoding="utf-8"))
        text = answered(case, says)
        found = score(says, text)
        counts[found] += 1
        print(f"{found:8} {says['area']:10} {case.name}")
        if args.verbose and found != "right":
            print(text)
            missed = [pattern for pattern in says["right"] if not re.search(pattern, text)]
            print(f"    missed: {missed}")
    print(", ".join(f"{name} {counts[name]}" for name in SCORES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
