"""The planner's answer: every number with its interval and its basis."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paceline.parts.plan.planner.machines import Machines


class Fit(StrEnum):
    FITS = "fits"
    GREY = "grey zone"
    DOES_NOT_FIT = "does not fit"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One formula with its numbers, for `--explain`."""

    name: str
    """What it computes."""
    text: str
    """The formula, with the names of the values."""
    values: Mapping[str, float | int | str | None]
    """Name with its unit -> value."""
    result: float | None
    """Its result."""
    unit: str
    """Unit of the result."""
    source: str
    """Where the formula comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step, and the interval that covers at least 80 % of held-out cases of this tier and kind of link."""

    seconds: float
    """The estimate."""
    low_seconds: float
    """Lower end of the interval."""
    high_seconds: float
    """Upper end of the interval."""
    tier: int
    """0 nothing measured, 1 one measured step, 2 measured at two sizes or more."""
    terms: Mapping[str, float]
    """Name -> seconds; they add up to `seconds`: compute, exposed_communication, multi_device_tax, loading."""
    warnings: tuple[str, ...] = ()
    """What makes the measurements themselves doubtful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Whether a step fits into a device."""

    verdict: Fit
    """`fits`, `grey zone`, `does not fit` or `not judged`."""
    need_bytes: int | None = None
    """What the tensors take."""
    capacity_bytes: int | None = None
    """What the driver reports."""
    parts_bytes: Mapping[str, int] | None = None
    """Parameters, gradients, buckets, optimizer, activations, other -> bytes."""
    largest_batch: int | None = None
    """Samples of a microbatch that still fit."""
    missing: str | None = None
    """The fact without which it was not judged; None: none."""
    assumed: tuple[str, ...] = ()
    """What was taken for granted in place of facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the answer: these machines, and what the job would be on them."""

    machines: Machines
    """Hosts and devices."""
    memory: Memory
    """Whether a step fits into a device."""
    step: StepTime | None
    """None: not known."""
    efficiency_fraction: float | None = None
    """Speed of one device over that of one at the smallest size."""
    samples_per_second: float | None = None
    """Of all devices together."""
    hours: float | None = None
    """To the end of the job, start-up included."""
    hours_low: float | None = None
    """Lower end of the interval."""
    hours_high: float | None = None
    """Upper end of the interval."""
    within_probability: float | None = None
    """That the job ends within `--max-run`; None: not asked, or not judged."""
    usd: float | None = None
    """What the job costs, on demand or as the question pays, traffic between zones included."""
    usd_low: float | None = None
    """Lower end of the interval."""
    usd_high: float | None = None
    """Upper end of the interval."""
    spot_usd: float | None = None
    """The same hours at spot prices."""
    spot_zone: str | None = None
    """The zone of that price."""
    sagemaker_usd: float | None = None
    """The same hours at SageMaker's prices."""
    zone_traffic_usd: float | None = None
    """Of `usd`, traffic between zones."""
    usd_per_hour: float | None = None
    """All hosts, as paid."""
    step_count: int | None = None
    """Number of steps of the job."""
    name: str = ""
    """The machine type, or what the question calls these machines."""
    refused: tuple[str, ...] = ()
    """Why the job may not run there."""
    warnings: tuple[str, ...] = ()
    """What makes the row doubtful."""
    not_judged: tuple[str, ...] = ()
    """What could not be looked at, and what would give it."""
