"""Compares a prediction with a recorded run: term by term, and the reasons for the difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Row, StepTime
from paceline.parts.plan.planner.observed import HostLoad, ObservedRun, RankSteps
from paceline.parts.plan.planner.workload import Measurement

# Two runs of one job on one machine differ by this much. Source: bench/data/measured.csv, the H100 machines of Lambda.
NOISE_FRACTION = 0.02
# A rank that is later than the others by this much delays all of them; less is the usual imbalance.
_LATE_FRACTION = 0.05
# Fraction of the time: processes that wait for a CPU for longer than this lack CPUs.
_WAITS_FRACTION = 0.5
_LESS_CROWDED = "fewer ranks on a host, or hosts with more CPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of the step, in seconds (the memory term in bytes). None: not known on that side."""

    name: str
    """Name of the part."""
    predicted: float | None
    """Value of the plan."""
    measured: float | None
    """Value of the run."""

    @property
    def difference(self) -> float | None:
        """Measured minus predicted."""
        return None if self.predicted is None or self.measured is None else self.measured - self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceReason:
    """A reason why the measured step is longer than the predicted one."""

    kind: str
    """loading, straggler, link, checkpoint, crowded, compute or unclear."""
    what: str
    """The reason as text."""
    seconds: float
    """By how much; negative: the step is shorter."""
    next: str = ""
    """What shows or changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComparison:
    """A plan's row beside the run that was measured."""

    row: Row
    """The row of the plan."""
    observed: ObservedRun
    """The run."""
    predicted_seconds: float
    """Step time of the plan."""
    measured_seconds: float
    """Step time of the run."""
    within: bool
    """The measured step lies in the predicted interval."""
    terms: tuple[Term, ...]
    """Parts of the step. They add up to it on both sides if all are known."""
    startup: Term
    """Start-up, in seconds."""
    memory: Term
    """Memory of a device, in bytes."""
    reasons: tuple[DifferenceReason, ...]
    """Reasons, the largest first. Together they are the difference."""
    not_judged: tuple[str, ...] = ()
    """Parts that could not be compared, and why."""

    @property
    def difference_fraction(self) -> float:
        """Measured over predicted, minus 1."""
        return self.measured_seconds / self.predicted_seconds - 1.0

    @property
    def is_noise(self) -> bool:
        """Whether the two differ by no more than run-to-run noise."""
        return abs(self.difference_fraction) <= NOISE_FRACTION


def compare(
    row: Row,
    observed: ObservedRun,
    measurements: Sequence[Measurement] = (),
    *,
    startup_seconds: float | None = None,
) -> PlanComparison:
    """Compares them. `row`: the plan's row for the shape of the run. `measurements`: the basis of the plan; its
    compute includes their loading.

    Holds:   the reasons add up to measured - predicted
    Raises:  UsageError X06: the plan has no step time for that row
    """
    step = row.step
    if step is None:
        raise UsageError(
            "X06",
            f"run {observed.run} cannot be compared",
            saw="; ".join(row.not_judged or row.refused) or "the plan has no step time for machines of its shape",
            next="--rehearsal latest, or --measured-step-ms MS, beside --against",
        )
    measured = observed.measurement
    terms = _terms(step, observed, measurements)
    roomy = row.machines.device is None and not _same_size(observed, measurements)
    reasons = sorted(_reasons(row, step, observed, terms, roomy=roomy), key=lambda one: -abs(one.seconds))
    difference = measured.step_seconds - step.seconds
    # Reasons in the direction of the difference explain it; reasons in the other direction come after them.
    reasons.sort(key=lambda one: one.seconds * difference < 0)
    return PlanComparison(
        row=row,
        observed=observed,
        predicted_seconds=step.seconds,
        measured_seconds=measured.step_seconds,
        within=step.low_seconds <= measured.step_seconds <= step.high_seconds,
        terms=tuple(terms.values()),
        startup=Term(name="start-up", predicted=startup_seconds, measured=observed.startup_seconds),
        memory=Term(name="memory", predicted=row.memory.need_bytes, measured=observed.device_memory_bytes),
        reasons=tuple(reasons),
        not_judged=tuple(_not_judged(row, observed, measurements)),
    )


