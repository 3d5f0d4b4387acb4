"""Recorded stretches of training, cut to what a step timing is judged by: read, judged again as in a live run, and made worse on purpose.

A stretch is a gzip'd file of JSON lines under `data/stretches`, made by bench/stretches.py. The first line says how it was recorded; the
others are, in the order in which the first agent got them:

    ["telemetry", host, at_ns, line]                 a telemetry line with the ranks' progress, cut to what is read of it
    ["trace", rank, [key], [index], [at]]            a rank's stamps: place in the header's `keys`, indices and stamps after the last one's
    ["event", event]                                 a look at a rank or at a host
    ["turn", at_ns]                                  the step timing is asked for, and judged

Moments are ns after the header's `from_ns`, those of traces 10 us.
"""

import gzip
import json
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from paceline.diagnosis.build_case import build_case
from paceline.diagnosis.case import StepTiming
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.slow.step_timing import StepTimer
from paceline.diagnosis.verdict import Diagnosis, diagnose
from paceline.facts import RankRecord, Run
from paceline.findings import Confidence
from paceline.recording.fact_json import to_plain
from paceline.rules import discover

FOLDER = Path(__file__).parent / "data" / "stretches"
STRAGGLERS = FOLDER.parent / "stragglers"
# What rank 1 of those computes in each step beyond the others, on the wall clock.
STRAGGLER_MS = 30.0
STAMP_NS = 10_000
CAUSES = [cause for cause in discover("causes") if cause.code.startswith("S")]


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """`allowed`: codes of causes that were there when it was recorded, by how it was recorded."""

    name: str
    ranks: int
    script: str
    load: str
    allowed: tuple[str, ...]
    lines: tuple[tuple[Any, ...], ...]

    @property
    def turns(self) -> int:
        return sum(line[0] == "turn" for line in self.lines)


def stretches(folder: Path = FOLDER) -> list[Path]:
    return sorted(folder.glob("*.jsonl.gz"))


def read_stretch(path: Path) -> Stretch:
    with gzip.open(path, "rt", encoding="ascii") as file:
        header, *lines = map(json.loads, file)
    return Stretch(
        name=path.name.removesuffix(".jsonl.gz"),
        ranks=header["ranks"],
        script=header["script"],
        load=header["load"],
        allowed=tuple(header["allowed"]),
        lines=tuple(_unpacked(header, lines)),
    )


def write_stretch(path: Path, header: dict[str, Any], lines: Iterable[tuple[Any, ...]]) -> None:
    """The same the other way; `lines` with stamps in Unix ns and traces as TraceEntry."""
    keys: dict[tuple[Any, ...], int] = {}
    packed = [_packed(line, header["from_ns"], keys) for line in lines]
    texts = [json.dumps(line, separators=(",", ":")) for line in ({**header, "keys": list(keys)}, *packed)]
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=9, mtime=0, filename="") as file:
        file.write("\n".join(texts).encode("ascii"))


def judgements(stretch: Stretch) -> Iterator[tuple[StepTiming, Diagnosis]]:
    """What a live run says of the stretch at each of its turns."""
    tracker, events, telemetry = StepTimer(), [], defaultdict(list)
    for line in stretch.lines:
        match line:
            case ("telemetry", host, at_ns, plain):
                tracker.progress(host, at_ns, plain.get("progress", {}))
                tracker.telemetry(host, plain)
                telemetry[host].append(plain)
            case ("trace", rank, entries):
                tracker.trace(rank, entries)
            case ("event", event):
                events.append(event)
            case ("turn", at_ns):
                timing = tracker.timing(at_ns)
                if timing is not None:
                    told = {"event": "tempo", "attempt": 0, "tempo": to_plain(replace(timing, attempt=0))}
                    yield timing, _judged(stretch, [*events, told], telemetry, at_ns)


