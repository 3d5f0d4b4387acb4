"""How long the judge takes: from events as they are recorded to the page, for a job of 4,096 ranks that stands still, diverges and is slow.

    python bench/judge.py [--ranks 4096] [--rounds 5] [--recorded 256]

Wanted on one core: events of 4,096 ranks judged in under 1 s. Judged are made-up events (a stall with a heartbeat of every rank,
16 snapshots, a divergence, the step timing of every rank), and a recording that is made here with `--recorded` ranks: there, reading
the files is shown apart.
All times are CPU time of this process, medians; the events travel through JSON as in a recording.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from paceline.diagnosis.build_case import build_case, case_of
from paceline.diagnosis.case import (
    Call,
    Divergence,
    GroupCounters,
    Heartbeat,
    HostTiming,
    Level,
    RankTiming,
    Site,
    Stall,
    StepTiming,
)
from paceline.diagnosis.snapshots import Frame, HostSnapshot, RankSnapshot, Socket, ThreadStack
from paceline.diagnosis.verdict import Diagnosis, diagnose
from paceline.facts import RankRecord, Run, Step
from paceline.recording.evidence import evidence
from paceline.recording.fact_json import to_plain
from paceline.recording.ring import Cell, RecordKind, RingReader, RingWriter
from paceline.recording.runs import create_run, write_run
from paceline.recording.segments import append_segment
from paceline.recording.writer import EventLog
from paceline.rules import all_causes
from paceline.views.documents import json_text
from paceline.views.why import WhyPage, why_json, why_text

WANTED_MS, WANTED_RANKS = 1000.0, 4096
RANKS_PER_HOST = 8
LATE = 1234
SECOND = 1_000_000_000
STARTED = 1_795_000_000 * SECOND
NOW = STARTED + 600 * SECOND
STEP_SECONDS = 0.4


def main() -> int:
    """Print one line per part; 1 when judging 4,096 ranks takes longer than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=WANTED_RANKS, help="ranks of the made-up job (4096)")
    parser.add_argument("--rounds", type=int, default=5, help="times each is judged (5)")
    parser.add_argument("--recorded", type=int, default=256, help="ranks of the recording (256; 0 for none)")
    args = parser.parse_args()
    wall, findings = judge_made_up(args.ranks, args.rounds)
    print(f"made-up events of {args.ranks} ranks, {len(all_causes())} causes, medians of {args.rounds}, CPU ms")
    show(wall)
    print(f"  found: {', '.join(findings) or 'nothing'}")
    over = args.ranks >= WANTED_RANKS and sum(wall.values()) > WANTED_MS
    if args.recorded:
        with tempfile.TemporaryDirectory() as folder:
            times = judge_recorded(Path(folder), args.recorded, args.rounds)
        print(f"recording of {args.recorded} ranks")
        show(times)
    print(f"wanted: under {WANTED_MS:.0f} ms{'; over' if over else ''}")
    return 1 if over else 0


def show(times: dict[str, float]) -> None:
    for name, ms in {**times, "together": sum(times.values())}.items():
        print(f"  {name:<28} {ms:8.1f}")


