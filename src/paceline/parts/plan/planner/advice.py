"""The one change that would help most, found by computing each change's row and comparing what a sample costs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Fit, Row
from paceline.parts.plan.planner.choice import keeps
from paceline.parts.plan.planner.collective import MIB
from paceline.parts.plan.planner.question import Candidate, PlanQuestion
from paceline.parts.plan.planner.roofline import compute_seconds
from paceline.parts.plan.planner.rows import Rows
from paceline.parts.plan.planner.what_if import sharded, with_batch, with_buckets, with_microbatches, with_precision
from paceline.parts.plan.planner.workload import Measurement, Precision, Strategy, Workload

# A gain below this is not worth an edit, and smaller than what the same step varies by between equal machines (0.4 to 2 % for
# transformers, up to 7 % for short steps. Source: bench/data/measured.csv, the H100 machines of Lambda).
LEAST_GAIN = 0.02
_BUCKETS_MIB = (50, 100)
_ACCUMULATE = (2, 4)
_TRIED_DIVISORS = 100_000
_BF16 = "torch.autocast('cuda', dtype=torch.bfloat16)"


class Aim(StrEnum):
    MONEY = "money"
    DEVICES = "of the devices' time"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change, how it is made, and what it would give."""

    kind: str
    """`precision`, `buckets`, `accumulation`, `zones`, `hosts`, `type` or `memory`."""
    change: str
    """The change, in words."""
    how: str
    """How it is made."""
    gain_fraction: float | None
    """By how much less a sample takes, of money or time; None: the gain is that the step fits at all."""
    before: Row
    """The row as it is."""
    after: Row
    """The row with the change."""
    aim: Aim = Aim.MONEY
    """What the change makes less of."""
    certain: bool = True
    """Whether the gain is beyond the intervals."""
    note: str | None = None
    """What else it changes."""


def advise(question: PlanQuestion, rows: Sequence[Row], base: Row) -> tuple[Advice, ...]:
    """Changes that gain at least 2 %, the largest gain first.

    `base`: a row of `rows`, which are those of the question's candidates in their order.
    """
    candidate = next((one for one, row in zip(question.candidates, rows, strict=True) if row is base), None)
    if candidate is None or candidate.refused:
        return ()
    if base.memory.verdict is Fit.DOES_NOT_FIT:
        return tuple(
            sorted(_to_make_it_fit(question, candidate, base), key=lambda one: one.after.memory.verdict is Fit.GREY)
        )
    if base.step is None:
        return ()
    found = [
        *_of_workload(question, candidate, base),
        *_of_machines(question, candidate, rows, base),
    ]
    best: dict[str, Advice] = {}
    for advice in sorted(found, key=lambda one: one.gain_fraction or 0.0):
        best[advice.kind] = advice
    return tuple(sorted(best.values(), key=lambda one: -(one.gain_fraction or 0.0)))


def aim_of(question: PlanQuestion, base: Row) -> Aim:
    """Which quantity the advice minimises: time if a deadline is missed or only a budget is set, else cost, else device-hours."""
    limits = question.limits
    in_time = keeps(base, replace(limits, budget_usd=None))
    only_budget = limits.deadline_seconds is None and limits.max_run_seconds is None and limits.budget_usd is not None
    if not in_time or (only_budget and keeps(base, limits)):
        return Aim.TIME
    return Aim.MONEY if base.usd_per_hour is not None else Aim.DEVICES


def price_of_a_sample(row: Row, workload: Workload, aim: Aim) -> float | None:
    """USD, device-seconds or seconds of one sample (of one batch if its samples are unknown)."""
    if row.step is None or (aim is Aim.MONEY and row.usd_per_hour is None):
        return None
    each = {Aim.MONEY: (row.usd_per_hour or 0.0) / 3600, Aim.DEVICES: float(row.machines.devices), Aim.TIME: 1.0}[aim]
    return each * row.step.seconds / ((workload.batch or 1) * workload.microbatches * row.machines.devices)


# ----------------------------------------------------------------------------------------------------------------- workload


def _of_workload(question: PlanQuestion, candidate: Candidate, base: Row) -> Iterator[Advice]:
    for kind, changed, change, how, note in _edits(question, candidate, base):
        after = Rows(changed).row(candidate)
        gain = _gain(question, base, after, changed.workload)
        if gain is not None and after.memory.verdict in (base.memory.verdict, Fit.FITS):
            yield Advice(
                kind=kind,
                change=change,
                how=how,
                gain_fraction=gain,
                before=base,
                after=after,
                aim=aim_of(question, base),
                note=note or None,
            )


