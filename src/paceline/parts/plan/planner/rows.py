"""One row of a plan: memory, time, throughput, hours and cost of the job on one set of machines."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Formula, Memory, Row, StepTime
from paceline.parts.plan.planner.completion import fixed_seconds, hours_of, steps_of, within_probability
from paceline.parts.plan.planner.cost import machines_usd, zone_usd
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.memory import memory
from paceline.parts.plan.planner.question import Candidate, PlanQuestion
from paceline.parts.plan.planner.roofline import compute_seconds
from paceline.parts.plan.planner.sanity import doubts
from paceline.parts.plan.planner.step_time import step_time
from paceline.parts.plan.planner.workload import Measurement, Strategy, Workload

# A step that is scaled from one accelerator to another by roofline may be off by this factor either way, in addition to the error of the
# rest of the prediction. Source: docs/accuracy.md, the interval of a step without a measurement on that accelerator.
MOVED_FACTOR = 1.35


class Rows:
    """The rows of one question, and their shared parts: memory, scaled measurements and single devices are computed once."""

    def __init__(self, question: PlanQuestion) -> None:
        self.question = question
        self._step = _whole_step(question.workload)
        self._memories: dict[tuple[int | None, int], Memory] = {}
        self._moved: dict[str, tuple[Measurement, ...]] = {}
        self._alone: dict[str, float | None] = {}

    def row(self, candidate: Candidate, *, formulas: list[Formula] | None = None) -> Row:
        """The row of the job on these machines; each formula that is used is appended to `formulas`.

        Holds:   refused machines have neither a step nor a cost
        """
        machines = candidate.machines
        needed = self._memory(candidate, formulas)
        row = Row(
            machines=machines,
            memory=needed,
            step=None,
            name=candidate.name,
            refused=candidate.refused,
            warnings=candidate.warnings,
        )
        if candidate.refused:
            return row
        row = replace(row, usd_per_hour=_times(candidate.prices.paid(self.question.payment), machines.hosts))
        measured = self._measured(candidate)
        try:
            step = step_time(machines, self._step, measured, formulas=formulas)
        except UsageError as unknown:
            missing = f"{unknown.saw or unknown.what} ({unknown.next})"
            if self._is_moved(machines):
                missing = (
                    "the measured step is of another device, and how much faster this one is takes the operations of a step (a training "
                    "script to trace, or --gflops-per-sample with --batch) and the rates of both"
                )
            return replace(row, not_judged=(f"step time: {missing}",))
        warnings = (*candidate.warnings, *self._said(candidate, step, measured))
        if self._is_moved(machines):
            step, warning = self._widened(step, bool(measured))
            warnings = (*warnings, warning)
        unknown_exchange = () if measured else tuple(_unknown_exchange(machines, self.question.workload))
        row = replace(row, step=step, warnings=warnings, not_judged=unknown_exchange)
        return self._finished(row, candidate, measured, formulas)

    # ------------------------------------------------------------------------------------------------------------ parts

    def _memory(self, candidate: Candidate, formulas: list[Formula] | None) -> Memory:
        workload, machines = self.question.workload, candidate.machines
        shared = machines.devices if workload.strategy is Strategy.FSDP else min(machines.devices, 2)
        key = (candidate.capacity_bytes, shared)
        if key not in self._memories or formulas is not None:
            self._memories[key] = memory(
                workload,
                capacity_bytes=candidate.capacity_bytes,
                strategy=workload.strategy,
                devices=shared,
                formulas=formulas,
            )
        return self._memories[key]

    def _is_moved(self, machines: Machines) -> bool:
        on = self.question.measured_on
        return bool(
            self.question.measurements
            and on is not None
            and machines.device is not None
            and on.name != machines.device.name
        )

    def _said(self, candidate: Candidate, step: StepTime, measured: Sequence[Measurement]) -> tuple[str, ...]:
        """The step's warnings. A measurement is checked against the machines on which it was made."""
        question = self.question
        if not self._is_moved(candidate.machines) and question.measured_type in ("", candidate.name):
            return step.warnings
        here = doubts(candidate.machines, self._step, measured)
        there = Machines(device=question.measured_on, devices_per_host=1, hosts=1)
        kept = (text for text in step.warnings if text not in here)
        return (*kept, *doubts(there, self._step, question.measurements))

    def _measured(self, candidate: Candidate) -> tuple[Measurement, ...]:
        """The measurements that count here: all of them on their own machines, the smallest one elsewhere."""
        question, device = self.question, candidate.machines.device
        if self._is_moved(candidate.machines) and device is not None:
            if device.name not in self._moved:
                self._moved[device.name] = self._move(device)
            return self._moved[device.name]
        if not question.measured_type or question.measured_type == candidate.name:
            return question.measurements
        return (_smallest(question.measurements),) if question.measurements else ()

    def _move(self, device: Accelerator) -> tuple[Measurement, ...]:
        """The smallest measurement, its step scaled by the roofline of both devices; nothing if that is unknown."""
        question, on = self.question, self.question.measured_on
        if on is None:
            return ()
        try:
            there = compute_seconds(self._step, on)
            here = compute_seconds(self._step, device)
        except UsageError:
            return ()
        if there is None or here is None:
            return ()
        smallest = _smallest(question.measurements)
        return (
            replace(
                smallest,
                step_seconds=smallest.step_seconds * here[0] / there[0],
                exposed_communication_seconds=None,
                source=f"{smallest.source}, scaled from {on.name}",
            ),
        )

    def _widened(self, step: StepTime, moved: bool) -> tuple[StepTime, str]:
        on = self.question.measured_on
        name = on.name if on is not None else "another device"
        if not moved:
            return step, f"the measured step is of {name} and was not used"
        wide = replace(
            step, tier=0, low_seconds=step.low_seconds / MOVED_FACTOR, high_seconds=step.high_seconds * MOVED_FACTOR
        )
        return wide, f"from the step measured on {name}, scaled by roofline"

    def _finished(
        self, row: Row, candidate: Candidate, measured: Sequence[Measurement], formulas: list[Formula] | None
    ) -> Row:
        question, machines, step = self.question, candidate.machines, row.step
        assert step is not None
        workload = question.workload
        samples = workload.batch * workload.microbatches * machines.devices if workload.batch is not None else None
        row = replace(
            row,
            efficiency_fraction=self._efficiency(machines, step, measured, formulas),
            samples_per_second=samples / step.seconds if samples is not None else None,
            spot_zone=candidate.prices.spot_zone or None,
        )
        steps = steps_of(question.goal, workload, machines.devices, formulas)
        if steps is None:
            return row
        besides = fixed_seconds(question.goal, question.expenses)
        hours, low, high = hours_of(steps, step, besides, formulas)
        limit = question.limits.max_run_seconds
        row = replace(
            row,
            step_count=steps,
            hours=hours,
            hours_low=low,
            hours_high=high,
            within_probability=None if limit is None else within_probability(limit, steps, step, besides, formulas),
        )
        return self._priced(row, candidate, formulas)

    def _priced(self, row: Row, candidate: Candidate, formulas: list[Formula] | None) -> Row:
        question, machines, prices = self.question, candidate.machines, candidate.prices
        traffic = zone_usd(machines, question.workload, row.step_count, question.expenses.usd_per_zone_gb, formulas)
        price = prices.paid(question.payment)

        def usd(per_hour: float | None, hours: float | None, explain: list[Formula] | None = None) -> float | None:
            machines_cost = machines_usd(per_hour, machines.hosts, hours, explain, source=prices.source)
            return None if machines_cost is None else machines_cost + (traffic or 0.0)

        row = replace(
            row,
            usd=usd(price, row.hours, formulas),
            usd_low=usd(price, row.hours_low),
            usd_high=usd(price, row.hours_high),
            spot_usd=usd(prices.spot, row.hours),
            sagemaker_usd=usd(prices.sagemaker, row.hours),
            zone_traffic_usd=traffic if machines.zones > 1 else None,
        )
        if traffic is None and row.usd is not None:
            return replace(
                row,
                not_judged=(
                    *row.not_judged,
                    "price of the traffic between zones: size of the gradients (--gradient-mib)",
                ),
            )
        return row

    def _efficiency(
        self, machines: Machines, step: StepTime, measured: Sequence[Measurement], formulas: list[Formula] | None
    ) -> float | None:
        """Throughput of one device here over that of one device alone, or at the smallest measured size."""
        batch = self._step.batch
        if measured and not self._is_moved(machines):
            base = _smallest(measured)
            bigger = batch / base.batch if batch is not None and base.batch is not None else 1.0
            alone, devices = base.step_seconds * bigger, base.devices
        else:
            found = self._single(machines.device)
            if found is None:
                return None
            alone, devices = found, 1
        if formulas is not None:
            formulas.append(
                Formula(
                    name="scaling efficiency",
                    text="reference_seconds / step_seconds",
                    values={"reference_seconds": alone, "reference_devices": devices, "step_seconds": step.seconds},
                    result=alone / step.seconds,
                    unit="fraction",
                    source="the same batch on each device; reference: the smallest size measured, or one device",
                )
            )
        return alone / step.seconds

    def _single(self, device: Accelerator | None) -> float | None:
        name = device.name if device is not None else ""
        if name not in self._alone:
            one = Machines(device=device, devices_per_host=1, hosts=1)
            measured = self._moved.get(name, ())
            try:
                self._alone[name] = step_time(one, self._step, measured).seconds
            except UsageError:
                self._alone[name] = None
        return self._alone[name]


def _whole_step(workload: Workload) -> Workload:
    """The step with the batch of all its microbatches, as measured steps and `flops` have it."""
    return workload if workload.batch is None else replace(workload, batch=workload.batch * workload.microbatches)


def _unknown_exchange(machines: Machines, workload: Workload) -> Iterator[str]:
    """The missing facts for the exchange of a step without a measurement; the time of published rows replaces it."""
    if machines.devices > 1 and workload.gradient_bytes is None:
        yield "exchange: the size of the gradients (--gradient-mib)"
    if machines.hosts > 1 and machines.inter is None:
        yield "exchange among hosts: the rate of their network (--inter-gbps)"


def _smallest(measurements: Sequence[Measurement]) -> Measurement:
    return min(measurements, key=lambda measured: measured.devices)


def _times(value: float | None, count: int) -> float | None:
    return None if value is None else value * count
