"""`make fuzz`: every door through which a stranger's bytes come in, with bytes that nobody meant, for as long as is asked.

    .venv/bin/python tests/fuzz/fuzz.py                       all targets, ten minutes
    .venv/bin/python tests/fuzz/fuzz.py --seconds 60          a minute, as in CI
    .venv/bin/python tests/fuzz/fuzz.py --only messages       one of them

What breaks a target is kept in tests/fuzz/corpus, and tried with the other tests from then on: a mend comes with its file.
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(HERE)]

from targets import TARGETS, Target  # noqa: E402

CORPUS = HERE / "corpus"
EXAMPLES_AT_ONCE = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together (default 600)")
    parser.add_argument("--only", action="append", choices=sorted(TARGETS), help="may be repeated")
    args = parser.parse_args()
    names = [name for name in args.only or sorted(TARGETS) if TARGETS[name].is_here()]
    for name in sorted(set(args.only or TARGETS) - set(names)):
        print(f"{name}: not tried, {TARGETS[name].needs} is not installed", flush=True)
    broken = [name for name in names if not holds(name, TARGETS[name], args.seconds / len(names))]
    print(
        f"{len(names) - len(broken)} of {len(names)} targets hold" + (f"; broken: {', '.join(broken)}" * bool(broken))
    )
    return bool(broken)


def holds(name: str, target: Target, seconds: float) -> bool:
    """Whether nothing broke the target in this time; says how many examples were tried, and keeps what broke it."""
    ends_at, tried, last = time.monotonic() + seconds, 0, b""

    @settings(
        max_examples=EXAMPLES_AT_ONCE,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.target, Phase.shrink),
    )
    @given(target.strategy)
    def once(data: bytes) -> None:
        nonlocal tried, last
        tried, last = tried + 1, data
        target.check(data)

    while time.monotonic() < ends_at:
        try:
            once()
        except Exception as error:
            kept = CORPUS / name / hashlib.sha256(last).hexdigest()[:12]
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(last)
            print(f"{name}: broken after {tried} examples by {kept}: {type(error).__name__}: {error}", flush=True)
            return False
    print(f"{name}: {tried} examples", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
