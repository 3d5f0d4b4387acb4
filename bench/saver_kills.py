"""`python bench/saver_kills.py`: kills the process that saves the state 1,000 times, and loads what is there after each kill.

Two ranks keep a step every 2 ms in real state buffers meanwhile. After each kill the newest saved step is loaded as `--resume` does.
It has to be whole, to hold its own step's bytes and no others, and never to be older than the one before; no step may be damaged, and
what killed savers leave may not add up.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "shared")]

from killed_savers import kill_savers  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=16)
    args = parser.parse_args()
    began = time.monotonic()

    def tell(found: object) -> None:
        if found.kills % 50 == 0:
            print(f"{time.monotonic() - began:6.0f} s  {found}", flush=True)

    with tempfile.TemporaryDirectory(prefix="paceline-saver-kills-") as folder:
        print(kill_savers(Path(folder), args.kills, args.seed, tell), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