def judge_made_up(ranks: int, rounds: int) -> tuple[dict[str, float], list[str]]:
    """Part -> median CPU ms, and the codes that were found."""
    events = json.loads(json.dumps(made_up_events(ranks)))
    records = [record(rank) for rank in range(ranks)]
    hosts = [host_of(8 * place) for place in range((ranks + RANKS_PER_HOST - 1) // RANKS_PER_HOST)]
    run = made_up_run("")
    rules = all_causes()
    found: dict[str, Any] = {}

    def build() -> None:
        found["case"] = build_case(run, events=events, ranks=records, hosts=hosts, telemetry={}, now_ns=NOW, lasts=True)

    def judge() -> None:
        found["said"] = diagnose(found["case"], rules)

    def view() -> None:
        why_text(found["said"], found["case"], WhyPage())
        json_text(why_json(found["said"], run))

    times = cpu_ms({"facts from the events": build, "causes": judge, "page and object": view}, rounds)
    said: Diagnosis = found["said"]
    return times, [finding.code for finding in said.findings]


def judge_recorded(folder: Path, ranks: int, rounds: int) -> dict[str, float]:
    """The same from files."""
    directory = write_recording(folder, ranks)
    rules = all_causes()
    found: dict[str, Any] = {}

    def read() -> None:
        found["evidence"] = evidence(directory, recent=True)

    def judge() -> None:
        case = case_of(found["evidence"], now_ns=NOW, lasts=True)
        why_text(diagnose(case, rules), case, WhyPage())

    return cpu_ms({"reading the recording": read, "judging it, page included": judge}, rounds)


def cpu_ms(parts: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median CPU time of each part, run one after the other in each round; the first round, which imports, is left out."""
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, part in parts.items():
            began = time.process_time()
            part()
            if number:
                taken[name].append((time.process_time() - began) * 1e3)
    return {name: median(values) for name, values in taken.items()}


# ------------------------------------------------------------------------------------------------------------- the job


def host_of(rank: int) -> str:
    return f"algo-{rank // RANKS_PER_HOST + 1}"


def made_up_run(directory: str) -> Run:
    return Run(
        id="r-000001", name="t", directory=directory, command=("t.py",), started_ns=STARTED, first_host=host_of(0)
    )


def record(rank: int) -> RankRecord:
    """A rank with the last steps that a bounded look at its segment keeps."""
    duration = int(STEP_SECONDS * SECOND)
    steps = tuple(
        Step(
            index=1000 + place,
            end_ns=NOW - (80 - place) * duration,
            duration_ns=duration,
            data_ns=1_000_000,
            communication_ns=40_000_000,
            checkpoint_ns=0,
        )
        for place in range(64)
    )
    return RankRecord(
        host=host_of(rank),
        rank=rank,
        attempt=0,
        pid=10_000 + rank,
        world_size=WANTED_RANKS,
        step_count=1064,
        first_step_ns=STARTED + 30 * SECOND,
        last_step_ns=steps[-1].end_ns,
        step_seconds=1064 * STEP_SECONDS,
        data_seconds=1.0,
        communication_seconds=42.0,
        checkpoint_seconds=0.0,
        collective_count=10_000,
        steps=steps,
    )


def made_up_events(ranks: int) -> list[dict[str, Any]]:
    """All that the agents would have recorded, as they record it."""
    late = min(LATE, ranks - 1)
    since = NOW - 20 * SECOND
    still = Stall(
        level=Level.STALL,
        since_ns=since,
        detected_ns=since + 3 * SECOND,
        threshold_seconds=3.0,
        late=(late,),
        waiting=tuple(rank for rank in range(ranks) if rank != late),
        basis="flight recorder",
        group="default_pg",
        index=10_001,
        operation="all_reduce",
        since_step=1064,
    )
    suspects = [late, *(rank for rank in range(15) if rank != late)]
    diverged = Divergence(
        group="tensor_parallel",
        ranks=tuple(range(16)),
        index=501,
        found_ns=since,
        calls={rank: call(501, 4 + (rank == 3)) for rank in range(16)},
        windows={rank: tuple(call(485 + n, 4 + (rank == 3 and n == 16)) for n in range(33)) for rank in range(16)},
    )
    return [
        {"event": "run_started", "t_ns": STARTED, "max_run_seconds": 3600.0},
        {"event": "attempt_started", "t_ns": STARTED, "attempt": 0, "world_size": ranks},
        {"event": "tempo", "t_ns": since, "tempo": to_plain(timing(ranks))},
        {
            "event": "standstill",
            "t_ns": still.detected_ns,
            "standstill": to_plain(still),
            "pulses": [to_plain(heartbeat(rank, since, rank == late)) for rank in range(ranks)],
        },
        *({"event": "look", "t_ns": NOW, "look": to_plain(snapshot(rank, rank == late))} for rank in suspects),
        *(
            {"event": "host_look", "t_ns": NOW, "look": to_plain(HostSnapshot(host=host, at_ns=NOW, cpu_count=96))}
            for host in sorted({host_of(rank) for rank in suspects})
        ),
        {"event": "divergence", "t_ns": since, "divergence": to_plain(diverged)},
    ]


def call(index: int, size: int) -> Call:
    site = Site(file="/home/me/train.py", line=40, function="step")
    return Call(
        index=index, operation="all_reduce", issued_ns=NOW, reduce_op="sum", dtype="float32", shape=(size,), site=site
    )


def heartbeat(rank: int, since_ns: int, late: bool) -> Heartbeat:
    enqueued = 10_000 if late else 10_001
    return Heartbeat(
        host=host_of(rank),
        rank=rank,
        at_ns=since_ns + 3 * SECOND,
        moved_ns=since_ns,
        pid=10_000 + rank,
        state="S",
        step_count=1064,
        step_seconds=STEP_SECONDS,
        last_step_ns=since_ns,
        phase="compute" if late else "communication",
        phase_since_ns=since_ns,
        last_call=call(500, 4),
        calls={"default_pg": 500},
        groups=(GroupCounters(name="default_pg", enqueued=enqueued, completed=10_000),),
    )


def snapshot(rank: int, suspect: bool) -> RankSnapshot:
    frames = ("wait_for_it", "step", "main") if suspect else ("all_reduce", "step", "main")
    stack = ThreadStack(
        pid=10_000 + rank,
        thread="MainThread",
        main=True,
        frames=tuple(Frame(file="/home/me/train.py", line=40, function=name, users=True) for name in frames),
    )
    sockets = tuple(
        Socket(local="10.0.0.1:1", remote="10.0.0.2:2", state="established", receive_queue_bytes=0, send_queue_bytes=0)
        for _ in range(8)
    )
    return RankSnapshot(
        host=host_of(rank),
        rank=rank,
        pid=10_000 + rank,
        at_ns=NOW,
        role="suspect" if suspect else "witness",
        seconds=0.5,
        state="S",
        thread_states={"S": 40},
        cpu_fraction=0.0,
        stacks=(stack,),
        stack_moved=False,
        ping_answers=True,
        traceback_answers=True,
        children=(),
        sockets=sockets,
        frozen=False,
    )


def timing(ranks: int) -> StepTiming:
    return StepTiming(
        window_seconds=60.0,
        from_step=900,
        to_step=1064,
        step_seconds=STEP_SECONDS,
        ranks=tuple(
            RankTiming(
                rank=rank,
                host=host_of(rank),
                steps=164,
                step_seconds=STEP_SECONDS,
                data_seconds=0.001,
                communication_seconds=0.04 if rank != 7 else 0.001,
                checkpoint_seconds=0.0,
                own_seconds=0.36,
                lags=(0.0,) * 12 if rank != 7 else (0.05,) * 12,
                late_seconds=0.0 if rank != 7 else 0.05,
                last_fraction=0.0 if rank != 7 else 1.0,
                cpu_fraction=0.9,
            )
            for rank in range(ranks)
        ),
        hosts=tuple(
            HostTiming(host=host_of(rank), cpu_count=96, busy_fraction=0.1) for rank in range(0, ranks, RANKS_PER_HOST)
        ),
        step_bytes=1e8,
        collectives_per_step=12.0,
        at_ns=NOW - 20 * SECOND,
    )


def write_recording(folder: Path, ranks: int) -> Path:
    """The made-up events, and a real segment of each rank."""
    directory = create_run(folder / "runs", "r-000001")
    write_run(made_up_run(str(directory.path)))
    events = EventLog(directory.events_file, clock_ns=lambda: NOW)
    for event in made_up_events(ranks):
        events.record(event.pop("event"), **event)
    for rank in range(ranks):
        events.record("rank_started", host=host_of(rank), rank=rank, attempt=0, pid=10_000 + rank)
        segment(folder / "ring", directory.segment_file(host_of(rank), 0, rank), rank)
    events.close()
    return directory.path


def segment(ring_path: Path, path: Path, rank: int) -> None:
    ring = RingWriter(ring_path, capacity=256)
    duration = int(STEP_SECONDS * SECOND)
    cells = {Cell.PID: 10_000 + rank, Cell.RANK: rank, Cell.STEP_COUNT: 1064, Cell.STEP_TOTAL_NS: 1064 * duration}
    for cell, value in cells.items():
        ring.cells[cell] = value
    for index in range(200):
        ring.write(RecordKind.STEP, 0, index, NOW - (200 - index) * duration, duration, 1_000_000, 40_000_000, 0, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    reader = RingReader(ring.path)
    with path.open("w+b") as file:
        append_segment(file, reader)
    reader.close()
    ring.drop()


if __name__ == "__main__":
    sys.exit(main())