def _terms(step: StepTime, observed: ObservedRun, measurements: Sequence[Measurement]) -> dict[str, Term]:
    """Compute and tax together, because a recording cannot separate them. A prediction from a measured step has its loading in compute."""
    measured = observed.measurement
    loading = step.terms.get("loading", 0.0) + _loading_inside(step, measurements)
    exchange = step.terms.get("exposed_communication", 0.0)
    compute = step.seconds - loading - exchange
    found = (
        Term(name="compute", predicted=compute, measured=observed.compute_seconds),
        Term(name="exposed_communication", predicted=exchange, measured=measured.exposed_communication_seconds),
        Term(name="loading", predicted=loading, measured=measured.loading_seconds),
        Term(name="checkpoint", predicted=0.0, measured=observed.checkpoint_seconds),
    )
    return {term.name: term for term in found}


def _loading_inside(step: StepTime, measurements: Sequence[Measurement]) -> float:
    known = [one for one in measurements if one.loading_seconds is not None]
    if step.tier == 0 or not known:
        return 0.0
    return min(min(known, key=lambda one: one.devices).loading_seconds or 0.0, step.terms.get("compute", 0.0))


# -------------------------------------------------------------------------------------------------------------- what explains it


def _reasons(
    row: Row, step: StepTime, observed: ObservedRun, terms: dict[str, Term], *, roomy: bool
) -> Iterator[DifferenceReason]:
    """One reason for each part that differs by more than noise; the last one has the rest, so that they add up.

    `roomy`: the plan is of ranks on CPUs that have one each.
    """
    least = NOISE_FRACTION * step.seconds / 2
    left = observed.measurement.step_seconds - step.seconds
    sharing = _sharing(observed) if roomy and left > 0 else None
    if sharing is not None:
        load, times = sharing
        crowded = min(left, step.seconds * (times - 1.0))
        left -= crowded
        yield DifferenceReason(kind="crowded", what=_shared(load), seconds=crowded, next=_LESS_CROWDED)
    # If ranks take turns on a CPU, some rank is always late, and the exchange waits too: both are one reason then.
    exchange = () if sharing is not None else _exchange(row, observed, terms)
    for reason in (_loading(terms["loading"], step), _checkpoint(terms["checkpoint"]), *exchange):
        if reason is not None and abs(reason.seconds) > least:
            left -= reason.seconds
            yield reason
    if abs(left) > least / 100:
        yield _rest(step, observed, left, known=terms["compute"].measured is not None)


def _loading(term: Term, step: StepTime) -> DifferenceReason | None:
    if term.difference is None:
        return None
    counted = (
        ""
        if term.predicted
        else "; the plan counted none"
        if step.tier == 0
        else "; the measured step that it rests on had none"
    )
    return DifferenceReason(
        kind="loading",
        what=f"waiting for data takes {_ms(term.measured)} of the step, {_ms(term.predicted)} was predicted{counted}",
        seconds=term.difference,
        next="more DataLoader workers, or faster storage" if term.difference > 0 else "",
    )


def _checkpoint(term: Term) -> DifferenceReason | None:
    if not term.measured:
        return None
    return DifferenceReason(
        kind="checkpoint",
        what=f"saving takes {_ms(term.measured)} of an ordinary step, and a plan counts it by --per-epoch",
        seconds=term.measured,
        next="save less often, or asynchronously",
    )


def _exchange(row: Row, observed: ObservedRun, terms: dict[str, Term]) -> Iterator[DifferenceReason | None]:
    """Ranks wait in the exchange for the last rank and for the network. The rank that waits least shows the wait for the network."""
    term = terms["exposed_communication"]
    if term.measured is None or term.predicted is None:
        return
    straggler = _straggler(observed)
    waiting = 0.0
    if straggler is not None:
        rank, late = straggler
        known = [one.communication_seconds for one in observed.ranks if one.communication_seconds is not None]
        waiting = max(0.0, term.measured - min(known, default=term.measured))
        yield DifferenceReason(
            kind="straggler",
            what=f"rank {rank.rank} on {rank.host} is {_ms(late)} later than the others in a step, and they wait for it",
            # The step ends when the last rank has computed, so it is longer by this whole time.
            seconds=late,
            next=f"paceline why {observed.run}",
        )
    exchange = term.measured - waiting
    difference = exchange - term.predicted
    from_sizes = row.step is not None and row.step.tier == 2
    over = " from the sizes measured" if from_sizes else _over(row)
    slower = f": {exchange / term.predicted:.1f} times" if term.predicted > 0 and difference > 0 else ""
    yield DifferenceReason(
        kind="link",
        what=f"the exchange that is not hidden takes {_ms(exchange)}, {_ms(term.predicted)} was predicted{over}{slower}",
        seconds=difference,
        next="time the exchange itself: paceline bench --rehearse, then paceline plan --curve FILE"
        if difference > 0 and not from_sizes
        else "",
    )