def _edits(
    question: PlanQuestion, candidate: Candidate, base: Row
) -> Iterator[tuple[str, PlanQuestion, str, str, str]]:
    workload = question.workload
    if faster := _in_bf16(question, candidate):
        yield "precision", faster, "compute in bf16", _BF16, "check that the loss stays as it was"
    if base.machines.devices == 1:
        return
    if workload.gradient_bytes is not None and workload.strategy is Strategy.DDP:
        for mib in _BUCKETS_MIB:
            changed = replace(question, workload=with_buckets(workload, mib * MIB))
            how = f"DistributedDataParallel(bucket_cap_mb={mib})"
            note = "fewer exchanges, which start later: that they hide less behind backward is not counted"
            yield "buckets", changed, f"buckets of {mib} MiB", how, note
    unit = replace(workload, batch=workload.batch or 1)
    measured = _with_parts(question.measurements, (unit.batch or 1) * workload.microbatches)
    for times in _ACCUMULATE:
        count = workload.microbatches * times
        steps = question.goal.steps
        changed = replace(
            question,
            workload=with_microbatches(unit, count),
            measurements=measured,
            # For the same number of samples: each step has `times` as many.
            goal=replace(question.goal, steps=None if steps is None else math.ceil(steps / times)),
        )
        note = f"the global batch grows {times} times: the learning rate and the steps to the same loss change"
        yield (
            "accumulation",
            changed,
            f"exchange after {count} microbatches",
            f"{count - 1} backward passes under no_sync()",
            note,
        )


def _with_parts(measurements: Sequence[Measurement], batch: int) -> tuple[Measurement, ...]:
    """The measurements with their batch. If the exchange is unknown, the extra time of a larger size counts as its exchange."""
    if not measurements:
        return ()
    least = min(one.step_seconds for one in measurements)
    return tuple(
        replace(
            one,
            batch=batch if one.batch is None else one.batch,
            exposed_communication_seconds=one.step_seconds - least
            if one.exposed_communication_seconds is None
            else one.exposed_communication_seconds,
        )
        for one in measurements
    )


def _in_bf16(question: PlanQuestion, candidate: Candidate) -> PlanQuestion | None:
    """The question with bf16 and its measurements scaled; None if it has low precision already or the gain is unknown."""
    workload, device = question.workload, candidate.machines.device
    if device is None or device.bf16_tflops is None or workload.precision not in (Precision.FP32, Precision.TF32):
        return None
    changed = with_precision(workload, Precision.BF16)
    try:
        now, then = compute_seconds(workload, device), compute_seconds(changed, device)
    except UsageError:
        return None
    if now is None or then is None or then[0] >= now[0]:
        return None
    ratio = then[0] / now[0]
    return replace(
        question, workload=changed, measurements=tuple(_computed_in(one, ratio) for one in question.measurements)
    )


def _computed_in(measured: Measurement, ratio: float) -> Measurement:
    besides = (measured.exposed_communication_seconds or 0.0) + (measured.loading_seconds or 0.0)
    return replace(measured, step_seconds=besides + (measured.step_seconds - besides) * ratio)


# ----------------------------------------------------------------------------------------------------------------- machines


def _of_machines(question: PlanQuestion, candidate: Candidate, rows: Sequence[Row], base: Row) -> Iterator[Advice]:
    known = Rows(question)
    if base.machines.zones > 1 and candidate.in_one_zone is not None:
        after = known.row(replace(candidate, machines=candidate.in_one_zone()))
        money = aim_of(question, base) is Aim.MONEY
        saved = (base.zone_traffic_usd or 0.0) / base.usd if base.usd and money else 0.0
        gain = _gain(question, base, after, question.workload, least=LEAST_GAIN - saved)
        if gain is not None:
            yield Advice(
                kind="zones",
                change="all hosts in one zone",
                how="--zones 1",
                gain_fraction=1 - (1 - gain) * (1 - saved),
                before=base,
                after=after,
                aim=aim_of(question, base),
            )
    for after in rows:
        if after.name == base.name and after.machines.hosts < base.machines.hosts and _is_open(after, base, question):
            yield from _other_machines(question, base, after, _instead(after, base), "--host-counts")
    others = (
        (known.row(one) for one in question.others() if one.name != base.name) if question.others is not None else ()
    )
    instead = [
        row for row in (*(row for row in rows if row.name != base.name), *others) if _is_open(row, base, question)
    ]
    if instead and not keeps(base, question.limits):
        # All of them meet the limits that the base misses: take the cheapest, not the one that is furthest from the limit.
        instead = [min(instead, key=lambda row: math.inf if row.usd is None else row.usd)]
    for after in instead:
        hosts = f"{after.machines.hosts} x {after.name}"
        yield from _other_machines(question, base, after, hosts, "--instance")


