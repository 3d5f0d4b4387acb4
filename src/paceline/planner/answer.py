"""What the planner answers: every number with its interval and what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paceline.planner.machines import Machines


class Fit(StrEnum):
    FITS = "fits"
    GREY = "grey zone"
    DOES_NOT_FIT = "does not fit"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One formula with its numbers, for `--explain`: `text` names the values, `values` has them with units in the names."""

    name: str
    text: str
    values: Mapping[str, float | int | str | None]
    result: float | None
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step, and the interval that covers at least 80 % of held-out cases of this tier and kind of link.

    `tier`: 0 nothing measured, 1 one measured step, 2 measured at two sizes or more. `terms`: name -> seconds, they add up to `seconds`:
    compute, exposed_communication, multi_device_tax, loading. `warnings`: what makes the measurements themselves doubtful.
    """

    seconds: float
    low_seconds: float
    high_seconds: float
    tier: int
    terms: Mapping[str, float]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Whether a step fits into a device. `parts`: parameters, gradients, buckets, optimizer, activations, other -> bytes.

    `need_bytes`: what the tensors take; `capacity_bytes`: what the driver reports. `largest_batch`: samples of a microbatch that still fit.
    `missing`: the fact without which it could not be judged. `assumed`: what was taken for granted in place of facts.
    """

    fit: Fit
    need_bytes: int | None = None
    capacity_bytes: int | None = None
    parts: Mapping[str, int] | None = None
    largest_batch: int | None = None
    missing: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the answer: these machines, and what the job would be on them.

    `efficiency_fraction`: throughput over that of one device (of the smallest size measured) times devices. `hours` to the stated steps,
    start-up included. `within_probability`: of ending within max_run. None: not asked, or not judged. `usd`, `usd_low`, `usd_high`: on
    demand or as the question pays, traffic between zones included; `spot_usd`, `sagemaker_usd`: the same hours at those prices.
    `usd_per_hour`: all hosts, as paid. `name`: the machine type, or what the question calls these machines. `refused`: why the job may not
    run there. `not_judged`: what could not be looked at, and what would give it.
    """

    machines: Machines
    memory: Memory
    step: StepTime | None
    efficiency_fraction: float | None = None
    samples_per_second: float | None = None
    hours: float | None = None
    hours_low: float | None = None
    hours_high: float | None = None
    within_probability: float | None = None
    usd: float | None = None
    usd_low: float | None = None
    usd_high: float | None = None
    spot_usd: float | None = None
    spot_zone: str = ""
    sagemaker_usd: float | None = None
    zone_traffic_usd: float | None = None
    usd_per_hour: float | None = None
    steps: int | None = None
    name: str = ""
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
