"""`make gpu`: what can only be looked at on a GPU, in named pieces that can be interrupted and continued.

    python bench/gpu.py                  every piece that has no result of this code, torch and GPU yet
    python bench/gpu.py memory shared    these pieces, again
    python bench/gpu.py --page           join all results into docs/gpu.md

Needs no network, and changes no setting of a device. A piece has eight minutes. Results go to bench/data/gpu, one file each.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "src"),
    *(str(TESTS / name) for name in ("faults", "parts/resume/whole", "shared")),
]

from gpu_page import page  # noqa: E402
from gpu_pieces import PIECES, gpu_names  # noqa: E402
from results import key_of  # noqa: E402

RESULTS = HERE / "data" / "gpu"
PAGE = HERE.parent / "docs" / "gpu.md"
PIECE_SECONDS = 480.0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description="What can only be looked at on a GPU.")
    arguments.add_argument("pieces", nargs="*", metavar="PIECE", help=", ".join(PIECES))
    arguments.add_argument("--page", action="store_true", help="join the results into docs/gpu.md")
    arguments.add_argument("--piece", help=argparse.SUPPRESS)
    asked = arguments.parse_args(argv)
    if asked.piece:
        print(json.dumps(PIECES[asked.piece]()))
        return 0
    if asked.page:
        PAGE.write_text(page(results(RESULTS)), encoding="utf-8")
        print(PAGE)
        return 0
    if unknown := [name for name in asked.pieces if name not in PIECES]:
        arguments.error(f"there is no piece {unknown[0]}: {', '.join(PIECES)}")
    names = gpu_names()
    if not names:
        print("no GPU that NVML knows of: nothing was measured", file=sys.stderr)
        return 3
    failed = [name for name in chosen(asked.pieces, names, RESULTS) if not measure(name, names, RESULTS)]
    print(f"python bench/gpu.py --page   joins them into {PAGE.name}" if not failed else f"failed: {', '.join(failed)}")
    return int(bool(failed))


def chosen(asked: Sequence[str], names: Sequence[str], folder: Path) -> list[str]:
    """The pieces to measure: those that are asked for, else those without a good result of this code, torch and GPU."""
    if asked:
        return list(asked)
    key = of_what(names)
    kept = {one["piece"] for one in results(folder) if one["of"] == key and one["error"] is None}
    return [name for name in PIECES if name not in kept]


def measure(name: str, names: Sequence[str], folder: Path, seconds: float = PIECE_SECONDS) -> bool:
    """Measure one piece in a process of its own and keep what it found, or why it found nothing."""
    print(f"{name} ...", flush=True)
    begin = time.monotonic()
    found, error = None, None
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "gpu.py"), "--piece", name],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode == 0:
            found = json.loads(without_places(done.stdout.strip().splitlines()[-1]))
        else:
            error = without_places(done.stderr[-2000:])
    except subprocess.TimeoutExpired:
        error = f"not done after {seconds:g} s"
    document = {
        "piece": name,
        "of": of_what(names),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begin, 1),
        "found": found,
        "error": error,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_slug(names[0])}-{name}.json"
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(
        f"{name} {'failed: ' + error.strip().splitlines()[-1] if error else 'done'} in {document['seconds']} s",
        flush=True,
    )
    return error is None


def without_places(text: str) -> str:
    """A text without this clone's path and without that of a piece's own directory."""
    return re.sub(r"/tmp/paceline-gpu-\w+/", "", text.replace(f"{HERE.parent}/", ""))


def of_what(names: Sequence[str]) -> dict[str, Any]:
    """What a result was measured of: the code, torch, the GPUs."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return {"code": key_of(HERE.parent), "torch": torch, "gpus": list(names), "python": sys.version.split()[0]}


def results(folder: Path) -> list[dict[str, Any]]:
    """All results that are kept, in the order of the pieces."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    order = list(PIECES)
    return sorted(found, key=lambda one: (one["of"]["gpus"][:1], order.index(one["piece"])))


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


if __name__ == "__main__":
    raise SystemExit(main())
