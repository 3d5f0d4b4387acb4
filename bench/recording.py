"""What the recording of a wide and long run costs: bytes a day, CPU of the agents that sum it up, CPU to read it, and its page.

    python bench/recording.py [--ranks 4096] [--steps 100000] [--step-seconds 0.4]

The run is made up: files as the agents write them, with the sums of steps by the agents' own code. Single steps are holes in the segments,
except for the last ones, because nothing reads them; so are the finest sums, if they are too large to be read. All times are CPU time of
this process. Bytes and CPU time do not depend on what else the machine does; the load is printed beside them.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from array import array
from pathlib import Path

from paceline.cli.report import VERB, run
from paceline.diagnosis.case import Estimate, HeldUp, HostTiming, RankTiming, StepTiming
from paceline.diagnosis.slow.step_timing import standing_out
from paceline.facts import Run
from paceline.probes.telemetry import Sampler
from paceline.recording.evidence import evidence
from paceline.recording.fact_json import to_plain
from paceline.recording.lateness import LatenessFile, LatenessFrame, LateRow, late_rows
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import HEADER_BYTES, RECORD, RECORD_BYTES, Basis, Cell, RecordKind, RingReader, RingWriter
from paceline.recording.runs import create_run, write_run
from paceline.recording.segments import append_segment
from paceline.recording.step_columns import TimeAxis, step_columns
from paceline.recording.step_rollups import INTERVALS_SECONDS, ROLLUP, StepRollups, rollup_file
from paceline.recording.telemetry_rollup import TelemetryRollup
from paceline.recording.writer import EventLog, write_json

WANTED_REPORT_SECONDS, WANTED_REPORT_BYTES = 60.0, 5_000_000
SECOND, DAY_SECONDS = 1_000_000_000, 86_400
STARTED = 1_795_000_000 * SECOND
RANKS_PER_HOST, TURN_SECONDS, LAST_STEPS = 8, 10, 64
LATE = 1234


def main() -> int:
    """Print one line per part; 1 when the page takes longer or is larger than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4096, help="ranks of the made-up run, a multiple of 8 (4096)")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of each rank (100000)")
    parser.add_argument("--step-seconds", type=float, default=0.4, help="time of a step (0.4)")
    args = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        over = measure(Path(folder), args.ranks, args.steps, args.step_seconds)
    print(f"load average {before:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} CPUs")
    return int(over)


def measure(folder: Path, ranks: int, steps: int, step_seconds: float) -> bool:
    hosts, span_seconds = ranks // RANKS_PER_HOST, steps * step_seconds
    print(f"{ranks} ranks on {hosts} hosts, {steps} steps of {step_seconds} s: {span_seconds / 3600:.1f} h")
    directory = RunDirectory(create_run(folder / "runs", "r-000001").path)
    write_run(made_up_run(str(directory.path), hosts))
    agent_ms = write_hosts(directory, folder, hosts, steps, step_seconds)
    day = DAY_SECONDS / span_seconds
    print("bytes a day")
    first = directory.attempt(host_name(0), 0)
    show("segments, a host", day * sum(path.stat().st_size for path in first.glob("*.seg")))
    for seconds in INTERVALS_SECONDS:
        show(f"sums of {seconds} s, a host", day * rollup_file(first, seconds).stat().st_size)
    sample_bytes, minute_bytes, minute_ms = telemetry(folder)
    show("telemetry, a host", DAY_SECONDS * sample_bytes)
    show("telemetry of minutes, a host", DAY_SECONDS / 60 * minute_bytes)
    write_lateness(directory, ranks, span_seconds, step_seconds)
    show("lateness, first host", day * directory.lateness_file.stat().st_size)
    event_bytes = write_events(directory, ranks, hosts, span_seconds, step_seconds)
    show("step timing as events, first host", DAY_SECONDS / 600 * event_bytes)
    show("newest step timing, first host", directory.step_timing_file(0).stat().st_size)
    print("CPU of an agent")
    print(f"  sums of steps, a rank and minute    {agent_ms:10.2f} ms")
    print(f"  telemetry of minutes, a minute      {minute_ms:10.2f} ms")
    return read(directory, span_seconds)


