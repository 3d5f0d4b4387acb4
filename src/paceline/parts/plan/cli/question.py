"""Makes the planner's question from a command line of `paceline plan`."""

import argparse
from collections.abc import Callable
from dataclasses import replace

from paceline.catalog.types import Accelerator
from paceline.cli.values import above_zero, counted, duration
from paceline.errors import UsageError
from paceline.parts.plan.cli.machines import (
    MachineSelection,
    accelerator_of,
    given_device,
    look,
    named_type,
    of_type,
)
from paceline.parts.plan.cli.measured import each_size_once, measurements_given
from paceline.parts.plan.cli.options import EVERY_TYPE, words_of_ours
from paceline.parts.plan.cli.recorded import RecordedInputs, recorded
from paceline.parts.plan.cli.workload import workload_of
from paceline.parts.plan.planner.question import Candidate, Expenses, Goal, Payment, PlanLimits, PlanQuestion
from paceline.parts.plan.planner.workload import Assumption, Measurement, Workload


def question_of(args: argparse.Namespace) -> PlanQuestion:
    """The question, after every check that can refuse it.

    Raises:  UsageError P01 to P08, U02, U03, U27; the page of each code explains it
    """
    goal, limits, expenses = _goal(args), _limits(args), _expenses(args)
    has_workload = bool(args.script or args.trace or args.model)
    before = recorded(args)
    looked = look(args, has_workload=has_workload, before=before)
    given, assumptions = measurements_given(args, _whole_host(args, looked))
    measurements = (*before.measurements, *given)
    each_size_once(measurements)
    # As many as the largest host has: some scripts leave where there is only one.
    workload = workload_of(args, looked.most_devices_per_host)
    if workload == Workload() and not measurements:
        raise UsageError(
            "P08",
            "there is nothing to plan from",
            saw="no script, no trace, no measured step and no size of the model",
            next="paceline plan train.py, or with numbers: --gradient-mib MIB --measured-step-ms MS",
        )
    on, measured_type = _measured_on(args, looked, measurements, before)
    payment = _payment(args)
    return PlanQuestion(
        workload=workload,
        candidates=looked.candidates,
        measurements=measurements,
        measured_on=on,
        measured_type=measured_type,
        others=_others(args, looked),
        goal=goal,
        limits=limits,
        expenses=expenses,
        payment=payment,
        assumptions=(
            *before.assumptions,
            *assumptions,
            *_taken_for_granted(args, goal, expenses, looked, workload),
            *_whose_prices(looked, payment),
        ),
        warnings=looked.warnings,
        not_judged=looked.not_judged,
    )


def _payment(args: argparse.Namespace) -> Payment:
    """As the options say; who names types of SageMaker alone pays SageMaker's price."""
    if args.spot:
        return Payment.SPOT
    of_sagemaker = bool(args.instance) and all(name.startswith("ml.") for name in args.instance)
    return Payment.SAGEMAKER if args.sagemaker_prices or of_sagemaker else Payment.ON_DEMAND


def _whose_prices(looked: MachineSelection, payment: Payment) -> list[Assumption]:
    """Whose the prices are, with the types where these differ."""
    types: dict[str, list[str]] = {}
    for candidate in looked.candidates:
        if whose := candidate.prices.whose(payment):
            types.setdefault(whose, []).append(candidate.name)
    if len(types) < 2:
        return [Assumption(what=f"prices are {whose}") for whose in types]
    named = {whose: list(dict.fromkeys(names)) for whose, names in types.items()}
    return [
        Assumption(what=f"the price of {', '.join(names[:3])}{' and others' * (len(names) > 3)} is {whose}")
        for whose, names in named.items()
    ]


def _goal(args: argparse.Namespace) -> Goal:
    if args.epochs and args.steps:
        raise UsageError(
            "U03",
            "--epochs and --steps both say how far to train",
            saw=f"--epochs {args.epochs} --steps {args.steps}",
            next="leave --epochs out",
        )
    return Goal(
        steps=counted("--steps", args.steps) if args.steps else None,
        epochs=above_zero("--epochs", args.epochs) if args.epochs else None,
        samples=counted("--samples", args.samples) if args.samples else None,
    )


