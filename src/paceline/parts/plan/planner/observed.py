"""The step of a recording: its duration, and where the time went. It is the measured side of a plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from paceline.diagnosis.slow.steady_step import LEAST_STEPS, WARMUP_STEPS
from paceline.facts import Evidence, RankRecord, Step
from paceline.parts.plan.planner.workload import Measurement

# Longer steps contain an evaluation or a checkpoint. They count in the mean of all steps, not in the ordinary step.
_ORDINARY_TIMES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """The ordinary step of one rank. None: not known."""

    rank: int
    """Global rank."""
    host: str
    """Its host."""
    step_seconds: float
    """Duration of the step."""
    own_seconds: float | None = None
    """Duration without communication, in which a fast rank waits for a slow one."""
    communication_seconds: float | None = None
    """Exposed communication of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """One host while the ranks trained. None: not known."""

    host: str
    """Name of the host."""
    ranks: int
    """Number of its ranks."""
    cpu_count: int | None = None
    """Its CPUs."""
    busy_fraction: float | None = None
    """Fraction of the CPU time in use."""
    waited_fraction: float | None = None
    """Fraction of the time in which a task waited for a CPU."""


def too_few(steps: int) -> str:
    """Why a recording with so few steps has no step time."""
    return f"{steps} steps; {WARMUP_STEPS} of warm-up and {LEAST_STEPS} more are needed"


# If the mean is this many times the median, some steps contain waits that others do not.
UNEVEN_TIMES = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """How the newest attempt of a recorded job stepped, without its warm-up. None: not known.

    Holds:   compute + loading + communication + checkpoint == measurement.step_seconds, if all are known
    """

    measurement: Measurement
    """The ordinary step, with hosts and devices."""
    run: str
    """Id of the run."""
    steps: int
    """Steps of a rank behind these figures."""
    mean_step_seconds: float
    """Mean of all steps, including those with evaluation and checkpoint."""
    compute_seconds: float | None = None
    """Compute time of a step."""
    checkpoint_seconds: float | None = None
    """Time of a step for saving checkpoints."""
    ranks: tuple[RankSteps, ...] = ()
    """Ordinary step of each rank."""
    hosts: tuple[HostLoad, ...] = ()
    """Load of each host."""
    late_seconds: Mapping[int, float] | None = None
    """Rank -> how late it was for the collectives, from the step timing."""
    step_bytes: float | None = None
    """Bytes of the collectives of a step."""
    startup_seconds: float | None = None
    """Time from the start to the first step."""
    device_memory_bytes: int | None = None
    """Memory in use on one device, whichever process uses it."""


def observed(found: Evidence) -> ObservedRun | None:
    """The observed run; None if fewer than 3 steps follow the warm-up in each rank's part of the recording."""
    attempt, ranks = _newest(found)
    if not ranks:
        return None
    steady = {record.rank: _steady(record.steps) for record in ranks}
    ordinary = {rank: _ordinary(steps) for rank, steps in steady.items()}
    step = median(median(one.duration_ns for one in steps) for steps in steady.values()) / 1e9
    mean = fmean(fmean(one.duration_ns for one in steps) for steps in ordinary.values()) / 1e9
    scale = step / mean if mean else 1.0
    parts = [_parts(record, ordinary[record.rank], scale) for record in ranks]
    loading, communication, checkpoint = (
        _mean(one[name] for one in parts) for name in ("data", "communication", "checkpoint")
    )
    known = None not in (loading, communication, checkpoint)
    timing = _timing(found, attempt)
    measurement = Measurement(
        hosts=max(len({record.host for record in ranks}), _hosts_of(found, attempt)),
        devices=max([len(ranks), *(record.world_size or 0 for record in ranks)]),
        step_seconds=step,
        exposed_communication_seconds=communication,
        loading_seconds=loading,
        source=f"run {found.run.id}",
    )
    return ObservedRun(
        measurement=measurement,
        run=found.run.id,
        steps=min(len(steps) for steps in steady.values()),
        mean_step_seconds=fmean(fmean(one.duration_ns for one in steps) for steps in steady.values()) / 1e9,
        compute_seconds=max(0.0, step - (loading or 0.0) - (communication or 0.0) - (checkpoint or 0.0))
        if known
        else None,
        checkpoint_seconds=checkpoint,
        ranks=tuple(_rank_steps(record, steady[record.rank], part) for record, part in zip(ranks, parts, strict=True)),
        hosts=tuple(_loads(found, ranks, steady)),
        late_seconds=_late(timing),
        step_bytes=timing.get("step_bytes"),
        startup_seconds=_startup(found, ranks),
        device_memory_bytes=_device_memory(found),
    )


def measurement_of(found: Evidence) -> Measurement | None:
    """The measured step of a recorded job; None where it has too few steps.

    Holds:   of a rank's steps the median, of these the median over the ranks
    """
    seen = observed(found)
    return None if seen is None else seen.measurement


def step_count(ranks: Iterable[RankRecord]) -> int:
    """Steps that every rank of the newest attempt has finished."""
    known = list(ranks)
    newest = max((record.attempt for record in known), default=0)
    return min((record.step_count or 0 for record in known if record.attempt == newest), default=0)


# ---------------------------------------------------------------------------------------------------------------- steps


