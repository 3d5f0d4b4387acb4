"""Record stretches of training for the tests of what is called slow, and measure how often a real slowness is found.

    .venv/bin/python bench/stretches.py record --name calm_               twelve healthy jobs, about 12 minutes; on an idle machine, calm
    .venv/bin/python bench/stretches.py record --name busy_ --neighbours 2   the same beside two processes that only turn, with nice 19
    .venv/bin/python bench/stretches.py record --name calm_ --jobs sleeps buckets loader digits three eight     six of them, 6 minutes
    .venv/bin/python bench/stretches.py record --name crowd8_ --neighbours 8 --nice 0 --jobs buckets straggler   a machine that others use
    .venv/bin/python bench/stretches.py judge                             what is said of the stretches, and how often a delay is found

`record` leaves the jobs' directories in .paceline-stretches and cuts their recordings into tests/diagnosis/data/stretches; each stretch
says by how many cores of other programs it was loaded. Those of the straggler, whose rank 1 is slow, go to data/stragglers. `judge`
writes its table into docs/diagnosis.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "tests" / "diagnosis")]

from stretches import (  # noqa: E402
    FOLDER,
    STRAGGLER_MS,
    STRAGGLERS,
    found_delays,
    read_stretch,
    stretches,
    write_stretch,
)

from paceline.diagnosis.flight_recorder import TraceEntry  # noqa: E402
from paceline.launch.coordinator.pace_inputs import FILE, VARIABLE  # noqa: E402

SECONDS, SHORT_SECONDS = 20.5, 12.5
# Of a telemetry line, what host_timing and the step timing read.
_PROGRESS = (
    "rank",
    "attempt",
    "step_count",
    "step_seconds",
    "data_seconds",
    "communication_seconds",
    "checkpoint_seconds",
)
_SECTIONS = {
    "cpu": ("count", "busy_fraction", "steal_fraction"),
    "memory": ("swap_used_bytes",),
    "cgroup": ("cpu_quota_cpus", "throttled_count", "period_count"),
}
# Of a snapshot: names of files and programs are nobody's business in a test's data.
_LEFT_OUT = (
    "stacks",
    "native",
    "environment",
    "filesystems",
    "kernel_lines",
    "not_judged",
    "rendezvous_seen",
    "blocked_on",
)


def cut(run_directory: Path, name: str, script: str, allowed: tuple[str, ...], into: Path = FOLDER) -> list[Path]:
    """Windows that end at a turn, from the end of the recording to its beginning, none over another; every other one is short."""
    lines = [json.loads(line) for line in (run_directory / FILE).read_text().splitlines()]
    turns = [line["at_ns"] for line in lines if line["kind"] == "turn"]
    snapshots = [
        event
        for event in map(json.loads, (run_directory / "events.jsonl").read_text().splitlines())
        if event["event"] in ("look", "host_look")
    ]
    first = _steady_ns(lines)
    made: list[Path] = []
    until = turns[-1] if turns else 0
    for turn in reversed(turns):
        if turn > until or first is None:
            continue
        since = turn - round((SECONDS, SHORT_SECONDS)[len(made) % 2] * 1e9)
        if since < first:
            break
        path = into / f"{name}_{len(made) + 1}.jsonl.gz"
        found = list(_window(lines, snapshots, since, turn))
        foreign, pressure, memory = _load(found)
        loaded = foreign >= QUIET_CORES
        header = {
            "ranks": max(len(line[3]["progress"]) for line in found if line[0] == "telemetry"),
            "script": script,
            "load": f"{'loaded' if loaded else 'idle'}: {foreign:.1f} cores of other programs, CPU pressure {pressure:.2f}",
            "allowed": [
                *allowed,
                *(("S03", "S04") if loaded else ()),
                *(("S17",) if memory >= SHORT_OF_MEMORY else ()),
            ],
            "from_ns": since,
        }
        write_stretch(path, header, found)
        made.append(path)
        until = since
    return made


def _load(found: list[tuple[Any, ...]]) -> tuple[float, float, float]:
    """Cores that were used beside the job, and the shares of time in which a task waited for a CPU, and for memory."""
    lines = [line[3] for line in found if line[0] == "telemetry" and line[3]["ranks"]]
    seconds = (lines[-1]["t_ns"] - lines[0]["t_ns"]) / 1e9
    used = [sum(one["cpu_seconds"] for one in line["ranks"].values()) for line in (lines[0], lines[-1])]
    waited = {
        name: (lines[-1]["pressure"][name]["some_seconds"] - lines[0]["pressure"][name]["some_seconds"]) / seconds
        for name in ("cpu", "memory")
    }
    busy = fmean(line["cpu"]["busy_fraction"] * line["cpu"]["count"] for line in lines)
    return max(busy - (used[1] - used[0]) / seconds, 0.0), waited["cpu"], waited["memory"]


def _steady_ns(lines: list[dict[str, Any]]) -> int | None:
    """When all ranks had done their first three steps."""
    for line in lines:
        if line["kind"] == "telemetry":
            progress = line["line"].get("progress") or {}
            if progress and all((one.get("step_count") or 0) >= 3 for one in progress.values()):
                return int(line["at_ns"])
    return None


def _window(
    lines: list[dict[str, Any]], snapshots: list[dict[str, Any]], since: int, until: int
) -> Iterator[tuple[Any, ...]]:
    waiting = [event for event in snapshots if since <= event["t_ns"] <= until]
    for line in lines:
        match line["kind"]:
            case "telemetry" if since <= line["at_ns"] <= until:
                yield "telemetry", line["host"], line["at_ns"], _cut_telemetry(line["line"])
            case "trace":
                entries = [
                    TraceEntry(group, index, operation, dtype, tuple(shape) if shape is not None else None, created)
                    for group, index, operation, dtype, shape, created in line["entries"]
                    if since <= created <= until
                ]
                if entries:
                    yield "trace", line["rank"], entries
            case "turn" if since < line["at_ns"] <= until:
                while waiting and waiting[0]["t_ns"] <= line["at_ns"]:
                    yield "event", _cut_snapshot(waiting.pop(0))
                yield "turn", line["at_ns"]


def _cut_telemetry(line: dict[str, Any]) -> dict[str, Any]:
    kept = {name: {key: line[name].get(key) for key in keys} for name, keys in _SECTIONS.items() if line.get(name)}
    return {
        "t_ns": line["t_ns"],
        **kept,
        "pressure": {name: {"some_seconds": found["some_seconds"]} for name, found in line.get("pressure", {}).items()},
        "network": {
            name: {key: found[key] for key in ("sent_bytes", "received_bytes")}
            for name, found in line.get("network", {}).items()
            if name != "lo"
        },
        "ranks": {
            rank: {key: found.get(key) for key in ("cpu_seconds", "cpu_wait_seconds")}
            for rank, found in line.get("ranks", {}).items()
        },
        "progress": {
            rank: {key: round(v, 6) if isinstance(v := found.get(key), float) else v for key in _PROGRESS}
            for rank, found in (line.get("progress") or {}).items()
        },
    }


def _cut_snapshot(event: dict[str, Any]) -> dict[str, Any]:
    snapshot = {name: value for name, value in event["look"].items() if name not in _LEFT_OUT}
    if snapshot.get("foreign"):
        snapshot["foreign"] = [(pid, "program", cores) for pid, _, cores in snapshot["foreign"]]
    if snapshot.get("children"):
        snapshot["children"] = [{**child, "stack": [], "name": "child"} for child in snapshot["children"]]
    return {**event, "look": snapshot}


# ----------------------------------------------------------------------------------------------------------------- recording

STRAGGLER = "straggler"
_NEVER = "1000000000"
_HEALTHY = ("--at-step", _NEVER)
# Name, ranks, script of examples/, its arguments for about a minute, and the causes that are in it by its own making.
JOBS: tuple[tuple[str, int, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("sleeps", 2, "broken/n01_asleep.py", (*_HEALTHY, "--steps", "1900"), ()),
    ("buckets", 2, "broken/s01_straggler.py", (*_HEALTHY, "--steps", "1500"), ()),
    ("loader", 2, "broken/s05_loader.py", (*_HEALTHY, "--steps", "1700"), ()),
    ("gpt", 2, "gpt_stdlib.py", ("--steps", "150"), ()),
    ("digits", 2, "digits_ddp.py", ("--epochs", "150"), ()),
    ("quick", 2, "broken/n01_asleep.py", (*_HEALTHY, "--steps", "7000", "--step-ms", "1"), ("S16",)),
    ("long", 2, "broken/n01_asleep.py", (*_HEALTHY, "--steps", "150", "--step-ms", "350"), ()),
    (
        "evaluates",
        2,
        "broken/decoy_evaluation.py",
        ("--rank", "0", "--steps", "1200", "--at-step", "900", "--seconds", "10"),
        (),
    ),
    ("saves", 2, "broken/decoy_save.py", ("--rank", "0", "--steps", "1200", "--every", "300"), ("S13",)),
    ("three", 3, "broken/s01_straggler.py", (*_HEALTHY, "--steps", "1200"), ()),
    ("four", 4, "broken/n01_asleep.py", (*_HEALTHY, "--steps", "1000", "--step-ms", "40"), ()),
    ("eight", 8, "broken/n01_asleep.py", (*_HEALTHY, "--steps", "500", "--step-ms", "60"), ()),
    (STRAGGLER, 2, "broken/s01_straggler.py", ("--ms", f"{STRAGGLER_MS:g}", "--steps", "900"), ("S01",)),
)
HEALTHY_JOBS = tuple(job[0] for job in JOBS if job[0] != STRAGGLER)
_SPIN = "while True: pass"
# Programs that take less than this beside the job leave the machine to it.
QUIET_CORES = 0.25
# Of the time, tasks waited for memory: then that is there as well.
SHORT_OF_MEMORY = 0.05


def record(folder: Path, begins: str, jobs: list[str], neighbours: int, nice: int) -> None:
    """Run the jobs one after the other and cut what they leave; the neighbours spin meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    spinning = [subprocess.Popen(["nice", "-n", str(nice), sys.executable, "-c", _SPIN]) for _ in range(neighbours)]
    try:
        for name, ranks, script, arguments, allowed in JOBS:
            if name not in (jobs or HEALTHY_JOBS):
                continue
            place = folder / f"{begins}{name}"
            # Of its own: a script that goes on from its checkpoint has nothing left to train the second time.
            place.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "paceline", "run", "--run-dir", str(place), "--nproc-per-node", str(ranks)]
            with (folder / f"{begins}{name}.txt").open("w") as out:
                done = subprocess.run(
                    [*command, str(REPOSITORY / "examples" / script), *arguments],
                    cwd=place,
                    env={**os.environ, VARIABLE: "1"},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=600,
                )
            into = STRAGGLERS if name == STRAGGLER else FOLDER
            into.mkdir(parents=True, exist_ok=True)
            runs = [found.parent for found in place.rglob(FILE)]
            made = [path for one in runs for path in cut(one, f"{begins}{name}", script, allowed, into)]
            print(f"{begins}{name}: exit {done.returncode}, {len(made)} stretches", flush=True)
    finally:
        for process in spinning:
            process.kill()
            process.wait()


