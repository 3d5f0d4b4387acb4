"""Published steps of one device as cases of tier 0: a traced workload on an accelerator, with what was measured."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from statistics import median

from published import SOURCES, precision_of, rows
from workloads import load, with_precision

from paceline.catalog.lookup import find_accelerator
from paceline.catalog.types import Accelerator
from paceline.parts.plan.planner.roofline import costs
from paceline.parts.plan.planner.workload import Precision, Workload

# The model of a row -> the traced workload; BERT and its kin by the length of their sequences.
CASES = {
    "ResNet50 v1.5": "resnet50",
    "ResNet50 v1b": "resnet50",
    "resnet50": "resnet50",
    "ResNet-50": "resnet50",
    "ResNet-152": "resnet152",
    "VGG16": "vgg16",
    "InceptionV3": "inception3",
    "efficientnet-b0": "efficientnet-b0",
    "efficientnet-b4": "efficientnet-b4",
    "EfficientNet v1-B4": "efficientnet-b4",
    "SSD300 v1.1 ResNet50": "ssd300",
    "WaveGlow": "waveglow",
    "GNMT v2": "gnmt-26",
    "Tacotron2": "tacotron2",
    "NCF": "ncf",
    "Transformer (big)": "transformer-big",
    "Transformer-XL base": "txl-base",
}
BY_LENGTH = {
    "BERT-Large": "bert-large",
    "BERT-Base": "bert-base",
    "ELECTRA-base": "bert-base",
    "BioBERT (BERT-Base)": "bert-base",
    "BART-large": "bart-large",
}
# Units of throughput in one traced sample; where they are assumed (GNMT, Tacotron 2), so is their step.
UNITS = {"gnmt-26": 52.0, "tacotron2": 620.0, "waveglow": 8000.0, "txl-base": 192.0, "transformer-big": 32.0}
FAMILIES = ("bert-", "bart-", "gpt-", "mpt-", "efficientnet-", "resnet")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload on one accelerator in one stack: the median of what was published. `seconds`: of one sample."""

    source: str
    workload: Workload
    family: str
    transformer: bool
    accelerator: Accelerator
    precision: Precision
    batch: float
    seconds: float
    costs: tuple[float, ...]

    @property
    def group(self) -> str:
        return next((mark.rstrip("-") for mark in FAMILIES if self.workload.name.startswith(mark)), self.workload.name)


@cache
def cases() -> tuple[tuple[Case, ...], Counter[str]]:
    """All cases, and why rows take no part."""
    traced = _traced()
    found: dict[tuple[object, ...], list[float]] = defaultdict(list)
    left: Counter[str] = Counter()
    for row in rows():
        why = _left_out(row)
        name = _name(row)
        if not why and (name is None or (name, False) not in traced):
            why = f"{row['model']}: not built here, or the length of its sequences is not stated"
        accelerator = None if why else find_accelerator(row["gpu"])
        if not why and accelerator is None:
            why = f"{row['gpu']}: its rates are not in the catalogue"
        if why or name is None or accelerator is None:
            left[why] += 1
            continue
        precision = Precision.TF32 if row["precision"].startswith("TF32/FP32") else precision_of(row["precision"])
        key = (SOURCES[row["source_name"]], name, accelerator.name, precision, row["batch_per_gpu"], row["framework"])
        found[key].append(_seconds(row, name))
    made = [_case(key, values) for key, values in found.items()]
    return tuple(case for case in made if case is not None), left


def _left_out(row: dict[str, str]) -> str:
    several = row["model"].startswith(("GPT ", "MPT-"))
    if row["source_name"] not in SOURCES:
        return "a single relative figure, not a throughput"
    if "SUSPECT" in row["notes"]:
        return "flagged SUSPECT by its collector"
    if int(row["total_gpus"]) != 1 and not (several and int(row["nodes"]) == 1):
        return "more than one device: tiers 1 and 2"
    return ""


def _name(row: dict[str, str]) -> str | None:
    model, length = row["model"], row["seq_len_or_image"]
    if model in CASES:
        return CASES[model]
    if model in BY_LENGTH:
        return f"{BY_LENGTH[model]}-{length}"
    if model.startswith("GPT "):
        _, width, layers, _ = model.split()
        return f"gpt-{width}-l{layers[1:]}"
    return f"mpt-{model[4:]}" if model.startswith("MPT-") and length == "2048" else None


def _seconds(row: dict[str, str], name: str) -> float:
    devices = int(row["total_gpus"])
    if not row["throughput"]:
        return float(row["step_ms"]) / 1e3 / float(row["batch_per_gpu"])
    throughput = float(row["throughput"]) * (1e6 if row["throughput_unit"].startswith("M ") else 1.0)
    units = 2048.0 if name.startswith("mpt-") else UNITS.get(name, 1.0)
    return devices * units / throughput


def _case(key: tuple[object, ...], values: list[float]) -> Case | None:
    source, name, gpu, precision, batch_text, _ = key
    assert isinstance(name, str) and isinstance(precision, Precision) and isinstance(source, str)
    half = precision in (Precision.FP16, Precision.BF16)
    traced = _traced()[(name, half)]
    workload = with_precision(traced.workload, precision)
    batch = float(str(batch_text)) if str(batch_text).replace(".", "").isdigit() else float(workload.batch or 1)
    # Batches of Transformer (big) are in tokens; those of vTrain are of a step of several microbatches.
    batch = batch / 32 if name == "transformer-big" else float(workload.batch or 1) if source == "vTrain" else batch
    accelerator = find_accelerator(str(gpu))
    assert accelerator is not None
    each = costs(workload, accelerator, samples=batch)
    if each is None:
        return None
    return Case(
        source=source,
        workload=workload,
        family=traced.family,
        transformer=traced.family == "transformer",
        accelerator=accelerator,
        precision=precision,
        batch=batch,
        seconds=median(values),
        costs=tuple(cost / batch for cost in each),
    )


_traced = cache(load)
