"""Makes parts/plan/planner/fitted_constants.py from the rows: least absolute relative error, few parameters, no source owns a weight."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from published import Experiment

from paceline.parts.plan.planner import fitted_constants
from paceline.parts.plan.planner.fitted_constants import FITTED, Band, Fitted, OneAnchor, TwoAnchors
from paceline.parts.plan.planner.links import LinkClass, link_class
from paceline.parts.plan.planner.scaling import (
    Shape,
    band_width,
    exchange_seconds,
    extend,
    fitted_class,
    grow,
    ring_passes,
)

# Rows outside are broken hosts and superlinear glitches: nothing to learn a rate from. They are left in the second set of figures.
EFFICIENCY = (0.20, 1.15)
CLASSES = (LinkClass.NVSWITCH, LinkClass.CUBE_MESH, LinkClass.PCIE)
# What a band leaves out below and above: above are the broken hosts.
TAILS = (0.05, 0.08)
# Between hosts one source in three has a quarter of its rows far above: its network is slow for the frameworks of its day.
TAILS_BETWEEN = (0.05, 0.03)
# A class of links with fewer rows takes the band of all rows.
LEAST_ROWS = 100
# Less of the slope would say that a ring of many hosts costs what one of two does: true of the fast fabrics in the rows, not of all.
LEAST_KEPT = 0.2
# Held fixed, not fitted: the rows between hosts are of fast fabrics and accumulate gradients, so that they say nothing of slow ones,
# where inside a host 0.9 of the exchange was exposed. Two thirds of it keep a slow network from looking free.
BETWEEN_EXPOSED = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row to predict: `target` of an experiment from the steps measured at `anchors`."""

    experiment: Experiment
    anchors: tuple[Shape, ...]
    target: Shape
    seconds: float
    anchor_seconds: tuple[float, ...]

    @property
    def usual(self) -> bool:
        low, high = EFFICIENCY
        return all(
            low <= self.anchor_seconds[0] / seconds <= high for seconds in (*self.anchor_seconds[1:], self.seconds)
        )

    @property
    def kind(self) -> LinkClass:
        return fitted_class(link_class(self.experiment.link))


def inside_cases(experiments: Sequence[Experiment]) -> list[Case]:
    """Devices of one host from one device."""
    found = []
    for experiment in experiments:
        shapes = [shape for shape in experiment.shapes() if shape.hosts == 1]
        found += [_case(experiment, (shapes[0],), shape) for shape in shapes[1:] if shapes[0].devices == 1]
    return found


def between_cases(experiments: Sequence[Experiment]) -> list[Case]:
    """Several hosts from one whole host, and from one device."""
    found = []
    for experiment in experiments:
        shapes = experiment.shapes()
        for shape in shapes:
            if shape.hosts > 1:
                anchors = {Shape(1, shape.per_host), Shape(1, 1)} & set(shapes)
                found += [
                    _case(experiment, (anchor,), shape) for anchor in sorted(anchors, key=lambda one: -one.per_host)
                ]
    return found


def two_host_cases(experiments: Sequence[Experiment]) -> list[Case]:
    """Hosts of equal devices from the two smallest counts."""
    found = []
    for experiment in experiments:
        shapes = experiment.shapes()
        most = max(shape.per_host for shape in shapes)
        line = [shape for shape in shapes if shape.per_host == most]
        found += [_case(experiment, (line[0], line[1]), shape) for shape in line[2:]]
    return found


def two_device_cases(experiments: Sequence[Experiment]) -> list[Case]:
    """Devices of one host from the two smallest counts."""
    found = []
    for experiment in experiments:
        line = [shape for shape in experiment.shapes() if shape.hosts == 1]
        found += [_case(experiment, (line[0], line[1]), shape) for shape in line[2:]]
    return found


def fit(experiments: Sequence[Experiment]) -> Fitted:
    """Everything, from these experiments."""
    inside = [case for case in inside_cases(experiments) if case.usual]
    between = [case for case in between_cases(experiments) if case.usual]
    one = _fit_inside(inside, FITTED.one)
    one = _fit_between(between, one)
    hosts = _fit_two([case for case in two_host_cases(experiments) if case.usual], lambda shape: shape.hosts)
    devices = _fit_two([case for case in two_device_cases(experiments) if case.usual], lambda shape: shape.per_host)
    found = Fitted(one=one, hosts=hosts, devices=devices)
    return replace(found, one=_with_bands(one, found, inside, between))


