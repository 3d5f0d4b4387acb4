"""From measured steps to the steps of other shapes: the exchange, the multi-device tax, and their errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.parts.plan.planner import fitted_constants
from paceline.parts.plan.planner.collective import BUCKET_BYTES, Link, buckets_seconds
from paceline.parts.plan.planner.fitted_constants import Fitted, TwoAnchors
from paceline.parts.plan.planner.links import LinkClass, link_class
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.workload import Strategy, Workload

# A full shard gathers the parameters twice and scatters the gradients once, where DDP reduces once: three passes for two. It does so for
# each microbatch, unless the script defers it (set_requires_gradient_sync).
# Source: Zhao et al. 2023, "PyTorch FSDP", section 3.2.
SHARDED_PASSES = 1.5
# A step is never predicted below this fraction of the measured one, however small the exchange.
LEAST_SHARE = 0.3
# Error of a step that was measured on exactly these machines: two runs of one machine differ by this much.
# Source: bench/data/measured.csv, the H100 machines of Lambda: BERT-like work differs by 0.4 to 2 % between equal machines.
REPEAT_FRACTION = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Number of hosts, and of devices on each."""

    hosts: int
    """Number of hosts."""
    per_host: int
    """Devices on each host."""

    @property
    def devices(self) -> int:
        return self.hosts * self.per_host


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The step time of one shape, computed from the anchor's."""

    seconds: float
    """Expected step time."""
    low_seconds: float
    """Low end of the interval."""
    high_seconds: float
    """High end of the interval."""
    tax: float
    """Multi-device tax beyond that of the anchor's shape, in seconds; may be negative."""
    exchange: float
    """Exchange beyond that of the anchor's shape, in seconds; may be negative."""
    anchor_exchange: float
    """Exchange in the anchor's own step, in seconds."""


def exchange_seconds(
    shape: Shape, workload: Workload, intra: Link | None, inter: Link | None
) -> tuple[float | None, float | None]:
    """Time of a step's exchange (inside each host, between hosts); None if gradients or link are unknown.

    Units:   seconds, nothing hidden
    Holds:   one device -> (0.0, 0.0)
    """
    size = workload.gradient_bytes
    # If the buckets are known, their number counts; they differ in size, as whole tensors do.
    cap = size / len(workload.bucket_bytes) if size and workload.bucket_bytes else BUCKET_BYTES
    passes = SHARDED_PASSES * workload.microbatches if workload.strategy is Strategy.FSDP else 1.0

    def of(ranks: int, link: Link | None) -> float | None:
        if ranks == 1:
            return 0.0
        return None if size is None or link is None else passes * buckets_seconds(size, ranks, link, cap_bytes=cap)

    return of(shape.per_host, intra), of(shape.hosts, inter)


def grow(machines: Machines, workload: Workload, anchor: Shape, anchor_seconds: float, constants: Fitted) -> Growth:
    """Tier 1: the step on `machines` from the step of one other shape.

    Holds:   the same shape -> anchor_seconds; more bandwidth is never slower if the target is the larger shape
    """
    target = Shape(machines.hosts, machines.devices_per_host)
    kind = link_class(machines.intra.kind if machines.intra is not None else None)
    one = constants.one
    inside_tax = _by_class(one.inside_tax, kind)

    def taxes(shape: Shape) -> float:
        return inside_tax * math.log2(shape.per_host) + one.between_tax * math.log2(shape.hosts)

    def exposed(shape: Shape) -> float:
        inside, between = exchange_seconds(shape, workload, machines.intra, machines.inter)
        if inside is None:
            inside = anchor_seconds * _by_class(one.inside_exchange, kind) * ring_passes(shape.per_host)
        if between is None:
            between = anchor_seconds * one.between_exchange * ring_passes(shape.hosts)
        return one.inside_exposed * inside + one.between_exposed * between

    tax = anchor_seconds * (taxes(target) - taxes(anchor)) / (1 + taxes(anchor))
    before = exposed(anchor)
    exchange = exposed(target) - before
    seconds = max(LEAST_SHARE * anchor_seconds, anchor_seconds + tax + exchange)
    low, high = _anchored_band(target, anchor, kind, constants)
    scale = band_width(target, anchor) * anchor_seconds + abs(tax) + abs(exchange)
    lowest = seconds + low * scale
    if target.hosts > anchor.hosts:
        # A fast fabric may lose nothing, whatever the rows lost.
        lowest = min(lowest, (1 - REPEAT_FRACTION) * anchor_seconds)
    return Growth(
        seconds=seconds,
        low_seconds=max(LEAST_SHARE * seconds, lowest),
        high_seconds=seconds + high * scale,
        tax=tax,
        exchange=seconds - anchor_seconds - tax,
        anchor_exchange=before,
    )


