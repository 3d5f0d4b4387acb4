"""The section "Nothing measured" of docs/accuracy.md: tier 0 held against published steps of one device.

python bench/accuracy_tier0.py           the section
python bench/accuracy_tier0.py --fit     also the constants of parts/plan/planner/roofline.py, fitted again
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from tier0_cases import Case, cases  # noqa: E402

from paceline.parts.plan.planner.roofline import (  # noqa: E402
    COEFFICIENTS,
    INTERVALS,
    flops_only,
    has_convolutions,
    has_matrix_units,
    peak_flops,
)
from paceline.parts.plan.planner.workload import Precision  # noqa: E402

# Where a fit starts from and is drawn to: 0.6 of the peak in products, 0.4 and 0.8 in convolutions, 10 us an operation. Memory is set:
# fitted, it wanders between 1.0 and 1.3 with the workloads that are held out, and the products with it.
START = (1 / 0.6, 1 / 0.4, 1 / 0.8, 1.0, 10e-6)
FITTED = (0, 1, 2, 4)
DRAWN = 0.01


def predict(case: Case, coefficients: Sequence[float]) -> float:
    """Seconds of one sample."""
    return sum(cost * by for cost, by in zip(case.costs, coefficients, strict=True))


def residual(case: Case, coefficients: Sequence[float]) -> float:
    """Logarithm of predicted over measured."""
    return math.log(predict(case, coefficients) / case.seconds)


def fit(some: Sequence[Case]) -> tuple[float, ...]:
    """The coefficients with the least mean absolute log error, each workload weighing as the root of its number of rows."""
    count = Counter(case.group for case in some)
    weights = [1 / math.sqrt(count[case.group]) for case in some]
    total = sum(weights)

    def loss(at: Sequence[float]) -> float:
        error = sum(weight * abs(residual(case, at)) for weight, case in zip(weights, some, strict=True)) / total
        # A coefficient that no row says anything about stays where it was.
        return error + DRAWN * sum(math.log(one / other) ** 2 for one, other in zip(at, START, strict=True))

    best, value, step = list(START), loss(START), 0.2
    while step > 0.01:
        moved = False
        for at in FITTED:
            for factor in (math.exp(step), math.exp(-step)):
                tried = [*best[:at], best[at] * factor, *best[at + 1 :]]
                found = loss(tried)
                if found < value - 1e-6:
                    best, value, moved = tried, found, True
        step = step if moved else step / 2
    return tuple(best)


def held_out(part: Callable[[Case], str]) -> dict[str, list[tuple[Case, float]]]:
    """For each part its cases, each with the log error of a fit to everything else."""
    everything, _ = cases()
    found: dict[str, list[tuple[Case, float]]] = {}
    for name in sorted({part(case) for case in everything}):
        others = fit([case for case in everything if part(case) != name])
        found[name] = [(case, residual(case, others)) for case in everything if part(case) == name]
    return found


def section() -> str:
    """Markdown."""
    by_workload = held_out(lambda case: case.group)
    by_source = held_out(lambda case: case.source)
    every = [pair for pairs in by_workload.values() for pair in pairs]
    lines = [
        "## Nothing measured (tier 0)",
        "",
        f"{len(every)} cases (a workload, accelerator, precision, batch and stack; median of their rows) of {len(by_workload)} workloads",
        "traced from `bench/workloads`, against published steps of one device (vTrain, MPT: of one host). Four constants for all.",
        "",
        "| held out | transformers | convolutional networks | recurrent, recommendation | all | interval covers | transformers | others |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        _errors("each workload", every, _coverage(by_workload)),
        _errors("each source", [pair for pairs in by_source.values() for pair in pairs], _coverage(by_source)),
        "",
        "Mean absolute percentage error of the step. The interval of a held-out part is that of the errors of the other parts.",
        "",
        *_baselines(every),
        *_ordering(by_workload),
        *_parts("Held out by workload:", "workload", by_workload),
        *_parts("Held out by source:", "source", by_source),
        *_hardware(every),
        *_worst(every),
        *_shipped(every),
        *_reasons(),
    ]
    return "\n".join(lines)


def _error(pairs: Iterable[tuple[Case, float]]) -> float:
    values = [abs(math.expm1(each)) for _, each in pairs]
    return 100 * sum(values) / len(values) if values else float("nan")


def _errors(name: str, pairs: list[tuple[Case, float]], covered: list[tuple[Case, bool]]) -> str:
    def of(keep: Callable[[Case], bool]) -> str:
        return f"{_error([pair for pair in pairs if keep(pair[0])]):.0f} %"

    def share(keep: Callable[[Case], bool]) -> str:
        found = [inside for case, inside in covered if keep(case)]
        return f"{100 * sum(found) / len(found):.0f} %"

    families = " | ".join(
        (
            of(lambda case: case.transformer),
            of(lambda case: case.family == "cnn"),
            of(lambda case: case.family in ("recurrent", "recommendation")),
        )
    )
    return (
        f"| {name} | {families} | {of(lambda case: True)} | {share(lambda case: True)} | {share(lambda case: case.transformer)} "
        f"| {share(lambda case: not case.transformer)} |"
    )


def interval(errors: Sequence[float], share: float = 0.95) -> tuple[float, float]:
    """Factors on a prediction between which `share` of what was measured lay."""
    ordered = sorted(-each for each in errors)
    tail = (1 - share) / 2
    last = len(ordered) - 1
    return math.exp(ordered[math.floor(tail * last)]), math.exp(ordered[math.ceil((1 - tail) * last)])


def _coverage(parts: dict[str, list[tuple[Case, float]]]) -> list[tuple[Case, bool]]:
    """Whether each case lies in the interval of the errors of the other parts, of its own kind of operations."""
    found = []
    for name, pairs in parts.items():
        for kind in (True, False):
            others = [
                each
                for other, some in parts.items()
                if other != name
                for case, each in some
                if has_convolutions(case.workload) is kind
            ]
            if not others:
                others = [each for other, some in parts.items() if other != name for _, each in some]
            low, high = interval(others)
            found += [
                (case, low <= math.exp(-each) <= high)
                for case, each in pairs
                if has_convolutions(case.workload) is kind
            ]
    return found


def _baselines(every: list[tuple[Case, float]]) -> list[str]:
    """What a share of the peak alone would have said (`--gflops-per-sample`)."""
    shares = {case: flops_only(case.accelerator, _peak(case)) for case, _ in every}
    errors = [(case, _flops_error(case, share)) for case, (share, _, _) in shares.items()]
    transformers = [pair for pair in errors if pair[0].transformer]
    inside = sum(shares[case][1] <= math.exp(-each) <= shares[case][2] for case, each in errors) / len(errors)
    return [
        f"With flops alone, one share of the peak with matrix units and one without (not held out): {_error(errors):.0f} %, transformers"
        f" {_error(transformers):.0f} %; the interval covers {inside:.0%}.",
        "",
    ]


def _peak(case: Case) -> float:
    return peak_flops(case.accelerator, case.precision) or 1.0


def _flops_error(case: Case, share: float) -> float:
    per_sample = (case.workload.flops or 0.0) / (case.workload.batch or 1)
    return math.log(per_sample / (_peak(case) * share) / case.seconds)


def _ordering(parts: dict[str, list[tuple[Case, float]]]) -> list[str]:
    """Pairs of accelerators with one workload, precision and source, by the time of a sample."""
    groups: dict[tuple[str, str, str], dict[str, list[tuple[Case, float]]]] = defaultdict(lambda: defaultdict(list))
    for pairs in parts.values():
        for case, each in pairs:
            half = "half" if case.precision in (Precision.FP16, Precision.BF16) else "full"
            groups[(case.source, case.workload.name, half)][case.accelerator.name].append((case, each))
    transformers = {case.workload.name for case in cases()[0] if case.transformer}
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    equal = 0
    for (_, name, _), devices in groups.items():
        steps = {
            gpu: (median(c.seconds for c, _ in some), median(c.seconds * math.exp(e) for c, e in some))
            for gpu, some in devices.items()
        }
        kind = "transformers" if name in transformers else "others"
        for one, other in combinations(steps.values(), 2):
            if abs(math.log(one[1] / other[1])) < 1e-9:
                equal += 1
                continue
            far = abs(math.log(one[0] / other[0])) > 0.1
            agree = (one[0] < other[0]) == (one[1] < other[1])
            for word in (kind, "all", *([f"{kind}, more than 10 % apart", "all, more than 10 % apart"] if far else [])):
                seen[word] += 1
                right[word] += agree
    lines = [
        "Order of accelerators, by the time of a sample, in pairs (same workload, precision and source; held out by workload):",
        "",
    ]
    lines += ["| pairs | number | right |", "|---|---:|---:|"]
    lines += [f"| {word} | {seen[word]} | {right[word] / seen[word]:.0%} |" for word in sorted(seen)]
    return [
        *lines,
        "",
        f"Besides, {equal} pairs have the same rates in the catalogue: no order is predicted, and none counted.",
        "",
    ]


def _parts(title: str, word: str, parts: Mapping[str, list[tuple[Case, float]]]) -> list[str]:
    lines = [
        title,
        "",
        f"| {word} | cases | mean absolute error | median of predicted / measured |",
        "|---|---:|---:|---:|",
    ]
    for name, pairs in parts.items():
        lines.append(
            f"| {name} | {len(pairs)} | {_error(pairs):.0f} % | {math.exp(median(each for _, each in pairs)):.2f} |"
        )
    return [*lines, ""]


def _hardware(every: list[tuple[Case, float]]) -> list[str]:
    groups: dict[str, list[tuple[Case, float]]] = defaultdict(list)
    for pair in every:
        groups[pair[0].accelerator.name].append(pair)
    return _parts("By accelerator (held out by workload):", "accelerator", dict(sorted(groups.items())))


def _worst(every: list[tuple[Case, float]]) -> list[str]:
    lines = [
        "Worst ten (held out by workload):",
        "",
        "| predicted / measured | case | likely reason |",
        "|---:|---|---|",
    ]
    for case, each in sorted(every, key=lambda pair: -abs(pair[1]))[:10]:
        where = f"{case.source}: {case.workload.name}, {case.accelerator.name}, {case.precision.value}, batch {case.batch:g}"
        lines.append(f"| {math.exp(each):.2f} | {where} | {_reason(case, each)} |")
    return [*lines, ""]


def _reason(case: Case, error: float) -> str:
    if case.workload.name in ("gnmt-26", "tacotron2"):
        return "thousands of small dependent steps; tokens or frames of a sample are assumed"
    if error > 0 and case.family == "cnn" and case.precision is Precision.FP32:
        return "3x3 convolutions in fp32 take fewer multiplications than are counted (Winograd)"
    if error < 0 and case.workload.name.startswith("efficientnet-"):
        return "depthwise convolutions, which fill an accelerator worse than those that the constants mostly come from"
    if error < 0 and case.family == "cnn" and case.workload.name != "waveglow":
        return "an input pipeline or a stack that does not feed the device; the operations alone do not show it"
    if error > 0:
        return "a stack that fuses what the trace counts apart, or leaves out padding"
    return "a stack slower than its operations; not known"


def _shipped(every: list[tuple[Case, float]]) -> list[str]:
    all_cases = [case for case, _ in every]
    inside = Counter[bool]()
    for case in all_cases:
        low, high = INTERVALS["convolutions" if has_convolutions(case.workload) else "products"]
        inside[low <= math.exp(-residual(case, tuple(COEFFICIENTS.values()))) <= high] += 1
    argv = ", ".join(f"{name} {value:.3g}" for name, value in COEFFICIENTS.items())
    return [
        f"The constants as shipped, fitted to all cases but for memory, which is set: {argv}. "
        "Their intervals (factors on the prediction):",
        ", ".join(f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in INTERVALS.items())
        + f"; they cover {inside[True] / len(all_cases):.0%} of the cases that they were made from.",
        "",
    ]


def _reasons() -> list[str]:
    _, left = cases()
    lines = [f"Rows that take no part ({sum(left.values())}):", ""]
    return [*lines, *(f"* {count}: {why}" for why, count in left.most_common()), ""]


def refit() -> str:
    """The constants of parts/plan/planner/roofline.py, fitted again to all cases, with intervals of errors held out by workload."""
    every, _ = cases()
    found = fit(every)
    pairs = [pair for some in held_out(lambda case: case.group).values() for pair in some]
    lines = [
        f"{name}: {value:.4g} (as a share {1 / value:.3g})" for name, value in zip(COEFFICIENTS, found, strict=True)
    ]
    for kind in (True, False):
        lines.append(
            f"convolutions {kind}: {interval([each for case, each in pairs if has_convolutions(case.workload) is kind])}"
        )
    for matrix in (True, False):
        some = [case for case in every if has_matrix_units(case.accelerator, _peak(case)) is matrix]
        share = math.exp(median(_flops_error(case, 1.0) for case in some))
        lines.append(
            f"flops only, matrix {matrix}: {share:.3g}, {interval([_flops_error(case, share) for case in some], 0.9)}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--fit" in sys.argv[1:]:
        sys.stdout.write(refit())
    sys.stdout.write(section())
