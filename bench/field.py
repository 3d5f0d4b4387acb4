"""Is what paceline says of other people's trouble true? Runs folders of cases and scores each answer.

    .venv/bin/python bench/field.py                    the cases in tests/field
    .venv/bin/python bench/field.py DIR... --verbose   other folders, with what was printed
    .venv/bin/python bench/field.py --page docs/field.md

With --page a case that has a score of this code and these files is not run again, so that the run can be stopped and continued.

A case is a folder with case.json: `run`, the commands; and regular expressions over what they print. An answer is harmful or wrong if
one of those is found, right if all of `right` are, partly right if all of `partly` are or the cause is listed as not judged, else silent.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "faults"))

from results import key_of  # noqa: E402

FIRST_SIGHT = REPOSITORY / "tests" / "field" / "first_sight.json"
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


class Kept:
    """The scores of this code, a line each, outside the clone."""

    def __init__(self) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.path = cache / "paceline-field" / f"{key_of(REPOSITORY)}.jsonl"
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        self.scores: dict[str, str] = {one["case"]: one["score"] for one in map(json.loads, lines)}

    def of(self, case: Path) -> str | None:
        """The score of a case with these files; None: it has none yet."""
        return self.scores.get(self._name(case))

    def keep(self, case: Path, found: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"case": self._name(case), "score": found}) + "\n")

    def _name(self, case: Path) -> str:
        digest = hashlib.sha256()
        for path in sorted(path for path in case.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            digest.update(path.relative_to(case).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        return f"{case.name} {digest.hexdigest()[:12]}"


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


@dataclass(frozen=True, slots=True)
class Scored:
    """A case, what its answer was worth, and its true cause."""

    name: str
    area: str
    score: str
    cause: str


def page(scored: Sequence[Scored], first_sight: Mapping[str, Any]) -> str:
    """docs/field.md. `first_sight`: the scores of the cases that were looked for last, before anything was changed for them."""
    by_name = {one.name: one for one in scored}
    unseen = [replace(by_name[name], score=found) for name, found in first_sight["scores"].items()]
    others = [one for one in scored if one.score != "right"]
    listed = "\n".join(f"* **{one.name}** ({one.area}), {one.score}: {one.cause}" for one in others) or "None."
    return PAGE.format(
        date=datetime.now(UTC).date().isoformat(),
        table=_table(scored),
        first_date=first_sight["date"],
        first_commit=first_sight["commit"],
        first_table=_table(unseen),
        listed=listed,
    )


def _table(scored: Sequence[Scored]) -> str:
    areas = sorted({one.area for one in scored})
    rows = [(area, [one.score for one in scored if one.area == area]) for area in areas]
    rows.append(("**all**", [one.score for one in scored]))
    lines = [f"| area | cases | {' | '.join(SCORES)} |", "|---" * (len(SCORES) + 2) + "|"]
    lines += [
        f"| {area} | {len(found)} | {' | '.join(str(found.count(name)) for name in SCORES)} |" for area, found in rows
    ]
    return "\n".join(lines)


PAGE = """\
# What people report

Cases that people reported in public, made again from their descriptions with inputs of our own, and variants of them. Each has the address,
the true cause and who said it in `case.json` below `tests/field`; `bench/field.py` runs them, scores the answers and writes this page.

An answer is **right** if it names the cause, the place and the way out that the case demands, **partly** right if it names some of them
or lists the cause as not judged, **silent** if it says nothing of it, **wrong** if it names another cause, and **harmful** if it surely
sends the reader to a wrong place.

## On {date}

{table}

## At first sight

These were looked for when all else was done, and scored once on {first_date}, before anything was changed for them (commit {first_commit}).
This is the score that a new report would meet; that above is the score of what is known.

{first_table}

## Not right

{listed}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[REPOSITORY / "tests" / "field"])
    parser.add_argument("--verbose", action="store_true", help="print the answers that are not right")
    parser.add_argument("--page", type=Path, help="write the scores into this page")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    scored: list[Scored] = []
    kept = Kept()
    for case in cases(args.folders):
        says = json.loads((case / "case.json").read_text(encoding="utf-8"))
        found, text = kept.of(case) if args.page else None, None
        if found is None:
            text = answered(case, says)
            found = score(says, text)
            kept.keep(case, found)
        counts[found] += 1
        scored.append(Scored(case.name, says["area"], found, says["cause"]))
        print(f"{found:8} {says['area']:10} {case.name}", flush=True)
        if args.verbose and found != "right" and text is not None:
            print(text)
            missed = [pattern for pattern in says["right"] if not re.search(pattern, text)]
            print(f"    missed: {missed}")
    print(", ".join(f"{name} {counts[name]}" for name in SCORES))
    if args.page:
        args.page.write_text(page(scored, json.loads(FIRST_SIGHT.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
