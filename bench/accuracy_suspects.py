"""The section "Doubtful measurements": how many rows that their collectors flagged draw a warning, and how many sound rows do."""

from collections import Counter
from dataclasses import dataclass, replace

from published import Experiment, experiments, precision_of
from workloads import Traced, load, with_precision

from paceline.parts.plan.planner.sanity import doubts
from paceline.parts.plan.planner.scaling import Shape
from paceline.parts.plan.planner.workload import Measurement, Workload

# The name in measured.csv -> the traced workload. Only where batch and image are certain to be the trace's.
TRACED = {"ResNet50 v1.5": "resnet50", "ResNet-50": "resnet50"}
# Rows whose batch is not stated have no step time: only ratios of theirs mean anything.
NO_UNIT = 1e3


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One row and what was said when its own numbers were given as the measurement."""

    experiment: Experiment
    shape: Shape
    suspect: bool
    why: str
    alone: tuple[str, ...]
    beside: tuple[str, ...]


def judged() -> list[Judged]:
    """Every row: alone, and beside the smallest other size of its own experiment."""
    traced = load()
    return [one for experiment in experiments(suspects=True) for one in _of(experiment, traced)]


def section() -> str:
    """Markdown."""
    rows = judged()
    flagged = [row for row in rows if row.suspect]
    sound = [row for row in rows if not row.suspect]
    drew = sum(bool(row.alone or row.beside) for row in flagged)
    drew_alone = sum(bool(row.alone) for row in flagged)
    falsely = sum(bool(row.alone or row.beside) for row in sound)
    falsely_alone = sum(bool(row.alone) for row in sound)
    lines = [
        "## Doubtful measurements",
        "",
        "Each row's own numbers given as the measurement: alone, and beside the smallest other size of the same experiment",
        "where there is one.",
        "",
        "| rows | of | draw a warning | alone |",
        "|---|---:|---:|---:|",
        f"| flagged SUSPECT by their collectors | {len(flagged)} | {drew} | {drew_alone} |",
        f"| the others | {len(sound)} | {falsely} ({falsely / len(sound):.1%}) | {falsely_alone} ({falsely_alone / len(sound):.1%}) |",
        "",
        "| flagged rows | what is said |",
        "|---|---|",
    ]
    for row in flagged:
        said = (*row.alone, *row.beside)
        lines.append(
            f"| {row.experiment.name}, {row.shape.devices} devices: {row.why} | {said[0] if said else 'nothing'} |"
        )
    kinds = Counter(_kind(text) for row in sound for text in dict.fromkeys((*row.alone, *row.beside)))
    lines += ["", "What the other rows draw:", ""]
    lines += [f"* {count} times: {kind}" for kind, count in sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))]
    return "\n".join([*lines, ""])


def _of(experiment: Experiment, traced: dict[tuple[str, bool], Traced]) -> list[Judged]:
    known = _known(experiment, traced)
    shapes = experiment.shapes()
    unit = NO_UNIT if experiment.batch is None else 1.0
    found = []
    for point in experiment.points:
        machines = experiment.machines(point.shape)
        own = Measurement(hosts=point.shape.hosts, devices=point.shape.devices, step_seconds=point.seconds * unit)
        alone = doubts(machines, known, [own])
        other = shapes[0] if point.shape != shapes[0] else shapes[min(1, len(shapes) - 1)]
        seconds = experiment.at(other)
        pair = []
        if other != point.shape and seconds is not None:
            pair = [own, Measurement(hosts=other.hosts, devices=other.devices, step_seconds=seconds * unit)]
        larger = experiment.machines(max(other, point.shape, key=lambda shape: shape.devices))
        beside = tuple(text for text in doubts(larger, known, pair) if text not in alone)
        note = point.row["notes"]
        why = note[note.index("SUSPECT") :].split(";")[0].removeprefix("SUSPECT: ") if point.suspect else ""
        found.append(
            Judged(
                experiment=experiment, shape=point.shape, suspect=point.suspect, why=why, alone=alone, beside=beside
            ),
        )
    return found


def _known(experiment: Experiment, traced: dict[tuple[str, bool], Traced]) -> Workload:
    """What the rows say of the workload, and what its trace says where the model could be built."""
    plain = experiment.workload()
    precision = precision_of(experiment.precision)
    half = precision.value in ("fp16", "bf16")
    found = traced.get((TRACED.get(experiment.model, ""), half))
    if found is None or experiment.batch is None or not found.workload.batch:
        return plain
    times = experiment.batch / found.workload.batch
    workload = with_precision(found.workload, precision)
    return replace(
        workload,
        batch=round(experiment.batch),
        flops=None if workload.flops is None else workload.flops * times,
        activation_bytes=None if workload.activation_bytes is None else round(workload.activation_bytes * times),
        gradient_bytes=plain.gradient_bytes,
    )


def _kind(text: str) -> str:
    for sign, kind in (
        ("ms: steps this short", "a step below 10 ms"),
        ("the exchange of its gradients alone", "a step shorter than its exchange over the stated links"),
        ("more than training reaches", "more of the device's peak than training reaches"),
        ("something other than the device", "next to nothing of the device's peak"),
        ("hardly grows", "throughput that hardly grows"),
        ("not alike", "each device faster among more devices"),
        ("nothing was exchanged", "an exchange that leaves no trace"),
        ("it ran on another device", "more memory than the device has"),
    ):
        if sign in text:
            return kind
    return "other"