def read(directory: RunDirectory, span_seconds: float) -> bool:
    axis = TimeAxis(STARTED, STARTED + round(span_seconds * SECOND), 300)
    print("CPU of a reader")
    began = time.process_time()
    columns, _ = step_columns([directory], axis)
    print(f"  steps in 300 columns                {time.process_time() - began:10.2f} s")
    assert len(columns) and all(sum(one.counts) == sum(columns[0].counts) for one in columns)
    found = evidence(directory.path, recent=True)
    began = time.process_time()
    rows, _ = late_rows([directory], found.events, axis)
    print(f"  lateness in 300 columns             {time.process_time() - began:10.2f} s")
    assert max(rows, key=LateRow.worst).rank == LATE % len(rows)
    page = directory.path / "page.html"
    began = time.process_time()
    run(page_arguments(directory.path, page))
    seconds, size = time.process_time() - began, page.stat().st_size
    over = seconds > WANTED_REPORT_SECONDS or size > WANTED_REPORT_BYTES
    print(f"  paceline report                     {seconds:10.2f} s, {size / 1e6:.2f} MB{'; over' if over else ''}")
    return over


def page_arguments(directory: Path, page: Path) -> argparse.Namespace:
    values = {option.name.replace("-", "_"): None for option in VERB.options}
    return argparse.Namespace(
        **{**values, "run": str(directory), "directories": [], "html": str(page), "no_logs": False, "redact": False},
        json=False,
    )


def show(name: str, size_bytes: float) -> None:
    print(f"  {name:<36}{size_bytes / 1e6:10.2f} MB")


# --------------------------------------------------------------------------------------------------------------- made up


def host_name(number: int) -> str:
    return f"algo-{number + 1}"


def made_up_run(directory: str, hosts: int) -> Run:
    return Run(
        id="r-000001", name="wide", directory=directory, command=("paceline", "run", "train.py"), started_ns=STARTED,
        first_host=host_name(0), hosts_wanted=(hosts, hosts),
    )  # fmt: skip


def write_hosts(directory: RunDirectory, folder: Path, hosts: int, steps: int, step_seconds: float) -> float:
    """Segments and sums of all hosts; those of the first are made by the agent's code. Returns its CPU time in ms a rank and minute."""
    attempt = directory.attempt(host_name(0), 0)
    cpu_seconds = write_sums(attempt, steps, step_seconds)
    sums = {seconds: rollup_file(attempt, seconds).read_bytes() for seconds in INTERVALS_SECONDS}
    for number in range(hosts):
        place = directory.attempt(host_name(number), 0)
        place.mkdir(parents=True, exist_ok=True)
        for local in range(RANKS_PER_HOST):
            write_segment(folder, place, number * RANKS_PER_HOST + local, steps, step_seconds)
        for seconds, content in sums.items() if number else ():
            if len(content) * hosts > 256 << 20:
                with rollup_file(place, seconds).open("wb") as file:
                    file.truncate(len(content))
            else:
                rollup_file(place, seconds).write_bytes(of_ranks(content, number * RANKS_PER_HOST))
    return cpu_seconds * 1000 / RANKS_PER_HOST / (steps * step_seconds / 60)


def write_sums(attempt: Path, steps: int, step_seconds: float) -> float:
    """The sums of a host's ranks, from records as they are drained each second. Returns CPU seconds."""
    attempt.mkdir(parents=True)
    rollups, length = StepRollups(attempt), round(step_seconds * SECOND)
    made, spent, now = 0, 0.0, STARTED
    while made < steps:
        now += SECOND
        records = bytearray()
        while made < steps and STARTED + (made + 1) * length <= now:
            made += 1
            records += RECORD.pack(RecordKind.STEP, 0, 0, made, STARTED + made * length, length, 1_000_000, 9, 0, 1)
        began = time.process_time()
        for rank in range(RANKS_PER_HOST):
            rollups.add(rank, bytes(records))
        rollups.write(now)
        spent += time.process_time() - began
    rollups.write(now, is_last=True)
    return spent


def of_ranks(content: bytes, first_rank: int) -> bytes:
    """The sums of other ranks."""
    cells = array("I", content)
    width = ROLLUP.size // 4
    cells[::width] = array("I", [rank + first_rank for rank in cells[::width]])
    return cells.tobytes()


def write_segment(folder: Path, place: Path, rank: int, steps: int, step_seconds: float) -> None:
    """A segment whose last steps are there, and whose other steps are a hole."""
    length, ring_path = round(step_seconds * SECOND), folder / "ring"
    ring = RingWriter(ring_path, capacity=256)
    cells = {
        Cell.PID: 10_000 + rank, Cell.RANK: rank, Cell.STEP_COUNT: steps, Cell.STEP_TOTAL_NS: steps * length,
        Cell.FIRST_STEP_NS: STARTED + length, Cell.LAST_STEP_NS: STARTED + steps * length, Cell.GROUP_COUNT: 1,
        Cell.COMMUNICATION_BASIS: int(Basis.WAITS_TIMED), Cell.START_NS: STARTED, Cell.LOCAL_RANK: rank % RANKS_PER_HOST,
    }  # fmt: skip
    for cell, value in cells.items():
        ring.cells[cell] = value
    for number in range(steps - LAST_STEPS + 1, steps + 1):
        ring.write(RecordKind.STEP, 0, number, STARTED + number * length, length, 1_000_000, 40_000_000, 0, 1)
    reader = RingReader(ring.path)
    path = place / f"rank_{rank}.seg"
    with path.open("w+b") as file:
        file.truncate(HEADER_BYTES + (steps - LAST_STEPS) * RECORD_BYTES)
        append_segment(file, reader)
    reader.close()
    ring.drop()


