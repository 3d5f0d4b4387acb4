"""A prediction beside the measurement: the terms, the main reasons for the difference, and what could not be judged."""

from collections.abc import Iterable
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from paceline.parts.plan.planner.against import PlanComparison, Term
from paceline.parts.plan.planner.observed import UNEVEN_TIMES
from paceline.views.label_column import labelled
from paceline.views.table import table
from paceline.views.units import (
    UNKNOWN,
    bare_milliseconds,
    count,
    counted,
    duration,
    milliseconds,
    percent,
    size,
)

_NAMES = {"exposed_communication": "exposed communication"}


def against_text(comparison: PlanComparison, *, width: int = 100, ascii_only: bool = False) -> str:
    """The page; empty blocks are left out."""
    blocks = [
        "\n".join(wrap(_head(comparison), width)),
        table(
            ["", "PREDICTED MS", "MEASURED MS", "DIFFERENCE"],
            [_cells(term) for term in (_step(comparison), *comparison.terms)],
            right=frozenset({"PREDICTED MS", "MEASURED MS", "DIFFERENCE"}),
            width=width,
            ascii_only=ascii_only,
        ),
        *labelled("explains", _explained(comparison), width),
        *labelled("besides", _besides(comparison), width),
        *labelled("warning", (*comparison.row.warnings,), width),
        *labelled("not judged", comparison.not_judged, width),
    ]
    return "\n\n".join(block for block in blocks if block)


def against_facts(comparison: PlanComparison) -> dict[str, Any]:
    """The comparison for a program."""
    return {
        "run_id": comparison.observed.run,
        "step_count": comparison.observed.steps,
        "step_seconds": _both(comparison.predicted_seconds, comparison.measured_seconds),
        "mean_step_seconds": comparison.observed.mean_step_seconds,
        "difference_fraction": comparison.difference_fraction,
        "within_interval": comparison.within,
        "terms_seconds": {term.name: _both(term.predicted, term.measured) for term in comparison.terms},
        "startup_seconds": _both(comparison.startup.predicted, comparison.startup.measured),
        "memory_bytes": _both(comparison.memory.predicted, comparison.memory.measured),
        "reasons": [asdict(one) for one in comparison.reasons],
        "not_judged": list(comparison.not_judged),
    }


def _both(predicted: float | None, measured: float | None) -> dict[str, float | None]:
    return {"predicted": predicted, "measured": measured}


def _head(comparison: PlanComparison) -> str:
    row, observed = comparison.row, comparison.observed
    machines = f"{count(row.machines.hosts)} x {row.name}, {counted(row.machines.devices, 'rank')}"
    share = comparison.difference_fraction
    how = (
        "as predicted"
        if comparison.is_noise
        else f"{percent(abs(share))} {'longer' if share > 0 else 'shorter'} than predicted"
    )
    inside = "inside" if comparison.within else "outside"
    tier = row.step.tier if row.step is not None else 0
    so = f"a step is {how}, {inside} the plan's interval (tier {tier})"
    return f"run {observed.run} on {machines}: over {count(observed.steps)} steps {so}"


def _step(comparison: PlanComparison) -> Term:
    return Term(name="step", predicted=comparison.predicted_seconds, measured=comparison.measured_seconds)


def _cells(term: Term) -> list[str]:
    difference = term.difference
    sign = "" if difference is None else "+" if difference >= 0 else "-"
    text = UNKNOWN if difference is None else sign + bare_milliseconds(abs(difference))
    name = _NAMES.get(term.name, term.name)
    return [
        name if term.name == "step" else f"  {name}",
        bare_milliseconds(term.predicted),
        bare_milliseconds(term.measured),
        text,
    ]


def _explained(comparison: PlanComparison) -> Iterable[str]:
    """The sentence with the main reason, then the others."""
    if comparison.is_noise:
        yield "nothing to explain: run-to-run noise is as large"
        return
    difference = comparison.measured_seconds - comparison.predicted_seconds
    for place, reason in enumerate(comparison.reasons):
        share = reason.seconds / difference
        part = (
            f"{percent(share)} of the difference"
            if 0 < share <= 1
            else milliseconds(abs(reason.seconds)) + (" the other way" if share < 0 else "")
        )
        lead = f"most of it, {part}" if place == 0 and share >= 0.5 else part
        yield f"{lead}: {reason.what}" + (f" ({reason.next})" if reason.next else "")


def _besides(comparison: PlanComparison) -> Iterable[str]:
    startup, memory = comparison.startup, comparison.memory
    if startup.measured is not None:
        assumed = (
            f", {duration(startup.predicted)} from the start of billing was assumed"
            if startup.predicted is not None
            else ""
        )
        yield f"start-up took {duration(startup.measured)} from the start of the run to its first step{assumed}"
    if memory.measured is not None:
        predicted = (
            f", the tensors were predicted to need {size(memory.predicted)}" if memory.predicted is not None else ""
        )
        yield f"the fullest device held {size(memory.measured)}{predicted}"
    observed = comparison.observed
    if observed.mean_step_seconds > UNEVEN_TIMES * comparison.measured_seconds:
        yield (
            f"the mean of all steps is {milliseconds(observed.mean_step_seconds)}: some steps are longer than the ordinary one "
            "(evaluation, checkpoint, loading), and hours follow the mean"
        )
