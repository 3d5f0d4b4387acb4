"""How long a plan takes once the step is known: medians, in this process and from the shell.

    python bench/plan.py [--rounds 9]

Wanted: all types of the catalogue in 12 counts under 1 s, a what-if of 10,240 devices under 1 s. Where the wall time of a round is more
than 1.5 times its CPU time the core is not idle, wall times are void, and CPU time is judged.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from paceline.parts.plan.cli.question import question_of
from paceline.parts.plan.cli.verb import parse
from paceline.parts.plan.planner.evaluate import Plan, evaluate
from paceline.parts.plan.planner.workload import OperationCounts, Precision, Workload
from paceline.parts.plan.views.plan import PlanPage, plan_text
from paceline.parts.plan.views.plan_json import plan_json

WANTED_MS = 1000.0
COUNTS = "1,2,4,8,16,32,64,128,256,512,1024,1280"
STEP = [
    "--gradient-mib",
    "1272",
    "--batch",
    "32",
    "--gflops-per-sample",
    "260",
    "--activation-mib-per-sample",
    "300",
    "--precision",
    "bf16",
]
EVERY_TYPE = [
    *STEP,
    "--instance",
    "all",
    "--host-counts",
    COUNTS,
    "--epochs",
    "3",
    "--samples",
    "10000000",
    "--max-run",
    "24h",
]
WHAT_IF = [*STEP, "--instance", "p5.48xlarge", "--host-counts", "1280", "--steps", "100000", "--zones", "2"]
INLINE = [
    *(
        "--json",
        "--device",
        "A100-SXM4-40GB",
        "--devices-per-host",
        "8",
        "--host-counts",
        "1,2,4",
        "--intra",
        "nvlink3",
    ),
    *("--inter-gbps", "100", "--gradient-mib", "1272", "--measured-step-ms", "310"),
]
KINDS = ("matmul", "convolution", "attention", "normalization", "elementwise", "reduction", "embedding", "copy")


def main() -> int:
    """Print one line per question; 1 when one is over what is wanted of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="times each question is answered (9)")
    rounds = parser.parse_args().rounds
    questions: dict[str, Callable[[], object]] = {
        "every type x 12 counts, sizes of the step given": lambda: answered(EVERY_TYPE),
        "the same, a step of 400 operations": lambda: answered(EVERY_TYPE, traced_step()),
        "the same as text": lambda: plan_text(answered(EVERY_TYPE), PlanPage()),
        "the same as JSON": lambda: json.dumps(plan_json(answered(EVERY_TYPE))),
        "10,240 devices of 1,280 hosts in 2 zones": lambda: answered(WHAT_IF),
        "three rows, inline": lambda: answered(INLINE),
        "three rows, inline, from the shell": lambda: shell(INLINE),
    }
    print(f"{'question':<52} {'wall ms':>8} {'CPU ms':>7} {'wanted':>7}   medians of {rounds}")
    over = [name for name, question in questions.items() if not measured(name, question, rounds)]
    rows = answered(EVERY_TYPE).rows
    print(
        f"{len({row.name for row in rows})} types, {len(rows)} rows, {sum(not row.refused for row in rows)} of them not refused"
    )
    return 1 if over else 0


def answered(argv: list[str], workload: Workload | None = None) -> Plan:
    """The plan of a command line; with another step than it gives, where one is given."""
    question = question_of(parse(argv))
    return evaluate(question if workload is None else replace(question, workload=workload))


def traced_step() -> Workload:
    """A step as a trace describes it: 400 different operations."""
    operations = tuple(
        OperationCounts(
            name=f"operation {number}",
            kind=KINDS[number % len(KINDS)],
            precision=Precision.BF16,
            count=24,
            flops=2e10 * (number % 7 + 1),
            moved_bytes=4e7 * (number % 5 + 1),
        )
        for number in range(400)
    )
    given = question_of(parse(EVERY_TYPE)).workload
    return replace(given, operations=operations, flops=sum(each.flops for each in operations))


def shell(argv: list[str]) -> None:
    """One call from the command line."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-m", "paceline", "plan", *argv], env=environ, capture_output=True, check=True)


def measured(name: str, question: Callable[[], object], rounds: int) -> bool:
    """Whether the question is answered in the time that is wanted."""
    times = []
    for _ in range(rounds):
        wall, before = time.perf_counter(), os.times()
        question()
        after = os.times()
        cpu = sum(after[:4]) - sum(before[:4])
        times.append(((time.perf_counter() - wall) * 1e3, cpu * 1e3))
    wall_ms, cpu_ms = (median(column) for column in zip(*times, strict=True))
    busy = wall_ms > 1.5 * cpu_ms
    good = (cpu_ms if busy else wall_ms) <= WANTED_MS
    print(
        f"{name:<52} {wall_ms:8.1f} {cpu_ms:7.1f} {WANTED_MS:7.0f}{'' if good else '  over'}{'  (core not idle)' if busy else ''}"
    )
    return good


if __name__ == "__main__":
    raise SystemExit(main())
