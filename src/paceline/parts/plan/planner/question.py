"""The question for a plan: the step, the candidate machines, how far to train, and the limits."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from paceline.catalog.types import Accelerator
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.workload import Assumption, Measurement, Workload


class Payment(StrEnum):
    """Whose price an hour is paid at."""

    ON_DEMAND = "on demand"
    SPOT = "on spot"
    SAGEMAKER = "on SageMaker"


GIVEN = "--usd-per-hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD of one host for one hour. None: not known."""

    on_demand: float | None = None
    """On-demand price of EC2."""
    sagemaker: float | None = None
    """Price of SageMaker training."""
    spot: float | None = None
    """Spot price."""
    spot_zone: str = ""
    """Zone of that spot price."""
    source: str = ""
    """Where the price in use is from."""

    def paid(self, payment: Payment) -> float | None:
        """The price that is paid; None: it is not known. A price that was given counts for SageMaker too."""
        if payment is Payment.SAGEMAKER and self.source != GIVEN:
            return self.sagemaker
        return self.spot if payment is Payment.SPOT else self.on_demand

    def whose(self, payment: Payment) -> str:
        """Whose price `paid` gives, in words; empty: no price is known."""
        if self.paid(payment) is None:
            return ""
        if self.source == GIVEN:
            return f"those given ({GIVEN})"
        if payment is Payment.SPOT:
            return f"EC2's on spot in {self.spot_zone}" if self.spot_zone else "EC2's on spot"
        return "EC2's on demand" if payment is Payment.ON_DEMAND else "SageMaker's, from an old list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Machines that the job could use."""

    name: str
    """Name of the row."""
    machines: Machines
    """The machines."""
    capacity_bytes: int | None = None
    """Memory of one device; None: not known."""
    prices: Prices = Prices()
    """Prices of one host."""
    refused: tuple[str, ...] = ()
    """Why the job may not run there; empty: it may."""
    warnings: tuple[str, ...] = ()
    """Warnings about these machines."""
    not_judged: tuple[str, ...] = ()
    """What is not known of them."""
    in_one_zone: Callable[[], Machines] | None = None
    """Returns the same machines with all hosts in one zone; called only if that is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How far to train. All None: only the step time is asked."""

    steps: int | None = None
    """Optimizer steps."""
    epochs: float | None = None
    """Passes over the samples."""
    samples: int | None = None
    """Samples of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """Limits that the answer should meet."""

    max_run_seconds: float | None = None
    """The job's own time limit."""
    deadline_seconds: float | None = None
    """Time from now to the result."""
    budget_usd: float | None = None
    """Most that the job may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expenses:
    """Time and cost of a job besides its steps, assumed or given."""

    startup_seconds: float = 300.0
    """From the start of billing to the first step, including data download."""
    epoch_seconds: float = 0.0
    """After each epoch, for evaluation and checkpoint."""
    # Measured by a bill: a GB from one zone to another costs 0.01 USD at each end (lastweekinaws.com, "AWS cross-AZ data transfer
    # costs more than AWS says").
    usd_per_zone_gb: float = 0.02
    """One GB (10^9 bytes) that crosses zones, with the charges of both directions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """Everything from which an answer is computed."""

    workload: Workload
    """The training step."""
    candidates: tuple[Candidate, ...]
    """Machines to plan for."""
    measurements: tuple[Measurement, ...] = ()
    """Measured steps."""
    measured_on: Accelerator | None = None
    """Device of the measurements; None: the candidates' own."""
    measured_type: str = ""
    """Machine type of the measurements; "": the candidates' own."""
    others: Callable[[], tuple[Candidate, ...]] | None = None
    """Returns further machines, which are considered only for advice."""
    goal: Goal = Goal()
    """How far to train."""
    limits: PlanLimits = PlanLimits()
    """Limits to meet."""
    expenses: Expenses = Expenses()
    """Time and cost besides the steps."""
    payment: Payment = Payment.ON_DEMAND
    """How the machines are paid."""
    assumptions: tuple[Assumption, ...] = ()
    """What the question assumes."""
    warnings: tuple[str, ...] = ()
    """Warnings about the question."""
    not_judged: tuple[str, ...] = ()
    """What the question leaves open."""