def telemetry(folder: Path) -> tuple[int, int, float]:
    """Bytes of a sample and of a minute of this machine with 8 ranks and no GPU, and CPU ms to sum up a minute."""
    sampler = Sampler()
    samples = [sampler.sample(dict.fromkeys(range(RANKS_PER_HOST), os.getpid())) for _ in range(60)]
    file = folder / "minutes.jsonl"
    rollup = TelemetryRollup(file)
    began = time.process_time()
    for number, sample in enumerate(samples):
        rollup.add({**sample, "t_ns": STARTED // (60 * SECOND) * 60 * SECOND + number * SECOND})
    rollup.close()
    spent = time.process_time() - began
    sampler.close()
    write_json(folder / "sample.json", samples[-1], indent=None)
    return (folder / "sample.json").stat().st_size, file.stat().st_size, spent * 1000


def write_lateness(directory: RunDirectory, ranks: int, span_seconds: float, step_seconds: float) -> None:
    file, noise = LatenessFile(directory.lateness_file), random.Random(17)
    for turn in range(int(span_seconds / TURN_SECONDS)):
        late = {rank: noise.random() * 0.05 for rank in range(ranks)}
        late[LATE % ranks] = 0.4 + noise.random() * 0.1
        begin, step = STARTED + turn * TURN_SECONDS * SECOND, round(turn * TURN_SECONDS / step_seconds)
        file.append(
            LatenessFrame(
                attempt=0, from_ns=begin, to_ns=begin + TURN_SECONDS * SECOND - 1, from_step=step, to_step=step + 20,
                step_ns=round(step_seconds * SECOND), late=late, last={LATE % ranks: 1.0},
            )
        )  # fmt: skip


def write_events(directory: RunDirectory, ranks: int, hosts: int, span_seconds: float, step_seconds: float) -> int:
    """The events of the run. Returns the bytes of one with the step timing."""
    end = STARTED + round(span_seconds * SECOND)
    log = EventLog(directory.events_file, clock_ns=lambda: STARTED)
    placed = [
        {"host": host_name(n), "node_rank": n, "first_rank": n * RANKS_PER_HOST, "ranks": RANKS_PER_HOST}
        for n in range(hosts)
    ]
    log.record("attempt_started", attempt=0, world_size=ranks, hosts=placed)
    for rank in range(ranks):
        log.record("rank_started", host=host_name(rank // RANKS_PER_HOST), rank=rank, attempt=0, pid=10_000 + rank)
    timing = step_timing(ranks, hosts, end, step_seconds)
    plain = to_plain(standing_out(timing))
    before = directory.events_file.stat().st_size
    log.record("tempo", attempt=0, tempo=plain, t_ns=end)
    size = directory.events_file.stat().st_size - before
    for at in range(int(span_seconds / 600)):
        log.record("tempo", attempt=0, tempo=plain, t_ns=STARTED + at * 600 * SECOND)
    log.record("run_finished", t_ns=end, exit_code=0, status="Completed", secondary_status="Completed", reason="")
    log.close()
    write_json(directory.step_timing_file(0), to_plain(timing), indent=None)
    return size


def step_timing(ranks: int, hosts: int, at_ns: int, step_seconds: float) -> StepTiming:
    late = LATE % ranks
    return StepTiming(
        window_seconds=60.0, from_step=900, to_step=1064, step_seconds=step_seconds,
        ranks=tuple(
            RankTiming(
                rank=rank, host=host_name(rank // RANKS_PER_HOST), steps=164, step_seconds=step_seconds,
                data_seconds=0.001, communication_seconds=0.04, checkpoint_seconds=0.0, own_seconds=0.36,
                lags=(0.0,) * 12, late_seconds=0.2 if rank == late else 0.001, last_fraction=float(rank == late),
                cpu_fraction=0.9,
            )
            for rank in range(ranks)
        ),
        hosts=tuple(HostTiming(host=host_name(n), cpu_count=96, busy_fraction=0.1, pressure_cpu=0.0) for n in range(hosts)),
        spread_seconds=0.2, at_ns=at_ns,
        held_up=HeldUp(ranks=(late,), gain=Estimate(seconds=0.2, low=0.19, high=0.21, blocks=20)),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