def _newest(found: Evidence) -> tuple[int, list[RankRecord]]:
    """The last attempt whose ranks have steps after their warm-up, and those of its ranks that do."""
    for attempt in sorted({record.attempt for record in found.ranks}, reverse=True):
        ranks = [one for one in found.ranks if one.attempt == attempt and len(_steady(one.steps)) >= LEAST_STEPS]
        if ranks:
            return attempt, ranks
    return 0, []


def _hosts_of(found: Evidence, attempt: int) -> int:
    """Hosts and ranks when the attempt began; the segments of other hosts may be elsewhere."""
    started = [one for one in found.events if one["event"] == "attempt_started" and one.get("attempt", 0) == attempt]
    hosts = started[-1].get("hosts") if started else None
    return len(hosts) if isinstance(hosts, list) else 0


def _steady(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.duration_ns > 0 and step.index > WARMUP_STEPS]


def _ordinary(steps: Sequence[Step]) -> list[Step]:
    most = _ORDINARY_TIMES * median(step.duration_ns for step in steps)
    return [step for step in steps if step.duration_ns <= most]


def _parts(record: RankRecord, steps: Sequence[Step], scale: float) -> dict[str, float | None]:
    def mean(name: str, total: float | None) -> float | None:
        return None if total is None else fmean(getattr(step, name) for step in steps) / 1e9 * scale

    alone = record.world_size == 1
    return {
        "data": mean("data_ns", record.data_seconds),
        "communication": 0.0 if alone else mean("communication_ns", record.communication_seconds),
        "checkpoint": mean("checkpoint_ns", record.checkpoint_seconds),
    }


def _rank_steps(record: RankRecord, steps: Sequence[Step], part: Mapping[str, float | None]) -> RankSteps:
    seconds = median(step.duration_ns for step in steps) / 1e9
    communication = part["communication"]
    return RankSteps(
        rank=record.rank,
        host=record.host,
        step_seconds=seconds,
        own_seconds=None if communication is None else max(0.0, seconds - communication),
        communication_seconds=communication,
    )


def _startup(found: Evidence, ranks: Sequence[RankRecord]) -> float | None:
    """Time from the start of the run to the first step, for the first attempt only."""
    if not found.run.started_ns or any(record.attempt for record in ranks):
        return None
    began = [
        (record.last_step_ns - found.run.started_ns) / 1e9 - record.step_seconds
        for record in ranks
        if record.last_step_ns is not None and record.step_seconds is not None
    ]
    return max(0.0, fmean(began)) if began else None


# ------------------------------------------------------------------------------------------------------------- the machines


def _timing(found: Evidence, attempt: int) -> Mapping[str, Any]:
    newest = [
        event["tempo"]
        for event in found.events
        if event["event"] == "tempo"
        and isinstance(event.get("tempo"), dict)
        and event["tempo"].get("attempt", 0) == attempt
    ]
    return newest[-1] if newest else {}


def _late(timing: Mapping[str, Any]) -> dict[int, float] | None:
    """How late each rank is; if it was judged, only ranks that the others wait for beyond chance."""
    held_up = timing.get("held_up")
    if isinstance(held_up, dict):
        gain = held_up.get("gain") or {}
        return {rank: float(gain.get("seconds", 0.0)) for rank in held_up.get("ranks") or ()}
    ranks = [one for one in timing.get("ranks") or () if isinstance(one, dict)]
    late = {one["rank"]: float(one["late_seconds"]) for one in ranks if one.get("late_seconds") is not None}
    return late or None


def _loads(found: Evidence, ranks: Sequence[RankRecord], steady: Mapping[int, Sequence[Step]]) -> Iterable[HostLoad]:
    for host in dict.fromkeys(record.host for record in ranks):
        steps = [step for record in ranks if record.host == host for step in steady[record.rank]]
        begin, end = min(step.end_ns - step.duration_ns for step in steps), max(step.end_ns for step in steps)
        lines = [line for line in found.telemetry.get(host, ()) if begin <= line.get("t_ns", 0) <= end + 1_000_000_000]
        load = HostLoad(host=host, ranks=sum(record.host == host for record in ranks))
        yield _with_cpus(load, lines)


def _with_cpus(load: HostLoad, lines: Sequence[Mapping[str, Any]]) -> HostLoad:
    sections = [line["cpu"] for line in lines if isinstance(line.get("cpu"), dict)]
    busy = [one["busy_fraction"] for one in sections if isinstance(one.get("busy_fraction"), int | float)]
    counts = [one["count"] for one in sections if isinstance(one.get("count"), int)]
    return replace(
        load,
        cpu_count=counts[-1] if counts else None,
        busy_fraction=fmean(busy) if busy else None,
        waited_fraction=_waited(lines),
    )


def _waited(lines: Sequence[Mapping[str, Any]]) -> float | None:
    points: list[tuple[float, float]] = []
    for line in lines:
        pressure = line.get("pressure")
        cpu = pressure.get("cpu") if isinstance(pressure, dict) else None
        if isinstance(cpu, dict) and isinstance(cpu.get("some_seconds"), int | float):
            points.append((line["t_ns"] / 1e9, float(cpu["some_seconds"])))
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    (began, before), (ended, after) = points[0], points[-1]
    return min(1.0, (after - before) / (ended - began))


def _device_memory(found: Evidence) -> int | None:
    used = [
        gpu["memory_used_bytes"]
        for lines in found.telemetry.values()
        for line in lines
        for gpu in line.get("gpus") or ()
        if isinstance(gpu, dict) and isinstance(gpu.get("memory_used_bytes"), int)
    ]
    return max(used, default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else fmean(value for value in known if value is not None)