def extend(points: Sequence[tuple[int, float]], count: int, constants: TwoAnchors) -> Growth:
    """Tier 2: the step at `count` hosts (or devices of a host) from steps measured at two counts or more.

    Between measured counts a straight line in h(k) = 2 (k - 1) / k; beyond them the fitted extension of the two ends of the line. With
    more than two points the slope is that of least squares, and the largest count stays the anchor.

    Units:   points: (count, seconds), counts differ and grow
    Holds:   a measured count -> its seconds
    """
    counts = [at for at, _ in points]
    if count in counts:
        seconds = dict(points)[count]
        return Growth(
            seconds=seconds,
            low_seconds=seconds * (1 - REPEAT_FRACTION),
            high_seconds=seconds * (1 + REPEAT_FRACTION),
            tax=0.0,
            exchange=0.0,
            anchor_exchange=max(0.0, seconds - points[0][1]),
        )
    if count < counts[-1]:
        return _within(points, count)
    (first, first_seconds), (last, last_seconds) = points[0], points[-1]
    slope = max(0.0, _slope(points))
    doublings = math.log2(count / last)
    tax = last_seconds * constants.growth * doublings
    exchange = constants.kept * slope * (ring_passes(count) - ring_passes(last))
    seconds = last_seconds + tax + exchange
    spread = fitted_constants.TWO_WIDTH + fitted_constants.TWO_SPREAD * abs(last_seconds / first_seconds - 1)
    scale = last_seconds * spread * math.sqrt(doublings)
    lowest = min(seconds + constants.band[0] * scale, (1 - REPEAT_FRACTION) * last_seconds)
    return Growth(
        seconds=seconds,
        low_seconds=max(LEAST_SHARE * seconds, lowest),
        high_seconds=seconds + constants.band[1] * scale,
        tax=tax,
        exchange=exchange,
        anchor_exchange=slope * (ring_passes(last) - ring_passes(first)),
    )


def _within(points: Sequence[tuple[int, float]], count: int) -> Growth:
    """Between two measured counts, or below the smallest: the line through the two nearest."""
    above = next(index for index, (at, _) in enumerate(points) if at > count)
    (low, low_seconds), (high, high_seconds) = points[max(0, above - 1)], points[max(1, above)]
    slope = (high_seconds - low_seconds) / (ring_passes(high) - ring_passes(low))
    seconds = max(LEAST_SHARE * low_seconds, low_seconds + slope * (ring_passes(count) - ring_passes(low)))
    scale = REPEAT_FRACTION * seconds + abs(high_seconds - low_seconds) / 2
    return Growth(
        seconds=seconds,
        low_seconds=max(LEAST_SHARE * seconds, seconds - scale),
        high_seconds=seconds + scale,
        tax=0.0,
        exchange=0.0,
        anchor_exchange=max(0.0, slope * ring_passes(count)),
    )


def _slope(points: Sequence[tuple[int, float]]) -> float:
    at = [ring_passes(count) for count, _ in points]
    mean_at = sum(at) / len(at)
    mean = sum(seconds for _, seconds in points) / len(points)
    spread = sum((here - mean_at) ** 2 for here in at)
    return sum((here - mean_at) * (seconds - mean) for here, (_, seconds) in zip(at, points, strict=True)) / spread


def ring_passes(count: int) -> float:
    """Buffer lengths that a ring of `count` sends through each wire."""
    return 2 * (count - 1) / count


def band_width(target: Shape, anchor: Shape) -> float:
    """The part of a band's scale that does not depend on the predicted growth, over the anchor's step."""
    if target.hosts == 1:
        return fitted_constants.INSIDE_WIDTH
    return fitted_constants.BETWEEN_WIDTH if anchor.per_host == target.per_host else fitted_constants.FROM_DEVICE_WIDTH


def _anchored_band(target: Shape, anchor: Shape, kind: LinkClass, constants: Fitted) -> tuple[float, float]:
    one = constants.one
    if target == anchor:
        same = REPEAT_FRACTION / band_width(target, anchor)
        return -same, same
    if target.hosts == 1:
        return one.inside_band[fitted_class(kind)]
    return one.between_band if anchor.per_host == target.per_host else one.from_device_band


def _by_class(values: Mapping[LinkClass, float], kind: LinkClass) -> float:
    return values[fitted_class(kind)]


def fitted_class(kind: LinkClass) -> LinkClass:
    """The class whose constants a link takes: bridges join pairs only in few rows, so they count as PCIe, and so does the unknown."""
    return LinkClass.PCIE if kind in (LinkClass.BRIDGE, LinkClass.UNKNOWN) else kind