def _other_machines(question: PlanQuestion, base: Row, after: Row, change: str, option: str) -> Iterator[Advice]:
    gain = _gain(question, base, after, question.workload)
    if gain is None or base.step is None or after.step is None:
        return
    value = after.machines.hosts if option == "--host-counts" else after.name
    slower = (after.step.seconds / after.machines.devices) / (base.step.seconds / base.machines.devices)
    apart = (1 - gain) * after.step.high_seconds / after.step.seconds < base.step.low_seconds / base.step.seconds
    note = f"the same samples take {slower:.2g} times as long" if slower > 1.05 else ""
    if not keeps(base, question.limits):
        note = "; ".join(part for part in ("it meets the limits", note) if part)
    yield Advice(
        kind="hosts" if option == "--host-counts" else "type",
        change=change,
        how=f"{option} {value}",
        gain_fraction=gain,
        before=base,
        after=after,
        aim=aim_of(question, base),
        certain=apart or option == "--host-counts",
        note=note or None,
    )


def _instead(after: Row, base: Row) -> str:
    few = after.machines.hosts
    return f"{few} {'host' if few == 1 else 'hosts'} instead of {base.machines.hosts}"


def _is_open(row: Row, base: Row, question: PlanQuestion) -> bool:
    """Whether the job could move there: it is allowed, it fits as certainly as before, and the limits are met."""
    return (
        row.step is not None
        and not row.refused
        and row.memory.verdict in (base.memory.verdict, Fit.FITS)
        and keeps(row, question.limits)
    )


def _gain(
    question: PlanQuestion, base: Row, after: Row, changed: Workload, *, least: float = LEAST_GAIN
) -> float | None:
    aim = aim_of(question, base)
    if aim is Aim.DEVICES and after.name != base.name:
        return None
    before, then = price_of_a_sample(base, question.workload, aim), price_of_a_sample(after, changed, aim)
    if before is None or then is None:
        return None
    gain = 1 - then / before
    return gain if gain >= least else None


# ------------------------------------------------------------------------------------------------------------------- memory


def _to_make_it_fit(question: PlanQuestion, candidate: Candidate, base: Row) -> Iterator[Advice]:
    for changed, change, how in _smaller(question, base):
        after = Rows(replace(question, workload=changed)).row(candidate)
        if after.memory.verdict in (Fit.FITS, Fit.GREY):
            yield Advice(
                kind="memory",
                change=change,
                how=how,
                gain_fraction=None,
                before=base,
                after=after,
                note=f"memory: {after.memory.verdict}",
            )
    yield from _roomier(question, base)


def _roomier(question: PlanQuestion, base: Row) -> Iterator[Advice]:
    """Another type that takes the step unchanged, at the lowest cost of a sample or else of an hour."""

    def price(found: tuple[Candidate, Row]) -> tuple[float, float]:
        each = price_of_a_sample(found[1], question.workload, Aim.MONEY)
        hourly = found[0].prices.paid(question.payment)
        return math.inf if each is None else each, math.inf if hourly is None else hourly

    known = Rows(question)
    others = question.others() if question.others is not None else ()
    rows = [(one, known.row(one)) for one in others if not one.refused]
    fitting = [(one, row) for one, row in rows if row.memory.verdict is Fit.FITS and keeps(row, question.limits)]
    if fitting:
        _, after = min(fitting, key=price)
        hosts = f"{after.machines.hosts} x {after.name}"
        yield Advice(
            kind="type",
            change=hosts,
            how=f"--instance {after.name}",
            gain_fraction=None,
            before=base,
            after=after,
            note="memory: fits",
        )


def _smaller(question: PlanQuestion, base: Row) -> Iterator[tuple[Workload, str, str]]:
    workload = question.workload
    largest, batch = base.memory.largest_batch, workload.batch
    if largest and batch and largest < batch:
        # The same global batch: the smallest number of equal microbatches that are small enough.
        least = math.ceil(batch / largest)
        # A batch without a near divisor is computed sample by sample, instead of a long search.
        near = range(least, min(least + _TRIED_DIVISORS, batch + 1))
        times = next((times for times in near if batch % times == 0), batch)
        smaller = with_microbatches(with_batch(workload, batch // times), workload.microbatches * times)
        yield (
            smaller,
            f"microbatches of {batch // times}, {smaller.microbatches} accumulated: the same global batch",
            "no_sync()",
        )
    if workload.precision in (Precision.FP32, Precision.TF32):
        yield with_precision(workload, Precision.BF16), "compute in bf16", _BF16
    if base.machines.devices > 1 and workload.strategy is not Strategy.FSDP:
        if not workload.gradient_as_bucket_view:
            views = replace(workload, gradient_as_bucket_view=True)
            how = "DistributedDataParallel(gradient_as_bucket_view=True)"
            yield views, "keep the gradients in DDP's buckets alone", how
        yield sharded(workload), "shard the state over the devices", "torch.distributed.fsdp.fully_shard(model)"