# ------------------------------------------------------------------------------------------------------------------- judging

PAGE = REPOSITORY / "docs" / "diagnosis.md"
_BEGIN, _END = "<!-- bench/stretches.py judge: begin -->\n", "<!-- bench/stretches.py judge: end -->\n"
FRACTIONS = (0.5, 0.2, 0.1, 0.05)


def judged() -> str:
    """The table of the page: the stretches by load, and of each delay how many are found and how many are said to be likely or high."""
    found = [read_stretch(path) for path in stretches()]
    rows = ["| Stretches | " + " | ".join(f"{fraction:.0%} of a step" for fraction in FRACTIONS) + " |"]
    rows.append("|---" * (len(FRACTIONS) + 1) + "|")
    for name, kind in (("on a quiet machine", "idle"), ("on a loaded machine", "loaded")):
        chosen = [stretch for stretch in found if stretch.load.startswith(kind)]
        cells = [_cell(found_delays(chosen, fraction)) for fraction in FRACTIONS]
        rows.append(f"| {len(chosen)} {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _cell(delays: tuple[int, int, int]) -> str:
    tried, said, sure = delays
    return f"{said} of {tried} ({said / tried:.0%}); likely or high {sure / tried:.0%}" if tried else "none long enough"


def with_table(page: str, table: str) -> str:
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table}{_END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    recorder = verbs.add_parser("record")
    recorder.add_argument("--name", default="", help="what the names of the stretches begin with")
    recorder.add_argument("--jobs", nargs="*", default=[], help="some of " + ", ".join(job[0] for job in JOBS))
    recorder.add_argument("--neighbours", type=int, default=0, help="processes that only turn beside each job")
    recorder.add_argument("--folder", type=Path, default=REPOSITORY / ".paceline-stretches")
    recorder.add_argument("--nice", type=int, default=19, help="of these processes (default 19)")
    verbs.add_parser("judge")
    args = parser.parse_args()
    if args.verb == "record":
        record(args.folder, args.name, args.jobs, args.neighbours, args.nice)
    else:
        text = judged()
        print(text)
        PAGE.write_text(with_table(PAGE.read_text(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
