"""Tier 0: the time of a step without any measurement, from its operations and the rates of the accelerator."""

from collections.abc import Mapping

from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Formula
from paceline.parts.plan.planner.workload import Precision, Workload

TERA = 1e12
GB = 1e9

# Seconds of a step per second that the specification would need; the last: seconds of an operation besides. Fitted to published steps of
# one device, 15 workloads, 7 sources (bench/accuracy_tier0.py --fit). "Matrix": where the accelerator has matrix units for the precision,
# which convolutions fill worse than products do; "plain": where it has none. Memory is set, not fitted, to the whole bandwidth: the trace
# counts every operation apart, and caches and fused kernels save about what others lose.
COEFFICIENTS: Mapping[str, float] = {
    "products": 1 / 0.72,
    "matrix_convolutions": 1 / 0.26,
    "plain_convolutions": 1 / 0.71,
    "memory": 1.0,
    "operation_seconds": 12e-6,
}
# Factors on the prediction between which 95 % of the errors lay that were held out by workload, so that 80 % is kept on other workloads.
# Convolutions: from a tenth of the flops on. Source: as above.
INTERVALS: Mapping[str, tuple[float, float]] = {"products": (0.58, 2.05), "convolutions": (0.51, 2.35)}
# Where only a number of flops is known: the share of the peak that is reached with and without matrix units, the median of the same cases,
# and the factors between which 90 % of them lay.
FLOPS_ONLY: Mapping[str, tuple[float, float, float]] = {"matrix": (0.19, 0.45, 6.7), "plain": (0.50, 0.54, 4.5)}
CONVOLUTIONAL_FRACTION = 0.1


def compute_seconds(
    workload: Workload,
    accelerator: Accelerator | None,
    *,
    batch: int | None = None,
    precision: Precision | None = None,
    formulas: list[Formula] | None = None,
) -> tuple[float, float, float] | None:
    """Seconds of the computation of one step on one device, and the interval that held-out cases fell into.

    None: not judged, because the ranks compute on CPUs, or nothing is known of the operations or of the rates. `batch`, `precision` None:
    as traced.

    Units:   seconds; `batch`: samples of one microbatch of one device
    Holds:   low <= seconds <= high; never slower on an accelerator with higher rates
    Raises:  UsageError U03: a batch below 1
    """
    if batch is not None and batch < 1:
        raise UsageError("U03", f"a batch of {batch}", saw=f"{batch}", next="give a number above 0")
    if accelerator is None:
        return None
    if workload.operations:
        each = costs(workload, accelerator, samples=batch, precision=precision)
        kind = "convolutions" if has_convolutions(workload) else "products"
        seconds = None if each is None else sum(cost * by for cost, by in zip(each, COEFFICIENTS.values(), strict=True))
    else:
        return _by_flops(workload, accelerator, batch, precision, formulas)
    if each is None or seconds is None:
        return None
    low, high = INTERVALS[kind]
    if formulas is not None:
        formulas.append(_formula(accelerator, each, seconds))
    return seconds, seconds * low, seconds * high


def costs(
    workload: Workload, accelerator: Accelerator, *, samples: float | None = None, precision: Precision | None = None
) -> tuple[float, ...] | None:
    """Times of a step at the specified rates, in the order of `COEFFICIENTS`; the last value is a number of operations.

    `precision` replaces what most of the trace's matrix products are in. Operations do not grow in number with the batch, but in size.
    """
    bandwidth = accelerator.memory_gb_per_second
    if not bandwidth:
        return None
    scale = samples / workload.batch if samples and workload.batch else 1.0
    products = matrix = plain = moved = 0.0
    for each in workload.operations:
        moved += each.moved_bytes
        if not each.flops:
            continue
        used = precision if precision is not None and each.precision == workload.precision else each.precision
        peak = peak_flops(accelerator, used)
        if peak is None:
            return None
        if each.kind != "convolution":
            products += each.flops / peak
        elif has_matrix_units(accelerator, peak):
            matrix += each.flops / peak
        else:
            plain += each.flops / peak
    count = sum(each.count for each in workload.operations)
    return products * scale, matrix * scale, plain * scale, moved * scale / (bandwidth * GB), float(count)


def has_convolutions(workload: Workload) -> bool:
    """Whether enough of its flops are convolutions for the wider interval."""
    total = sum(each.flops for each in workload.operations)
    return (
        sum(each.flops for each in workload.operations if each.kind == "convolution") > CONVOLUTIONAL_FRACTION * total
    )


def peak_flops(accelerator: Accelerator, precision: Precision) -> float | None:
    """The most multiply-adds (two each) a second of a precision; one without matrix units for it computes it at its fp32 rate."""
    rates = {
        Precision.FP32: accelerator.fp32_tflops,
        Precision.TF32: accelerator.tf32_tflops,
        Precision.FP16: accelerator.fp16_tflops,
        Precision.BF16: accelerator.bf16_tflops,
    }
    found = rates[precision] or accelerator.fp32_tflops
    return found * TERA if found else None


def has_matrix_units(accelerator: Accelerator, peak: float) -> bool:
    """Whether a peak is above that of fp32, which no accelerator here computes in matrix units."""
    return peak > (accelerator.fp32_tflops or 0.0) * TERA * 1.01


def flops_only(accelerator: Accelerator, peak: float) -> tuple[float, float, float]:
    """The share of a peak that is reached where nothing but flops is known, and the factors of its interval."""
    return FLOPS_ONLY["matrix" if has_matrix_units(accelerator, peak) else "plain"]


def _by_flops(
    workload: Workload,
    accelerator: Accelerator,
    batch: int | None,
    precision: Precision | None,
    formulas: list[Formula] | None,
) -> tuple[float, float, float] | None:
    peak = peak_flops(accelerator, precision or workload.precision or Precision.FP32)
    if peak is None or workload.flops is None:
        return None
    scale = batch / workload.batch if batch and workload.batch else 1.0
    share, low, high = flops_only(accelerator, peak)
    seconds = workload.flops * scale / (peak * share)
    if formulas is not None:
        values: dict[str, float | int | str | None] = {
            "accelerator": accelerator.name,
            "flops": workload.flops * scale,
            "peak_flops_per_second": peak,
            "share": share,
        }
        formulas.append(_compute("flops / (peak of the precision * share)", values, seconds))
    return seconds, seconds * low, seconds * high


def _formula(accelerator: Accelerator, each: tuple[float, ...], seconds: float) -> Formula:
    values: dict[str, float | int | str | None] = {"accelerator": accelerator.name}
    for name, cost in zip(COEFFICIENTS, each, strict=True):
        word = "operations" if name == "operation_seconds" else f"{name}_at_rate_seconds"
        values |= {word: cost, f"{name}_coefficient": COEFFICIENTS[name]}
    return _compute(
        "sum over kinds of (time at the specified rate * coefficient), and a time for each operation", values, seconds
    )


def _compute(text: str, values: Mapping[str, float | int | str | None], seconds: float) -> Formula:
    return Formula(
        name="compute",
        text=text,
        values=values,
        result=seconds,
        unit="seconds",
        source="docs/accuracy.md, Nothing measured",
    )
