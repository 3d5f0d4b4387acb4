"""False alarms of the checks of source: `python bench/checks.py --checkouts DIR` over published training scripts, which are not here.

DIR has a checkout of each repository as OWNER+NAME. bench/data/scripts.csv lists the scripts by repository, revision and path. Each is
checked as a job of two ranks on one host. What is found is compared with bench/data/script_alarms.csv, in which somebody has judged each
finding: `right` (the script does that) or `false`. A finding that nobody has judged ends the program with 1. No script is executed.
"""

import argparse
import csv
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from paceline.facts import Program, ProgramKind  # noqa: E402
from paceline.findings import Finding  # noqa: E402
from paceline.rules.job_facts import BeforeRun, findings_of, source_verdicts  # noqa: E402
from paceline.rules.sources import read_sources  # noqa: E402

DATA = ROOT / "bench" / "data"
SCRIPTS, ALARMS = DATA / "scripts.csv", DATA / "script_alarms.csv"
_MOST_FALSE_FRACTION = 1 / 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkouts", type=Path, required=True, help="directory with a checkout OWNER+NAME for each repository"
    )
    parser.add_argument(
        "--write", action="store_true", help="add what nobody has judged to the table, with an empty judgement"
    )
    args = parser.parse_args()
    with SCRIPTS.open(newline="") as file:
        scripts = list(csv.DictReader(file))
    judged = read_judged()
    counts: Counter[str] = Counter()
    new: list[tuple[str, ...]] = []
    began = time.process_time()
    for row in scripts:
        path = args.checkouts / row["repository"].replace("/", "+") / row["path"]
        if not path.is_file():
            counts["missing"] += 1
            continue
        counts["scripts"] += 1
        for finding in findings(path):
            key = (row["repository"], row["path"], finding.code, f"{finding.file}:{finding.line}")
            said = judged.get(key, "")
            counts[said or "not judged"] += 1
            counts[finding.code] += 1
            if not said:
                new.append((*key, "", finding.saw.splitlines()[0][:120]))
    seconds = (time.process_time() - began) / max(1, counts["scripts"])
    print(f"{counts['scripts']} scripts, {counts['missing']} missing, {seconds * 1e3:.0f} ms of CPU each")
    print(", ".join(f"{code} {counts[code]}" for code in sorted(counts) if code[:1] == "K"))
    print(f"right {counts['right']}, false {counts['false']}, not judged {counts['not judged']}")
    for row in new:
        print("not judged:", *row)
    if args.write:
        with ALARMS.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(new)
    return int(bool(new) or counts["false"] > _MOST_FALSE_FRACTION * counts["scripts"])


def findings(path: Path) -> Iterator[Finding]:
    """What the checks of source say of one script, as a job of two ranks."""
    program = Program(kind=ProgramKind.SCRIPT, target=path.name)
    script, name, imported = read_sources(program, path.parent)
    before = BeforeRun(
        ranks_per_host=2, script=script, script_path=name, imported=imported, launcher="torch_distributed"
    )
    yield from findings_of(source_verdicts(before))


def read_judged() -> dict[tuple[str, ...], str]:
    """(repository, path, code, place) -> right or false."""
    if not ALARMS.exists():
        return {}
    with ALARMS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["repository"], row["path"], row["code"], row["place"]): row["judgement"] for row in rows}


if __name__ == "__main__":
    sys.exit(main())
