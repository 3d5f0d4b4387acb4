"""`make exits`: ten ways out, many times, idle and loaded, every rank asked at every stage of its exit.

The results are kept as one line of JSON for each run, in a directory outside the clone that is named by a hash of src/ and by torch's
version; a second call goes on where the first one stopped. The last lines say how many runs there were and what was wrong.
"""

import argparse
import dataclasses
import hashlib
import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "exits"), str(ROOT / "tests" / "shared")]

from ways_out import WAYS_OUT, WayOut, leave, load  # noqa: E402

RUNS = 200


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    kept = args.results / f"{_hash_of_source()}-torch-{_torch_version(args.python)}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    print(f"{len(lines)} of {args.runs} runs are in {kept}", flush=True)
    with kept.open("a") as file:
        for way, loaded in itertools.islice(_plan(), len(lines), args.runs):
            lines.append(_run(way, loaded, args.python))
            print(json.dumps(lines[-1]), file=file, flush=True)
            print(_line(lines[-1]), flush=True)
    wrong = [line for line in lines if line["complaints"]]
    asked, refused = (sum(line[name] for line in lines) for name in ("asked", "refused"))
    print(f"{len(lines)} runs, {asked} questions, {refused} of them refused; wrong: {len(wrong)}")
    for line in wrong:
        print(f"  {_line(line)}")
    return bool(wrong)


def _plan() -> Iterator[tuple[WayOut, bool]]:
    """Way after way, idle and loaded in turn."""
    for loaded in itertools.cycle((False, True)):
        for way in WAYS_OUT:
            yield way, loaded


def _run(way: WayOut, loaded: bool, python: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_"))}
    with tempfile.TemporaryDirectory(prefix="exits-") as directory, load(os.cpu_count() or 1 if loaded else 0):
        outcome = leave(way, Path(directory), environment | {"PYTHONPATH": str(ROOT / "src")}, python=python)
    found = dataclasses.asdict(outcome) | {"loaded": loaded}
    return found if outcome.complaints else found | {"err": ""}


def _line(line: dict) -> str:
    place = "loaded" if line["loaded"] else "idle"
    return f"{line['script']:20} {place:6} {line['seconds']:6.1f} s  {'; '.join(line['complaints']) or 'as it should'}"


def _hash_of_source() -> str:
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / "exits").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _torch_version(python: str) -> str:
    if python == sys.executable:
        return importlib.metadata.version("torch")
    ask = "import importlib.metadata; print(importlib.metadata.version('torch'))"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--python", default=sys.executable, help="the Python, and with it the torch, of the ranks")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    parser.add_argument("--results", type=Path, default=state / "paceline" / "exits", metavar="DIRECTORY")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