def _judged(stretch: Stretch, events: list[Any], telemetry: Any, at_ns: int) -> Diagnosis:
    hosts = tuple(telemetry)
    # Looks of a stretch carry the attempt that they were recorded in, which is the first.
    case = build_case(
        Run(id="r-stretch", name=stretch.name, directory="/", command=("train.py",), first_host=hosts[0], started_ns=1),
        events=events,
        ranks=[
            RankRecord(host=hosts[0], rank=rank, attempt=0, world_size=stretch.ranks) for rank in range(stretch.ranks)
        ],
        hosts=hosts,
        telemetry=telemetry,
        now_ns=at_ns,
        lasts=True,
    )
    return diagnose(case, CAUSES)


# ------------------------------------------------------------------------------------------------------------- made worse


def with_delay(stretch: Stretch, rank: int, seconds: float) -> Stretch:
    """The stretch as it would have been, had this rank needed so much longer before the first collective of each step.

    It is late for all collectives of a step by that. Everybody waits for the last rank: where the delay makes this one the last, what comes
    after the step comes later, by as much as it is later than the last one was; where another rank comes later still, it costs nothing.
    """
    step_of, ends = _steps(stretch)
    delay_ns = round(seconds * 1e9)
    times, moved = [], [0]
    for stamps in ends:
        times.append(max(stamps.values()))
        moved.append(moved[-1] + max(stamps.get(rank, 0) + delay_ns - times[-1], 0))

    def later(at_ns: int) -> int:
        return moved[bisect_left(times, at_ns)]

    def entry_later(of_rank: int, entry: TraceEntry) -> TraceEntry:
        step = step_of.get((entry.group, entry.index))
        shift = later(entry.created_ns) if step is None else moved[step] + (delay_ns if of_rank == rank else 0)
        return replace(entry, created_ns=entry.created_ns + shift)

    def changed(line: tuple[Any, ...]) -> tuple[Any, ...]:
        match line:
            case ("telemetry", host, at_ns, plain):
                return "telemetry", host, at_ns + later(at_ns), _telemetry_later(plain, rank, later(at_ns))
            case ("trace", of_rank, entries):
                return "trace", of_rank, tuple(entry_later(of_rank, entry) for entry in entries)
            case ("turn", at_ns):
                return "turn", at_ns + later(at_ns)
        return line

    return replace(stretch, lines=tuple(map(changed, stretch.lines)))


def _telemetry_later(plain: dict[str, Any], rank: int, later_ns: int) -> dict[str, Any]:
    """The steps have taken so much longer, which the others spent in communication."""
    progress = {}
    for name, one in plain["progress"].items():
        waited = later_ns / 1e9 if one["rank"] != rank and one.get("communication_seconds") is not None else 0.0
        progress[name] = {**one, "step_seconds": (one["step_seconds"] or 0.0) + later_ns / 1e9}
        if waited:
            progress[name]["communication_seconds"] += waited
    return {**plain, "t_ns": plain["t_ns"] + later_ns, "progress": progress}