def _limits(args: argparse.Namespace) -> PlanLimits:
    return PlanLimits(
        max_run_seconds=duration("--max-run", args.max_run) if args.max_run else None,
        deadline_seconds=duration("--deadline", args.deadline) if args.deadline else None,
        budget_usd=above_zero("--budget", args.budget) if args.budget else None,
    )


def _expenses(args: argparse.Namespace) -> Expenses:
    usual = Expenses()
    return replace(
        usual,
        startup_seconds=duration("--startup", args.startup, zero=True) if args.startup else usual.startup_seconds,
        epoch_seconds=duration("--per-epoch", args.per_epoch, zero=True) if args.per_epoch else usual.epoch_seconds,
    )


def _whole_host(args: argparse.Namespace, looked: MachineSelection) -> int:
    if args.measured_instance:
        return named_type(args, args.measured_instance)[0].accelerator_count or 1
    return looked.whole_host


def _measured_on(
    args: argparse.Namespace, looked: MachineSelection, measurements: tuple[Measurement, ...], before: RecordedInputs
) -> tuple[Accelerator | None, str]:
    """The device and machine type of the measurements; (None, "") if they are those of the only candidates."""
    if args.measured_instance:
        kind, own = named_type(args, args.measured_instance)
        return accelerator_of(kind, own), kind.name
    if args.measured_device:
        return given_device(args.measured_device)[0], ""
    if before.device is not None:
        return given_device(before.device)[0], ""
    live = [candidate for candidate in looked.candidates if candidate.machines.device and not candidate.refused]
    devices = {
        candidate.machines.device.name: candidate.machines.device for candidate in live if candidate.machines.device
    }
    if (measurements and len(devices) > 1) or (before.measurements and looked.types):
        names = sorted(devices)
        raise UsageError(
            "P08",
            "a step was measured, and no option says on which device",
            saw=f"the machines have {', '.join(names) or 'no accelerator that is known'}",
            next=f"--measured-device '{names[0]}', or --measured-instance NAME"
            if names
            else "--measured-instance NAME",
        )
    types = {candidate.name for candidate in live}
    return next(iter(devices.values()), None), types.pop() if len(types) == 1 else ""


def _others(args: argparse.Namespace, looked: MachineSelection) -> Callable[[], tuple[Candidate, ...]] | None:
    """Every other type of the catalogue with the same counts, for advice, if types were chosen by name."""
    if not args.instance or args.instance == EVERY_TYPE or args.file:
        return None
    asked = {kind.name for kind in looked.types}
    fleet = replace(looked.fleet, devices_per_host=(), capacity_bytes=None)

    def candidates() -> tuple[Candidate, ...]:
        from paceline.catalog.lookup import machine_types

        others = (kind for kind in machine_types() if kind.name not in asked)
        return tuple(candidate for kind in others for candidate in of_type(kind, fleet, args))

    return candidates


def _taken_for_granted(
    args: argparse.Namespace, goal: Goal, expenses: Expenses, looked: MachineSelection, workload: Workload
) -> list[Assumption]:
    found = ["each device keeps its batch as devices are added (weak scaling)"]
    if ours := words_of_ours(args.script_args)[0]:
        found.append(
            f"{' '.join(ours)} comes after the script and was passed to it; options of paceline plan come before"
        )
    if workload.loading_seconds is not None:
        found.append(f"a batch loads as fast as on this machine, in {workload.loading_seconds * 1e3:.3g} ms")
    if goal != Goal():
        if not args.startup:
            found.append(
                f"{expenses.startup_seconds / 60:g} minutes from the start of billing to the first step, data download included (--startup)"
            )
        if not args.per_epoch and goal.epochs is not None:
            found.append("evaluation and checkpoints take no time (--per-epoch)")
        if args.per_epoch and goal.steps is not None:
            found.append("--per-epoch is not counted: --steps does not say how many epochs there are")
    if looked.fleet.zones > 1:
        found.append("ranks are ordered by zone, so that the exchange crosses each border between zones once")
    return [Assumption(what=text) for text in found]
