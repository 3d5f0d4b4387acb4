"""The published rows of bench/data as experiments: one workload on one stack, measured at several sizes.

Only rows of one source, model, framework, accelerator, precision, batch, sequence and system are compared with each other, so that a
prediction is never from one stack for another.
"""

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

from paceline.catalog.lookup import find_accelerator
from paceline.parts.plan.planner.collective import Link
from paceline.parts.plan.planner.links import inter_link, intra_link
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.scaling import Shape
from paceline.parts.plan.planner.workload import Measurement, Precision, Workload

DATA = Path(__file__).parent / "data"
SOURCES = {
    "NVIDIA DeepLearningExamples README": "NVIDIA examples",
    "OneFlow DLPerf per-framework README": "DLPerf",
    "MosaicML llm-foundry training benchmarks": "llm-foundry",
    "TensorFlow performance benchmarks page (tf_cnn_benchmarks)": "TensorFlow page",
    "vTrain ground truth (MICRO24)": "vTrain",
    "Lambda deeplearning-benchmark raw logs": "Lambda",
    "MLPerf Training v2.0 result logs": "MLPerf v2.0",
}
# What tells the rows of one experiment apart without being another experiment.
_NOT_THE_SYSTEM = re.compile(
    r"stated (?:weak|strong) scaling.*|stated speedup.*|global[_ ]batch.*|grad_accum=.*|accumulated_batch.*|peak nvidia-smi.*"
    r"|memory monitor.*|median (?:of|over) .*|interconnect = .*|SUSPECT.*|MFU=.*|section '.*|AWS p.*|Amazon.*"
)
HALF = ("AMP", "FP16", "BF16", "BFLOAT16", "FP8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One published row. `seconds`: of a step, in the row's own unit where a sample has no known number of units."""

    shape: Shape
    seconds: float
    inter_gbps: float | None
    row: dict[str, str]

    @property
    def suspect(self) -> bool:
        return "SUSPECT" in self.row["notes"]


@dataclass(slots=True, kw_only=True)
class Experiment:
    """One workload on one stack, filled row by row. `batch` None: not stated, so that `seconds` are not those of a step."""

    source: str
    model: str
    gpu: str
    precision: str
    batch: float | None
    gradient_bytes: int | None
    link: str
    points: list[Point] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.source}: {self.model}, {self.gpu}, {self.precision}, batch {self.batch or 'not stated'}"

    def at(self, shape: Shape) -> float | None:
        """The median step of a shape; None where it was not measured."""
        found = [point.seconds for point in self.points if point.shape == shape]
        return median(found) if found else None

    def shapes(self) -> list[Shape]:
        return sorted({point.shape for point in self.points}, key=lambda shape: (shape.devices, shape.hosts))

    def machines(self, shape: Shape) -> Machines:
        """The machines of a shape, as their words and rates in the file describe them."""
        gbps = next((point.inter_gbps for point in self.points if point.shape == shape and point.inter_gbps), None)
        inter = inter_link(gbps) if gbps and shape.hosts > 1 else None
        return Machines(
            device=find_accelerator(self.gpu),
            devices_per_host=shape.per_host,
            hosts=shape.hosts,
            intra=self.intra(shape.per_host),
            inter=inter,
        )

    def intra(self, devices: int) -> Link | None:
        return _intra(self.link, self.gpu, devices)

    def workload(self) -> Workload:
        known = self.batch is not None
        return Workload(
            name=self.model,
            gradient_bytes=self.gradient_bytes if known else None,
            precision=precision_of(self.precision),
        )

    def measurement(self, shape: Shape) -> Measurement | None:
        seconds = self.at(shape)
        return None if seconds is None else Measurement(hosts=shape.hosts, devices=shape.devices, step_seconds=seconds)


def precision_of(text: str) -> Precision:
    """What matrix products ran in, from a row's word."""
    upper = text.upper()
    if any(word in upper for word in HALF):
        return Precision.BF16 if "BF" in upper else Precision.FP16
    return Precision.TF32 if "TF32" in upper else Precision.FP32