def _steps(stretch: Stretch) -> tuple[dict[tuple[str, int], int], list[dict[int, int]]]:
    """(group, index) -> place of its step, of those whose last collective all ranks have begun; the stamps of that one, step by step."""
    stamps: dict[str, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for line in stretch.lines:
        if line[0] == "trace":
            for entry in line[2]:
                stamps[entry.group][entry.index][line[1]] = entry.created_ns
    if not stamps:
        return {}, []
    name, group = max(stamps.items(), key=lambda item: len(item[1]))
    per_step = round(next((timing.collectives_per_step or 1 for timing, _ in reversed(list(judgements(stretch)))), 1))
    first = _opening(group, per_step)
    whole = defaultdict(dict)
    for index, here in group.items():
        whole[(index - first) // per_step][index] = here
    steps = [step for _, step in sorted(whole.items()) if len(step) == per_step]
    steps = [step for step in steps if len(step[max(step)]) == stretch.ranks]
    return {(name, index): place for place, step in enumerate(steps) for index in step}, [s[max(s)] for s in steps]


def _opening(group: dict[int, dict[int, int]], per_step: int) -> int:
    """Which index modulo `per_step` comes after the longest pause."""
    pauses = defaultdict(list)
    for index, here in group.items():
        before = group.get(index - 1)
        if before:
            pauses[index % per_step].append(min(here.values()) - min(before.values()))
    return max(pauses, key=lambda place: median(pauses[place]), default=0)


def found_delays(chosen: Iterable[Stretch], fraction: float, seed: int = 7) -> tuple[int, int, int]:
    """Of these stretches with a delay of one rank by a fraction of a step, judged after 200 steps (and 5 s, where these are quick):
    how many could be judged by stamps, of how many S01 names that rank alone, and of how many as *likely* or *high*.
    """
    rng = random.Random(seed)
    tried = said = sure = 0
    for stretch in chosen:
        rank = rng.randrange(stretch.ranks)
        healthy = [timing for timing, _ in judgements(stretch)]
        if not healthy:
            continue
        answer = after_steps(with_delay(stretch, rank, fraction * healthy[-1].step_seconds), 200, 5.0)
        if answer is None or answer[0].held_up is None or not answer[0].held_up.measured:
            continue
        named = [finding for finding in answer[1].findings if finding.code == "S01" and finding.ranks == (rank,)]
        tried += 1
        said += bool(named)
        sure += any(finding.confidence is not Confidence.UNCLEAR for finding in named)
    return tried, said, sure


def after_steps(stretch: Stretch, steps: int, seconds: float) -> tuple[StepTiming, Diagnosis] | None:
    """What is said once so many steps, and so many seconds, are behind; None of a stretch that is shorter."""
    kept: list[tuple[Any, ...]] = []
    began: tuple[int, int] | None = None
    for line in stretch.lines:
        kept.append(line)
        if line[0] != "telemetry" or not line[3]["progress"]:
            continue
        done = min(one["step_count"] for one in line[3]["progress"].values())
        began = began or (done, line[2])
        if done - began[0] >= steps and line[2] - began[1] >= seconds * 1e9:
            stamps = [line for line in stretch.lines if line[0] == "trace"]
            until = kept[-1][2]
            traces = [("trace", r, tuple(e for e in entries if e.created_ns <= until)) for _, r, entries in stamps]
            lines = [line for line in kept if line[0] not in ("turn", "trace")]
            cut = replace(stretch, lines=(*lines, *traces, ("turn", until)))
            return next(judgements(cut), None)
    return None


# ----------------------------------------------------------------------------------------------------------------- packing


def _packed(line: tuple[Any, ...], from_ns: int, keys: dict[tuple[Any, ...], int]) -> list[Any]:
    match line:
        case ("telemetry", host, at_ns, plain):
            return ["telemetry", host, at_ns - from_ns, {**plain, "t_ns": plain["t_ns"] - from_ns}]
        case ("trace", rank, entries):
            before, ids, indices, stamps = 0, [], [], []
            for entry in entries:
                key = (entry.group, entry.operation, entry.dtype, entry.shape)
                ids.append(keys.setdefault(key, len(keys)))
                indices.append(entry.index)
                at = (entry.created_ns - from_ns) // STAMP_NS
                stamps.append(at - before)
                before = at
            return ["trace", rank, ids, [b - a for a, b in zip([0, *indices], indices, strict=False)], stamps]
        case ("turn", at_ns):
            return ["turn", at_ns - from_ns]
    return list(line)


def _unpacked(header: dict[str, Any], lines: Iterable[list[Any]]) -> Iterator[tuple[Any, ...]]:
    from_ns, keys = header["from_ns"], header["keys"]
    for line in lines:
        match line:
            case ["telemetry", host, at_ns, plain]:
                yield "telemetry", host, at_ns + from_ns, {**plain, "t_ns": plain["t_ns"] + from_ns}
            case ["trace", rank, ids, gaps, stamps]:
                index, at, entries = 0, 0, []
                for key, gap, stamp in zip(ids, gaps, stamps, strict=True):
                    group, operation, dtype, shape = keys[key]
                    index, at = index + gap, at + stamp
                    shape = tuple(shape) if shape is not None else None
                    entries.append(TraceEntry(group, index, operation, dtype, shape, from_ns + at * STAMP_NS))
                yield "trace", rank, tuple(entries)
            case ["turn", at_ns]:
                yield "turn", at_ns + from_ns
            case _:
                yield tuple(line)