def weights(cases: Sequence[Case]) -> list[float]:
    """One over the root of how many rows a source has of the model over that link: many equal boxes count, but not each as one."""
    key = [(case.experiment.source, case.experiment.model, case.kind) for case in cases]
    count = Counter(key)
    return [count[one] ** -0.5 for one in key]


def quantile(values: Sequence[float], weight: Sequence[float], fraction: float) -> float:
    """The weighted quantile: the value that `fraction` of the weight does not exceed."""
    ordered = sorted(zip(values, weight, strict=True))
    left = fraction * sum(weight)
    for value, part in ordered:
        left -= part
        if left <= 0:
            return value
    return ordered[-1][0]


def least_absolute(features: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Coefficients >= 0 with the least weighted absolute error, by least squares that are weighted again."""
    live = list(range(features.shape[1]))
    found = np.zeros(features.shape[1])
    scale = weight.copy()
    for _ in range(60):
        root = np.sqrt(scale)[:, None]
        solved = np.linalg.lstsq(features[:, live] * root, target * root[:, 0], rcond=None)[0]
        found[:] = 0.0
        found[live] = np.maximum(solved, 0.0)
        live = [at for at, value in zip(live, solved, strict=True) if value > 0] or live[:1]
        scale = weight / np.maximum(np.abs(target - features @ found), 1e-4)
    return found


def _fit_inside(cases: Sequence[Case], before: OneAnchor) -> OneAnchor:
    shares = [_exchange_share(case) for case in cases]
    typical = {}
    for kind in CLASSES:
        known = [
            share / ring_passes(case.target.per_host)
            for share, case in zip(shares, cases, strict=True)
            if share and case.kind is kind
        ]
        typical[kind] = median(known) if known else before.inside_exchange[kind]
    features, target = [], []
    for share, case in zip(shares, cases, strict=True):
        doublings = math.log2(case.target.per_host / case.anchors[0].per_host)
        passes = ring_passes(case.target.per_host) - ring_passes(case.anchors[0].per_host)
        exchange = typical[case.kind] * passes if share is None else share
        features.append([doublings * (case.kind is kind) for kind in CLASSES] + [exchange])
        target.append(case.seconds / case.anchor_seconds[0] - 1)
    goal = np.array(target)
    relative = 1 / (1 + goal)
    solved = least_absolute(np.array(features) * relative[:, None], goal * relative, np.array(weights(cases)))
    there = {case.kind for case in cases}
    tax = {kind: float(solved[at]) if kind in there else before.inside_tax[kind] for at, kind in enumerate(CLASSES)}
    return replace(before, inside_tax=tax, inside_exposed=float(solved[-1]), inside_exchange=typical)


def _exchange_share(case: Case) -> float | None:
    """What the exchange grows by, over the anchor's step."""
    workload = case.experiment.workload()
    link = case.experiment.intra(case.target.per_host)
    after = exchange_seconds(case.target, workload, link, None)[0]
    before = exchange_seconds(case.anchors[0], workload, link, None)[0]
    return None if after is None or before is None else (after - before) / case.anchor_seconds[0]


def _fit_between(cases: Sequence[Case], one: OneAnchor) -> OneAnchor:
    """Only the tax of a doubling is fitted, on rows from one whole host."""
    whole = [case for case in cases if case.anchors[0].per_host == case.target.per_host]
    if not whole:
        return one
    typical, per_doubling = [], []
    for case in whole:
        machines = case.experiment.machines(case.target)
        between = exchange_seconds(Shape(case.target.hosts, 1), case.experiment.workload(), None, machines.inter)[1]
        share = None if between is None else between / case.anchor_seconds[0]
        if share is not None:
            typical.append(share / ring_passes(case.target.hosts))
        rest = case.seconds / case.anchor_seconds[0] - 1 - BETWEEN_EXPOSED * (share or 0.0)
        per_doubling.append(rest / math.log2(case.target.hosts))
    # One source each: what an experiment's source has many of does not count more.
    tax = quantile(per_doubling, weights(whole), 0.5)
    return replace(one, between_tax=max(0.0, tax), between_exposed=BETWEEN_EXPOSED, between_exchange=median(typical))


def _with_bands(one: OneAnchor, found: Fitted, inside: Sequence[Case], between: Sequence[Case]) -> OneAnchor:
    bands = {}
    for kind in CLASSES:
        cases = [case for case in inside if case.kind is kind]
        bands[kind] = _band(cases if len(cases) >= LEAST_ROWS else inside, found)
    whole = [case for case in between if case.anchors[0].per_host == case.target.per_host]
    single = [case for case in between if case.anchors[0].per_host != case.target.per_host]
    return replace(
        one,
        inside_band=bands,
        between_band=_band(whole, found) if whole else one.between_band,
        from_device_band=_band(single, found) if single else one.from_device_band,
    )


def _band(cases: Sequence[Case], constants: Fitted) -> Band:
    scores = []
    for case in cases:
        anchor = case.anchor_seconds[0]
        grown = grow(
            case.experiment.machines(case.target), case.experiment.workload(), case.anchors[0], anchor, constants
        )
        width = band_width(case.target, case.anchors[0])
        scores.append((case.seconds - grown.seconds) / (width * anchor + abs(grown.tax) + abs(grown.exchange)))
    tails = TAILS_BETWEEN if cases[0].target.hosts > 1 else TAILS
    return _around_zero(scores, weights(cases), tails)


def _fit_two(cases: Sequence[Case], count: Callable[[Shape], int]) -> TwoAnchors:
    weight = weights(cases)
    seconds = np.array([case.seconds for case in cases])
    ends = [_ends(case, count) for case in cases]
    last, per_growth, per_kept = (np.array(column) for column in zip(*ends, strict=True))
    best = (math.inf, 0.0, 0.0)
    for kept in range(round(LEAST_KEPT * 20), 21):
        for growth in range(21):
            predicted = last + growth / 800 * per_growth + kept / 20 * per_kept
            error = float(np.sum(np.abs(predicted / seconds - 1) * np.array(weight)))
            best = min(best, (error, kept / 20, growth / 800))
    constants = TwoAnchors(kept=best[1], growth=best[2], band=(0.0, 0.0))
    scores = []
    for case in cases:
        first, last = case.anchor_seconds
        spread = fitted_constants.TWO_WIDTH + fitted_constants.TWO_SPREAD * abs(last / first - 1)
        scale = last * spread * math.sqrt(math.log2(count(case.target) / count(case.anchors[1])))
        scores.append((case.seconds - extended(case, count, constants)) / scale)
    return replace(constants, band=_around_zero(scores, weight, TAILS_BETWEEN))


def _ends(case: Case, count: Callable[[Shape], int]) -> tuple[float, float, float]:
    """The anchor, and what it grows by for growth 1 and for kept 1: `extend` is linear in both."""
    alone, growth, kept = (
        extended(case, count, TwoAnchors(kept=b, growth=a, band=(0.0, 0.0))) for a, b in ((0, 0), (1, 0), (0, 1))
    )
    return alone, growth - alone, kept - alone


def extended(case: Case, count: Callable[[Shape], int], constants: TwoAnchors) -> float:
    points = [(count(shape), seconds) for shape, seconds in zip(case.anchors, case.anchor_seconds, strict=True)]
    return extend(points, count(case.target), constants).seconds


def _around_zero(scores: Sequence[float], weight: Sequence[float], tails: Band = TAILS) -> Band:
    return min(0.0, quantile(scores, weight, tails[0])), max(0.0, quantile(scores, weight, 1 - tails[1]))


def _case(experiment: Experiment, anchors: tuple[Shape, ...], target: Shape) -> Case:
    def at(shape: Shape) -> float:
        seconds = experiment.at(shape)
        assert seconds is not None
        return seconds

    return Case(
        experiment=experiment,
        anchors=anchors,
        target=target,
        seconds=at(target),
        anchor_seconds=tuple(at(anchor) for anchor in anchors),
    )
