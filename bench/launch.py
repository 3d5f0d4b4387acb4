"""What it costs to start a job: `paceline run` beside torchrun, in turn, on this machine.

    .venv/bin/python bench/launch.py            both launchers, 7 pairs
    .venv/bin/python bench/launch.py -n 15 --json

Two numbers for each launcher. *First line*: from the launcher's exec to the first line of the user's script, which
prints the clock. *Memory*: the launcher's processes (everything between us and the ranks, paceline's guardian included)
while the ranks sleep, as proportional set size, so that a page shared by two processes counts once. The two launchers
take turns (A B A B ...), so that a machine that slows down slows both; the ratio is the median of the ratios of the
pairs. torchrun gets the same environment and no option that makes it slower. `paceline run --resume auto` is a third one in the
same turns, beside paceline itself: what is prepared for a resume at the start costs this much.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

RANKS = 2
WANTED_FIRST_LINE = 0.6
WANTED_MEMORY = 0.2
WANTED_MORE_SECONDS = 0.05
LAUNCHERS = {
    "paceline": [sys.executable, "-m", "paceline", "run", "--resume", "off"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    "resume": [sys.executable, "-m", "paceline", "run", "--resume", "auto"],
}
FIRST_LINE = """\
import time; now = time.time_ns(); import os; os.write(1, b"first line %d\\n" % now)
"""
# The ranks say that they are there, then wait for the file that ends them.
SLEEPER = """\
import os, pathlib, sys, time
os.write(1, b"asleep %d\\n" % os.getpid())
while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)
"""


@dataclass(frozen=True)
class Comparison:
    """One measure of two launchers, names of LAUNCHERS. `ratio` is the median over pairs of launcher / beside."""

    measure: str
    launcher: str
    beside: str
    pairs: int
    median: float
    beside_median: float
    ratio: float
    ratio_lowest: float
    ratio_highest: float
    wanted: str
    reached: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--pairs", type=int, default=7)
    parser.add_argument("--memory-pairs", type=int, default=3)
    parser.add_argument("--only", choices=LAUNCHERS, help="measure one launcher and compare nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        directory = Path(folder)
        names = [args.only] if args.only else list(LAUNCHERS)
        first_line = in_turn(names, args.pairs, lambda name: first_line_seconds(name, directory))
        memory = in_turn(names, args.memory_pairs, lambda name: launcher_mib(name, directory))
    if args.only:
        print(f"{args.only}: first line {statistics.median(first_line[args.only]):.3f} s")
        print(f"{args.only}: memory {statistics.median(memory[args.only]):.1f} MiB")
        return 0
    results = [
        compare("time to the first line (s)", first_line, wanted_ratio=WANTED_FIRST_LINE),
        compare("time to the first line (s)", first_line, "resume", "paceline", wanted_more=WANTED_MORE_SECONDS),
        compare("launcher memory, PSS (MiB)", memory, wanted_ratio=WANTED_MEMORY),
        compare("launcher memory, PSS (MiB)", memory, "resume", "torchrun", wanted_ratio=WANTED_MEMORY),
    ]
    print(as_json(results) if args.json else as_table(results))
    return 0 if all(result.reached for result in results) else 1


def in_turn(names: Sequence[str], pairs: int, measure: Callable[[str], float]) -> dict[str, list[float]]:
    """`pairs` values per launcher, taken A B A B ..., after one round that only warms the page cache."""
    values: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(pairs + 1):
        for name in names:
            value = measure(name)
            if turn:
                values[name].append(value)
    return values


def first_line_seconds(name: str, directory: Path) -> float:
    """From exec to the earliest first line of any rank."""
    script = directory / "first_line.py"
    script.write_text(FIRST_LINE)
    started_ns = time.time_ns()
    done = subprocess.run(
        command(name, script), cwd=directory, env=environment(), capture_output=True, text=True, check=False
    )
    stamps = [int(line.split()[-1]) for line in done.stdout.splitlines() if "first line" in line]
    if done.returncode or len(stamps) != RANKS:
        raise SystemExit(f"{name} did not run its {RANKS} ranks:\n{done.stdout}{done.stderr}")
    return (min(stamps) - started_ns) / 1e9


def launcher_mib(name: str, directory: Path) -> float:
    """Memory of every process of the launcher while its ranks are asleep."""
    script, end = directory / "sleeper.py", directory / f"end-{name}-{time.monotonic_ns()}"
    script.write_text(SLEEPER)
    with sleeping_job(name, script, end, directory) as (launcher, ranks):
        ours = {launcher, *launcher.children(recursive=True), *guardians_since(launcher.create_time())}
        return sum(process.memory_full_info().pss for process in ours if process.pid not in ranks) / 2**20


def guardians_since(moment: float) -> Iterator[psutil.Process]:
    """paceline's guardians wherever they hang in the process tree: one that outlives its agent may be nobody's child."""
    for process in psutil.process_iter(["cmdline", "create_time"]):
        if process.info["create_time"] >= moment and any(
            word.endswith("guardian.py") for word in process.info["cmdline"] or ()
        ):
            yield process


@contextmanager
def sleeping_job(name: str, script: Path, end: Path, directory: Path) -> Iterator[tuple[psutil.Process, set[int]]]:
    """A job whose ranks are all there and do nothing; ends it on the way out."""
    job = subprocess.Popen(
        command(name, script, str(end)),
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert job.stdout is not None
    ranks: set[int] = set()
    for line in job.stdout:
        if "asleep" in line:
            ranks.add(int(line.split()[-1]))
        if len(ranks) == RANKS:
            break
    try:
        yield psutil.Process(job.pid), ranks
    finally:
        end.touch()
        job.communicate()


def command(name: str, script: Path, *arguments: str) -> list[str]:
    return [*LAUNCHERS[name], "--nproc-per-node", str(RANKS), str(script), *arguments]


def environment() -> dict[str, str]:
    """This environment, without the warning that torchrun prints about threads."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def compare(
    measure: str,
    values: dict[str, list[float]],
    launcher: str = "paceline",
    beside: str = "torchrun",
    *,
    wanted_ratio: float | None = None,
    wanted_more: float | None = None,
) -> Comparison:
    """Either a ratio is wanted, or at most so much more than the other one."""
    ours, theirs = values[launcher], values[beside]
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    more = statistics.median(our - their for our, their in zip(ours, theirs, strict=True))
    if wanted_ratio is not None:
        wanted, reached = f"<= {wanted_ratio}", ratio <= wanted_ratio
    else:
        wanted, reached = f"<= +{wanted_more}: {more:+.3f}", wanted_more is None or more <= wanted_more
    return Comparison(
        measure=measure,
        launcher=launcher,
        beside=beside,
        pairs=len(ratios),
        median=statistics.median(ours),
        beside_median=statistics.median(theirs),
        ratio=ratio,
        ratio_lowest=min(ratios),
        ratio_highest=max(ratios),
        wanted=wanted,
        reached=reached,
    )


def as_table(results: Sequence[Comparison]) -> str:
    lines = [f"{'':28} {'':20} {'n':>3} {'median':>9} {'beside':>9} {'ratio':>6}  {'lowest..highest':>15}  wanted"]
    for result in results:
        names = f"{result.launcher} / {result.beside}"
        spread = f"{result.ratio_lowest:.2f}..{result.ratio_highest:.2f}"
        lines.append(
            f"{result.measure:28} {names:20} {result.pairs:>3} {result.median:>9.3f} {result.beside_median:>9.3f} "
            f"{result.ratio:>6.2f}  {spread:>15}  {result.wanted} {'reached' if result.reached else 'MISSED'}"
        )
    return "\n".join(lines)


def as_json(results: Sequence[Comparison]) -> str:
    return json.dumps(
        {"schema": "paceline.bench.launch/2", "results": [asdict(result) for result in results]}, indent=2
    )


if __name__ == "__main__":
    sys.exit(main())