def rows() -> list[dict[str, str]]:
    """All rows of bench/data/measured.csv as they are."""
    with (DATA / "measured.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def why_left_out(row: dict[str, str]) -> str:
    """Why a row takes part in no figure of step times; "" where it does."""
    if row["source_name"] not in SOURCES:
        return "a single relative figure, not a throughput"
    if "SUSPECT" in row["notes"]:
        return "flagged SUSPECT by its collector (counted below)"
    if "strong scaling" in row["notes"]:
        return "strong scaling: the batch of a device changes with their number"
    if not row["throughput"] and not row["step_ms"]:
        return "no throughput and no step time"
    return ""


def experiments(*, suspects: bool = False) -> list[Experiment]:
    """All experiments; with `suspects` also rows that their collectors flagged."""
    models = _models()
    found: dict[tuple[str, ...], Experiment] = {}
    for row in rows():
        why = why_left_out(row)
        if why and not (suspects and "SUSPECT" in why):
            continue
        key = (*(row[name] for name in KEY), _system(row))
        if key not in found:
            found[key] = _experiment(row, models)
        experiment = found[key]
        experiment.points.append(_point(row, experiment, models))
        experiment.link = experiment.link or row["interconnect_intra"]
    return list(found.values())


KEY = ("source_name", "model", "framework", "gpu", "precision", "batch_per_gpu", "seq_len_or_image")


def split(cases: list, part: Callable[[object], str]) -> Iterator[tuple[str, list, list]]:  # type: ignore[type-arg]
    """(name, the rest, the cases held out) for each part: leave-one-part-out."""
    for name in sorted({part(case) for case in cases}):
        yield name, [case for case in cases if part(case) != name], [case for case in cases if part(case) == name]


def _experiment(row: dict[str, str], models: dict[str, dict[str, str]]) -> Experiment:
    model = models.get(row["model"])
    try:
        batch: float | None = float(row["batch_per_gpu"])
    except ValueError:
        batch = None
    size = 2 if row["precision"] == "FP16" else 4
    return Experiment(
        source=SOURCES.get(row["source_name"], row["source_name"]),
        model=row["model"],
        gpu=row["gpu"],
        precision=row["precision"],
        batch=batch,
        gradient_bytes=round(float(model["parameters_millions"]) * 1e6 * size) if model else None,
        link="",
    )


def _point(row: dict[str, str], experiment: Experiment, models: dict[str, dict[str, str]]) -> Point:
    shape = Shape(int(row["nodes"]), int(row["gpus_per_node"]))
    if row["throughput"]:
        throughput = float(row["throughput"]) * (shape.devices if "/GPU" in row["throughput_unit"] else 1)
        seconds = shape.devices / throughput * (experiment.batch or 1.0) * _units(row, models)
    else:
        seconds = float(row["step_ms"]) / 1e3
    gbps = row["inter_bandwidth_gbps_per_node"]
    return Point(shape=shape, seconds=seconds, inter_gbps=float(gbps) if gbps else None, row=row)


def _units(row: dict[str, str], models: dict[str, dict[str, str]]) -> float:
    units = models.get(row["model"], {}).get("units_per_sample", "1")
    return float(row["seq_len_or_image"] or 1) if units == "sequence" else float(units)


def _system(row: dict[str, str]) -> str:
    parts = [part.strip() for part in row["notes"].split(";")]
    kept = [part for part in parts if part and not _NOT_THE_SYSTEM.match(part)]
    # A Lambda system is named with its number of devices: 8xA100_SXM4; all rows of one box are one experiment.
    return ";".join(re.sub(r"(system=|[_:])(?:\d+x)", r"\1", part) for part in kept)


@cache
def _models() -> dict[str, dict[str, str]]:
    with (DATA / "models.csv").open(encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


@cache
def _intra(word: str, gpu: str, devices: int) -> Link | None:
    return intra_link(word, find_accelerator(gpu), devices)
