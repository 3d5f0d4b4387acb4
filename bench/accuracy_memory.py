"""The section "Memory" of docs/accuracy.md: verdicts over traced workloads against runs that fitted and runs that ran out."""

import csv
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from workloads import Traced, load  # noqa: E402

from paceline.parts.plan.planner.answer import Fit, Memory  # noqa: E402
from paceline.parts.plan.planner.memory import FITS_FRACTION, GREY_FRACTION, memory  # noqa: E402
from paceline.parts.plan.planner.workload import Strategy  # noqa: E402

MIB = 1024**2
# The name in the data -> the traced workload. Transformer-XL: the runs' configuration does not pass --adaptive, so that every token is
# predicted over all 267,735 words (lambdal/deeplearning-benchmark, scripts/config_v0; DeepLearningExamples, train.py).
WORKLOAD = {
    "resnet50": "resnet50",
    "bert_base_squad": "bert-base-384",
    "gnmt": "gnmt",
    "transformerxlbase": "txl-base-full",
    "ncf": "ncf",
    "tacotron2": "tacotron2",
}
# What the scripts of these models take as --batch_size is divided among the devices, whatever the column's name says: the value grows with
# the number of devices of one kind (transformerxlbase FP32 on 16 GB V100: 8, 32 and 64 on 1, 4 and 8 devices).
GLOBAL_BATCH = ("transformerxlbase", "ncf")
# Under apex O2 and GNMT's own half precision the model and its gradients are kept in fp16, to be exchanged, and in fp32 beside it.
HALF_COPIES = ("transformerxlbase", "ncf", "gnmt", "bert_base_squad")
NOTES = (
    "How the data was read, each from the scripts or logs that the rows name:",
    "",
    "* The batches of Transformer-XL and NCF are global, whatever the column says; they were divided among the devices.",
    "* Transformer-XL ran without `--adaptive`: every token is predicted over 267,735 words, and torch up to 1.10 keeps the logits beside",
    "  their logarithms. Traced so; with an adaptive softmax or a later torch it needs less.",
    "* NCF and Transformer-XL hold their dataset on the device; NCF also prepares each epoch there, and its sort needs three times what it",
    "  sorts. Transformer-XL's LAMB makes four tensors as large as the embedding while it updates it.",
    "* A trace ends at the first optimizer step. The log of an NCF run that ran out asks for 1,024 MiB in a layer at batches of 12,000 and",
    "  120,000 alike, which is the script's evaluation batch: no such trace sees it. That these runs are not called *fits* comes from the",
    "  preparation of the epoch alone.",
    "* fp16 rows are traced under bf16 autocast, with the copies that apex O2 keeps added.",
    "",
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One published run and what was said of it.

    `batch`: of one device. `peak_mib`: as nvidia-smi showed it, None where the monitor failed.
    """

    row: dict[str, str]
    batch: int
    answer: Memory
    ran: bool
    peak_mib: float | None

    @property
    def share(self) -> float:
        return (self.answer.need_bytes or 0) / (self.answer.capacity_bytes or 1)


def verdicts() -> tuple[list[Verdict], Counter[str]]:
    """A verdict for each row that can be judged, and why the others cannot."""
    traced = load()
    judged: list[Verdict] = []
    left: Counter[str] = Counter()
    with open(HERE / "data" / "memory.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            reason = _cannot(row)
            if reason:
                left[reason] += 1
                continue
            half = row["precision"] != "FP32"
            judged.append(_judge(row, traced[(WORKLOAD[row["model"]], half)]))
    return judged, left


def _cannot(row: dict[str, str]) -> str:
    if row["model"] not in WORKLOAD:
        return f"{row['model']}: not built here"
    if not row["gpu_memory_mib"]:
        return "the memory of the device is not in the data"
    if not row["batch_per_gpu"]:
        return f"{row['model']}: the batch is not in the data"
    return ""


def _judge(row: dict[str, str], traced: Traced) -> Verdict:
    devices = int(row["num_gpus"])
    batch = int(row["batch_per_gpu"])
    if row["model"] in GLOBAL_BATCH:
        batch = max(1, batch // devices)
    workload = traced.workload
    beside = 0
    if traced.half and row["model"] in HALF_COPIES:
        single = workload.parameter_bytes or 0
        beside = single
        workload = replace(workload, parameter_bytes=single + single // 2, gradient_bytes=single // 2)
    if traced.prepared:
        peak, resident = traced.prepared[min(traced.prepared, key=lambda count: abs(count - devices))]
        transient = max(peak, resident + beside + (workload.transient_bytes or 0))
        workload = replace(workload, transient_bytes=transient)
        beside += resident
    workload = replace(workload, peak_fixed_bytes=(workload.peak_fixed_bytes or 0) + beside)
    capacity = int(row["gpu_memory_mib"]) * MIB
    answer = memory(workload, capacity_bytes=capacity, strategy=Strategy.DDP, devices=devices, batch=batch)
    shown = float(row["peak_nvidia_smi_mib"] or 0)
    usable = "SUSPECT" not in row["notes"] and 0 < shown <= float(row["gpu_memory_mib"])
    return Verdict(row=row, batch=batch, answer=answer, ran=row["outcome"] != "OOM", peak_mib=shown if usable else None)


def section() -> str:
    """Markdown."""
    judged, left = verdicts()
    return "\n".join(
        [*_opening(judged), *_table(judged), *_out_of_memory(judged), *_largest(judged), *NOTES, *_left(judged, left)]
    )


def _opening(judged: list[Verdict]) -> list[str]:
    failed = [each for each in judged if not each.ran]
    wrong = sum(each.answer.verdict is Fit.FITS for each in failed)
    return [
        "## Memory",
        "",
        f"Traced on fake tensors, held against published runs (Lambda, `bench/data/memory.csv`). *fits*: up to {FITS_FRACTION:.0%} of",
        f"the device, one more tensor of the largest size included; *grey zone*: up to {GREY_FRACTION:.0%}; beyond: *does not fit*.",
        "",
        f'**Never "fits" for a run that ran out of memory: {wrong} of {len(failed)} such runs were called "fits".** That rests on',
        f"{len(failed)} runs of {len({each.row['model'] for each in failed})} models only, and they are not held out: a first",
        'trace called both Transformer-XL runs "fits" (0.52 and 0.59 of the device); their logs then showed what it had left out,',
        "and the context and the spare tensor of `parts/plan/planner/memory.py` come from the same logs.",
        "",
    ]


def _table(judged: list[Verdict]) -> list[str]:
    lines = [
        "Runs that fitted. They were filled by hand to nearly all of the device, so *does not fit* is wrong and *grey zone* is right.",
        "",
        "| model | precision | runs | fits | grey zone | does not fit | need / device, median [range] | shown / need, median [p10, p90] |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for each in judged:
        if each.ran:
            groups[(each.row["model"], each.row["precision"])].append(each)
            groups[("all", "")].append(each)
    for (model, precision), rows in sorted(groups.items()):
        count = Counter(each.answer.verdict for each in rows)
        shares = sorted(each.share for each in rows)
        ratios = sorted(each.peak_mib * MIB / (each.answer.need_bytes or 1) for each in rows if each.peak_mib)
        lines.append(
            f"| {model} | {precision} | {len(rows)} | {count[Fit.FITS]} | {count[Fit.GREY]} | {count[Fit.DOES_NOT_FIT]} "
            f"| {median(shares):.2f} [{shares[0]:.2f}, {shares[-1]:.2f}] "
            f"| {median(ratios):.2f} [{_at(ratios, 0.1):.2f}, {_at(ratios, 0.9):.2f}] |"
        )
    return [*lines, ""]


def _out_of_memory(judged: list[Verdict]) -> list[str]:
    lines = [
        "Runs that ran out of memory.",
        "",
        "| system | model | precision | device MiB | need MiB | share | verdict |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for each in judged:
        if not each.ran:
            row = each.row
            need = (each.answer.need_bytes or 0) / MIB
            lines.append(
                f"| {row['system']} | {row['model']} | {row['precision']} | {row['gpu_memory_mib']} | {need:.0f} | {each.share:.2f} "
                f"| {each.answer.verdict.value} |"
            )
    return [*lines, ""]


def _largest(judged: list[Verdict]) -> list[str]:
    """The batch that a person found by trying, over the largest that is promised to fit."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for each in judged:
        if each.ran and each.answer.largest_batch:
            ratios[each.row["model"]].append(each.answer.largest_batch / each.batch)
    lines = [
        "Largest batch that is promised to fit, over the batch that was used (which somebody found by trying):",
        "",
    ]
    lines += ["| model | median | range |", "|---|---:|---:|"]
    for model, values in sorted(ratios.items()):
        lines.append(f"| {model} | {median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")
    return [*lines, ""]


def _left(judged: list[Verdict], left: Counter[str]) -> list[str]:
    lines = [f"Judged {len(judged)} of {len(judged) + sum(left.values())} rows. Left out:", ""]
    lines += [f"* {count}: {reason}" for reason, count in left.most_common()]
    return [*lines, ""]


def _at(values: list[float], fraction: float) -> float:
    return values[min(len(values) - 1, round(fraction * (len(values) - 1)))] if values else float("nan")


if __name__ == "__main__":
    sys.stdout.write(section())
