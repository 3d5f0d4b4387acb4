"""Time of a step on given machines: from measurements if there are any, otherwise from specifications."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Formula, StepTime
from paceline.parts.plan.planner.fitted_constants import FITTED, Fitted, TwoAnchors
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.roofline import compute_seconds
from paceline.parts.plan.planner.sanity import doubts, too_short_to_update
from paceline.parts.plan.planner.scaling import Growth, Shape, exchange_seconds, extend, grow
from paceline.parts.plan.planner.workload import Measurement, Workload

UNKNOWN_GRADIENT_WIDENING = 1.25


def step_time(
    machines: Machines,
    workload: Workload,
    measurements: Sequence[Measurement],
    *,
    formulas: list[Formula] | None = None,
    fitted: Fitted = FITTED,
) -> StepTime:
    """One step on `machines`: tier 2 from steps at two sizes that differ as these machines do, tier 1 from one, tier 0 from the catalogue.

    Two sizes that differ otherwise (one device and a host, for many hosts) leave tier 1, from the nearest of them. `formulas` None: not
    wanted; otherwise each formula that was used is appended.

    Holds:   machines of a measured shape -> the measured step
    Raises:  UsageError U03: a measured step that is not above 0; P08: nothing measured and not enough known to estimate from
    """
    for measured in measurements:
        _sound(measured)
    if not measurements:
        return _unmeasured(machines, workload, formulas)
    alike = [_at_batch(measured, workload) for measured in measurements]
    warnings = list(doubts(machines, workload, measurements))
    if any(moved is not measured for moved, measured in zip(alike, measurements, strict=True)):
        warnings.append("a step was measured at another batch: its compute is taken to grow with the batch")
    if any(too_short_to_update(machines, workload, measured) for measured in measurements):
        workload = replace(workload, gradient_bytes=None)
    target = Shape(machines.hosts, machines.devices_per_host)
    points, constants, axis = _axis(target, alike, fitted)
    if len(points) >= 2:
        return _from_two(points, constants, axis, target, warnings, formulas)
    anchor = _nearest(target, alike)
    return _from_one(machines, workload, anchor, warnings, formulas, fitted)


def _sound(measured: Measurement) -> None:
    if not measured.step_seconds > 0 or measured.hosts < 1 or measured.devices < measured.hosts:
        raise UsageError(
            "U03",
            "a measured step that cannot be",
            saw=f"{measured.step_seconds * 1e3:g} ms on {measured.devices} devices of {measured.hosts} hosts",
            next="give a time above 0 and at least one device a host",
        )


def _at_batch(measured: Measurement, workload: Workload) -> Measurement:
    if not measured.batch or not workload.batch or measured.batch == workload.batch:
        return measured
    fixed = min(measured.step_seconds, measured.exposed_communication_seconds or 0.0)
    seconds = (measured.step_seconds - fixed) * workload.batch / measured.batch + fixed
    return replace(measured, step_seconds=seconds, batch=workload.batch)


def _shape(measured: Measurement) -> Shape:
    return Shape(measured.hosts, max(1, measured.devices // measured.hosts))


def _axis(
    target: Shape, measurements: Sequence[Measurement], fitted: Fitted
) -> tuple[list[tuple[int, float]], TwoAnchors, str]:
    """The measured sizes that differ from the target along one axis only: in hosts with equally many devices, or in devices of one host."""
    hosts = {_shape(one).hosts: one.step_seconds for one in measurements if _shape(one).per_host == target.per_host}
    if len(hosts) >= 2:
        return sorted(hosts.items()), fitted.hosts, "hosts"
    devices = {_shape(one).per_host: one.step_seconds for one in measurements if one.hosts == target.hosts}
    if target.hosts == 1 and len(devices) >= 2:
        return sorted(devices.items()), fitted.devices, "devices"
    return [], fitted.hosts, ""


def _nearest(target: Shape, measurements: Sequence[Measurement]) -> Measurement:
    """The measured size to start from: the target's own, else a smaller one with as many devices per host, else the largest below it."""

    def distance(one: Measurement) -> tuple[bool, bool, float]:
        shape = _shape(one)
        over = shape.devices > target.devices
        return over, shape.per_host != target.per_host, abs(target.devices / shape.devices - 1)

    return min(measurements, key=distance)


