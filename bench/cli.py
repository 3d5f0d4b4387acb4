"""How long the read-only verbs take from the shell: medians of wall and CPU time, cold interpreter, warm files.

    python bench/cli.py [--runs 20] [--rounds 15]

Wanted on an idle core: `--help` under 100 ms, every read-only verb under 300 ms. The bare interpreter is measured in the same
rounds: where its wall time is more than 1.5 times its CPU time the core is not idle, wall times are void, and CPU time is judged.
The recordings it reads are made here, `--runs` of them with two ranks each and a thousand steps a rank.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from paceline.facts import Run
from paceline.recording.ring import Cell, RecordKind, RingReader, RingWriter
from paceline.recording.runs import create_run, write_run
from paceline.recording.segments import append_segment
from paceline.recording.writer import EventLog, JsonLines

HELP_MS, VERB_MS = 100.0, 300.0
COMMANDS = {
    "python -c pass": (["-c", "pass"], None),
    "paceline --help": (["-m", "paceline", "--help"], HELP_MS),
    "paceline --version": (["-m", "paceline", "--version"], HELP_MS),
    "paceline run --help": (["-m", "paceline", "run", "--help"], HELP_MS),
    "paceline ps": (["-m", "paceline", "ps"], VERB_MS),
    "paceline ps --all --json": (["-m", "paceline", "ps", "--all", "--json"], VERB_MS),
    "paceline logs": (["-m", "paceline", "logs"], VERB_MS),
    "paceline top --once": (["-m", "paceline", "top", "--once"], VERB_MS),
    "paceline stop (ended run)": (["-m", "paceline", "stop"], VERB_MS),
    "paceline help": (["-m", "paceline", "help"], VERB_MS),
    "paceline help U04": (["-m", "paceline", "help", "U04"], VERB_MS),
    "paceline env": (["-m", "paceline", "env"], VERB_MS),
}


def main() -> int:
    """Print one line per command; 1 when one is over what is wanted of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="recordings to list (20)")
    parser.add_argument("--rounds", type=int, default=15, help="times each command is started (15)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        for number in range(args.runs):
            record(cwd / ".paceline" / "runs", number)
        over = report(measure(cwd, args.rounds), args.rounds)
    return 1 if over else 0


def measure(cwd: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Wall and CPU ms of every command, one after the other in each round."""
    environ = {
        **os.environ,
        "XDG_STATE_HOME": str(cwd / "state"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, (argv, _) in COMMANDS.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            subprocess.run([sys.executable, *argv], cwd=cwd, env=environ, capture_output=True, check=False)
            wall = time.perf_counter() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times[name].append((wall * 1e3, cpu * 1e3))
    return times


def report(times: dict[str, list[tuple[float, float]]], rounds: int) -> bool:
    """Whether any median is over what is wanted."""
    medians = {name: (median(w for w, _ in pairs), median(c for _, c in pairs)) for name, pairs in times.items()}
    bare_wall, bare_cpu = medians["python -c pass"]
    idle = bare_wall <= 1.5 * bare_cpu
    print(f"{'command':<28} {'wall ms':>8} {'CPU ms':>7} {'wanted':>7}   medians of {rounds}")
    over = False
    for name, (_, wanted) in COMMANDS.items():
        wall, cpu = medians[name]
        late = wanted is not None and (wall if idle else cpu) > wanted
        over = over or late
        print(
            f"{name:<28} {wall:8.1f} {cpu:7.1f} {'' if wanted is None else f'{wanted:7.0f}'}{'  over' if late else ''}"
        )
    print("judged by wall time" if idle else "the core is not idle: wall times are void, judged by CPU time")
    return over


def record(root: Path, number: int) -> None:
    """A finished run of two ranks."""
    started_ns = time.time_ns() - number * 10**9
    directory = create_run(root, f"r-{number:06x}")
    run = Run(
        id=directory.path.name,
        name="train",
        directory=str(directory.path),
        command=("train.py",),
        started_ns=started_ns,
        first_host="algo-1",
    )
    write_run(run)
    events = EventLog(directory.events_file)
    telemetry = JsonLines(directory.telemetry_file("algo-1"))
    for second in range(600):
        telemetry.append({"t_ns": started_ns + second * 10**9, "cpu": {"busy_fraction": 0.5}, "padding": "x" * 800})
    for rank in (0, 1):
        events.record("rank_started", host="algo-1", rank=rank, attempt=0, pid=1000 + rank)
        log = directory.log_file("algo-1", 0, rank, "out")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(f"step {step} loss 0.1\n" for step in range(1000)))
        _segment(root, directory.segment_file("algo-1", 0, rank), rank, started_ns)
        events.record("rank_exited", host="algo-1", rank=rank, attempt=0, code=0)
    events.record("run_finished", exit_code=0, status="Completed", secondary_status="Completed", reason="")
    events.close()
    telemetry.close()


def _segment(scratch: Path, path: Path, rank: int, started_ns: int) -> None:
    ring = RingWriter(scratch / "bench.ring", capacity=2048)
    ring.cells[Cell.RANK], ring.cells[Cell.WORLD_SIZE], ring.cells[Cell.PID] = rank, 2, 1000 + rank
    ring.cells[Cell.STEP_COUNT], ring.cells[Cell.STEP_TOTAL_NS] = 1000, 10**11
    ring.cells[Cell.LAST_STEP_NS] = started_ns + 10**11
    for step in range(1000):
        ring.write(RecordKind.STEP, 0, step, started_ns + step * 10**8, 10**8, 0, 0, 0, 1)
    reader = RingReader(ring.path)
    with path.open("w+b") as file:
        append_segment(file, reader)
    reader.close()
    ring.drop()
    ring.path.unlink()


if __name__ == "__main__":
    raise SystemExit(main())
