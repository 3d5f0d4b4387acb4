"""What a plan is asked: the step, the machines that could be had, how far to train, and within which limits."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from paceline.catalog.types import Accelerator
from paceline.planner.machines import Machines
from paceline.planner.workload import Assumption, Measurement, Workload


class Payment(StrEnum):
    """Whose price an hour is paid at."""

    ON_DEMAND = "on demand"
    SPOT = "on spot"
    SAGEMAKER = "on SageMaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD of one host for one hour. `spot_zone`: the zone whose spot price this is. `source`: where the price in use is from."""

    on_demand: float | None = None
    sagemaker: float | None = None
    spot: float | None = None
    spot_zone: str = ""
    source: str = ""

    def paid(self, payment: Payment) -> float | None:
        return {Payment.SPOT: self.spot, Payment.SAGEMAKER: self.sagemaker}.get(payment, self.on_demand)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Machines that could be had. `capacity_bytes`: of one device. `refused`: why this job may not run there; empty where it may.

    `in_one_zone`: the same machines with all hosts in one zone; called only when that is asked.
    """

    name: str
    machines: Machines
    capacity_bytes: int | None = None
    prices: Prices = Prices()
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    in_one_zone: Callable[[], Machines] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How far to train: optimizer steps, or passes over `samples`. All None: only the pace is asked."""

    steps: int | None = None
    epochs: float | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What the answer has to keep. `max_run_seconds`: the job's own time limit; `deadline_seconds`: from now to the result."""

    max_run_seconds: float | None = None
    deadline_seconds: float | None = None
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expenses:
    """What a job costs besides its steps, as assumed or given.

    `startup_seconds`: from the start of billing to the first step, data download included; `epoch_seconds`: after each epoch, for
    evaluation and checkpoint. `usd_per_zone_gb`: a GB (10^9 bytes) that crosses zones, both directions' charges together.
    """

    startup_seconds: float = 300.0
    epoch_seconds: float = 0.0
    # Measured by a bill: a GB from one zone to another costs 0.01 USD at each end (lastweekinaws.com, "AWS cross-AZ data transfer
    # costs more than AWS says").
    usd_per_zone_gb: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """Everything that an answer is computed from.

    `measured_on`, `measured_type`: the device and the machine type of the measurements; None and "" for the candidates' own. `others`:
    makes further machines, which are looked at only for advice.
    """

    workload: Workload
    candidates: tuple[Candidate, ...]
    measurements: tuple[Measurement, ...] = ()
    measured_on: Accelerator | None = None
    measured_type: str = ""
    others: Callable[[], tuple[Candidate, ...]] | None = None
    goal: Goal = Goal()
    limits: PlanLimits = PlanLimits()
    expenses: Expenses = Expenses()
    payment: Payment = Payment.ON_DEMAND
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