def _from_two(
    points: list[tuple[int, float]],
    constants: TwoAnchors,
    axis: str,
    target: Shape,
    warnings: list[str],
    formulas: list[Formula] | None,
) -> StepTime:
    count = target.hosts if axis == "hosts" else target.per_host
    grown = extend(points, count, constants)
    if formulas is not None:
        (first, first_seconds), (last, last_seconds) = points[0], points[-1]
        formulas.append(
            Formula(
                name="step time from two measured sizes",
                text=_two_text(count, [at for at, _ in points], axis),
                values={
                    "k": count,
                    "k1": first,
                    "T_k1_seconds": first_seconds,
                    "k2": last,
                    "T_k2_seconds": last_seconds,
                    "growth": constants.growth,
                    "kept": constants.kept,
                    "exchange_seconds": grown.exchange,
                    "low_seconds": grown.low_seconds,
                    "high_seconds": grown.high_seconds,
                },
                result=grown.seconds,
                unit="seconds",
                source="fitted on the multi-host rows of bench/data/measured.csv; docs/accuracy.md",
            )
        )
    return _answer(grown, 2, warnings)


def _two_text(count: int, counts: list[int], axis: str) -> str:
    if count in counts:
        return f"T(k) as measured, k in {axis}"
    if count < counts[-1]:
        return f"T(k) on the line in 2 (k - 1) / k through the two measured {axis} nearest to k"
    return (
        "T(k) = T(k2) * (1 + growth * log2(k / k2)) + exchange, exchange = kept * slope * (2 (k - 1) / k - 2 (k2 - 1) / k2), "
        f"slope: of all measured {axis} in 2 (k - 1) / k, not below 0; k in {axis}"
    )


def _from_one(
    machines: Machines,
    workload: Workload,
    anchor: Measurement,
    warnings: list[str],
    formulas: list[Formula] | None,
    fitted: Fitted,
) -> StepTime:
    shape = _shape(anchor)
    grown = grow(machines, workload, shape, anchor.step_seconds, fitted)
    if shape != Shape(machines.hosts, machines.devices_per_host):
        missing = _missing(machines, workload)
        if missing:
            warnings.append(
                f"{missing} not known: the exchange is taken from the median of published rows, the interval is wider"
            )
            grown = _wider(grown, UNKNOWN_GRADIENT_WIDENING)
    if formulas is not None:
        formulas.append(_one_formula(machines, workload, anchor, grown, fitted))
    return _answer(grown, 1, warnings)


def _missing(machines: Machines, workload: Workload) -> str:
    if workload.gradient_bytes is None and machines.devices > 1:
        return "the size of the gradients is"
    if machines.devices_per_host > 1 and machines.intra is None:
        return "the link between the devices of a host is"
    if machines.hosts > 1 and machines.inter is None:
        return "the network between the hosts is"
    return ""


def _one_formula(machines: Machines, workload: Workload, anchor: Measurement, grown: Growth, fitted: Fitted) -> Formula:
    target = Shape(machines.hosts, machines.devices_per_host)
    inside, between = exchange_seconds(target, workload, machines.intra, machines.inter)
    values: Mapping[str, float | int | str | None] = {
        "anchor_seconds": anchor.step_seconds,
        "anchor_hosts": anchor.hosts,
        "anchor_devices": anchor.devices,
        "hosts": machines.hosts,
        "devices_per_host": machines.devices_per_host,
        "gradient_bytes": workload.gradient_bytes,
        "exchange_inside_seconds": inside,
        "exchange_between_seconds": between,
        "exposed_inside": fitted.one.inside_exposed,
        "exposed_between": fitted.one.between_exposed,
        "tax_seconds": grown.tax,
        "exposed_exchange_seconds": grown.exchange,
        "intra": machines.intra.kind if machines.intra is not None else None,
        "intra_source": machines.intra.source if machines.intra is not None else None,
        "inter": machines.inter.kind if machines.inter is not None else None,
        "inter_source": machines.inter.source if machines.inter is not None else None,
        "low_seconds": grown.low_seconds,
        "high_seconds": grown.high_seconds,
    }
    return Formula(
        name="step time from one measured step",
        text="T = T_anchor + tax per doubling of devices and of hosts + exposed_inside * exchange_inside"
        " + exposed_between * exchange_between (tax and exchange: what they are above the anchor's)",
        values=values,
        result=grown.seconds,
        unit="seconds",
        source="taxes and shares fitted on bench/data/measured.csv, parts/plan/planner/fitted_constants.py; docs/accuracy.md",
    )