def _over(row: Row) -> str:
    """The link that the plan assumed and the source of its figures; "" if the link was unknown."""
    link = row.machines.inter if row.machines.hosts > 1 else row.machines.intra
    if link is None or not link.source or link.kind == "unknown":
        return ""
    return f" over {'the link' if link.kind == 'measured' else link.kind} ({link.source})"


def _straggler(observed: ObservedRun) -> tuple[RankSteps, float] | None:
    """The rank that the others wait for most, and how late it is; None if none stands out or it is not known."""
    ranks = {one.rank: one for one in observed.ranks}
    if observed.late_seconds is not None:
        late = {rank: seconds for rank, seconds in observed.late_seconds.items() if rank in ranks}
    else:
        own = {rank: one.own_seconds for rank, one in ranks.items() if one.own_seconds is not None}
        if len(own) < 2 or len(own) < len(ranks):
            return None
        late = {
            rank: seconds - median(other for place, other in own.items() if place != rank)
            for rank, seconds in own.items()
        }
    worst = max(late, key=lambda rank: late[rank], default=None)
    if worst is None or late[worst] < _LATE_FRACTION * observed.measurement.step_seconds:
        return None
    return ranks[worst], late[worst]


def _rest(step: StepTime, observed: ObservedRun, seconds: float, *, known: bool) -> DifferenceReason:
    waits = next((one for one in observed.hosts if (one.waited_fraction or 0.0) > _WAITS_FRACTION), None)
    if waits is not None and seconds > 0:
        what = f"crowded CPUs: on {waits.host} a task waited for a CPU in {waits.waited_fraction:.0%} of the time"
        return DifferenceReason(kind="crowded", what=what, seconds=seconds, next=_LESS_CROWDED)
    if not known:
        what = "the recording does not say which part of the step: its ranks could not time every wait"
        return DifferenceReason(kind="unclear", what=what, seconds=seconds, next=f"paceline why {observed.run}")
    how = "longer" if seconds > 0 else "shorter"
    basis = {0: "specifications", 1: "one measured step", 2: "the sizes measured"}[step.tier]
    what = (
        f"computing takes {_ms(abs(seconds))} {how} than in the plan from {basis}: another batch or precision than the plan's, "
        "a slower or faster clock, other programs beside it"
    )
    return DifferenceReason(
        kind="compute", what=what, seconds=seconds, next=f"paceline why {observed.run}" if seconds > 0 else ""
    )


def _same_size(observed: ObservedRun, measurements: Sequence[Measurement]) -> bool:
    """Whether the plan rests on a step of the same number of ranks and hosts: that step was equally crowded."""
    size = (observed.measurement.hosts, observed.measurement.devices)
    return any((one.hosts, one.devices) == size for one in measurements)


def _sharing(observed: ObservedRun) -> tuple[HostLoad, float] | None:
    """The host on which ranks share CPUs most, and how many share one; None if each has its own."""
    known = [(load, load.ranks / load.cpu_count) for load in observed.hosts if load.cpu_count]
    worst = max(known, key=lambda one: one[1], default=None)
    return worst if worst is not None and worst[1] > 1.0 else None


def _shared(load: HostLoad) -> str:
    return f"crowded CPUs: {load.ranks} ranks share the {load.cpu_count} CPUs of {load.host}, and the plan gives each its own"


def _not_judged(row: Row, observed: ObservedRun, measurements: Sequence[Measurement]) -> Iterator[str]:
    measured = observed.measurement
    if measured.exposed_communication_seconds is None:
        yield "exposed communication: the ranks could not time it"
    if measured.loading_seconds is None:
        yield "loading: no DataLoader was observed"
    if observed.device_memory_bytes is None and row.machines.device is not None:
        yield "memory: no GPU was read while the run lasted"
    if observed.startup_seconds is None:
        yield "start-up: the run was restarted, or its beginning is not recorded"
    if measurements and all(one.loading_seconds is None for one in measurements):
        yield "loading of the steps that the plan rests on: they were given without it, it counts as compute"


def _ms(seconds: float | None) -> str:
    value = (seconds or 0.0) * 1e3
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