def _unmeasured(machines: Machines, workload: Workload, formulas: list[Formula] | None) -> StepTime:
    estimated = None if machines.device is None else compute_seconds(workload, machines.device)
    if machines.device is None and machines.of_type is not None:
        raise UsageError(
            "P08",
            "nothing to tell a step time from",
            saw="no measured step, and a step on CPUs is not estimated",
            next="measure one step here: paceline run, then --from-run RUN; or --measured-step-ms MS",
        )
    if estimated is None:
        raise UsageError(
            "P08",
            "nothing to tell a step time from",
            saw="no measured step, and not both a known accelerator and the operations or FLOPs of a step",
            next="--measured-step-ms MS, or a training script to trace, or --gflops-per-sample with --batch and --device",
        )
    seconds, low, high = estimated
    alone = Shape(1, 1)
    grown, shortest, longest = (grow(machines, workload, alone, each, FITTED) for each in (seconds, low, high))
    scaled = replace(
        grown,
        low_seconds=grown.seconds / _of_both(grown.seconds / shortest.seconds, grown.seconds / grown.low_seconds),
        high_seconds=grown.seconds * _of_both(longest.seconds / grown.seconds, grown.high_seconds / grown.seconds),
    )
    loading = _loading(workload, grown.seconds)
    answer = _answer(scaled, 0, [])
    if formulas is not None:
        formulas.append(
            Formula(
                name="step time from specifications",
                text="compute + tax + exposed exchange + loading that a step does not hide",
                values={
                    "compute_seconds": seconds,
                    "tax_seconds": grown.tax,
                    "exchange_seconds": grown.exchange,
                    "loading_seconds": loading,
                },
                result=grown.seconds + loading,
                unit="seconds",
                source="parts/plan/planner/roofline.py; docs/accuracy.md",
            )
        )
    return replace(
        answer,
        seconds=answer.seconds + loading,
        # A loader on other machines may be fast enough to add no time.
        high_seconds=answer.high_seconds + loading,
        terms={**answer.terms, "loading": loading},
    )


def _of_both(one: float, other: float) -> float:
    """Combined error factor of two independent multiplicative errors (root-sum-square in log space)."""
    return math.exp(math.hypot(math.log(one), math.log(other)))


def _loading(workload: Workload, seconds: float) -> float:
    """Time that the loader processes of a rank need beyond a step; without processes nothing overlaps."""
    if workload.loading_seconds is None:
        return 0.0
    each = workload.loading_seconds * workload.microbatches
    return each if not workload.loader_workers else max(0.0, each / workload.loader_workers - seconds)


def _wider(grown: Growth, times: float) -> Growth:
    return replace(
        grown,
        low_seconds=grown.seconds - (grown.seconds - grown.low_seconds) * times,
        high_seconds=grown.seconds + (grown.high_seconds - grown.seconds) * times,
    )


def _answer(grown: Growth, tier: int, warnings: Sequence[str]) -> StepTime:
    """Terms of the whole step: exchange and tax at this size, and the rest is compute."""
    exchange = min(grown.seconds, max(0.0, grown.anchor_exchange + grown.exchange))
    tax = min(grown.seconds - exchange, max(0.0, grown.tax))
    return StepTime(
        seconds=grown.seconds,
        low_seconds=grown.low_seconds,
        high_seconds=grown.high_seconds,
        tier=tier,
        terms={
            "compute": grown.seconds - exchange - tax,
            "exposed_communication": exchange,
            "multi_device_tax": tax,
            "loading": 0.0,
        },
        warnings=tuple(warnings),
    )
