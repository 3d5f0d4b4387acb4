"""Strategies for the exchange of gradients, side by side on one script."""

import shlex
from collections.abc import Sequence
from typing import Any

from paceline.parts.comm.planner.regression import spread
from paceline.parts.comm.planner.strategy_times import PLAIN, StrategyTime, Try, fastest
from paceline.parts.lab.views.bench import SCHEMA
from paceline.views.label_column import LABEL_WIDTH, labelled
from paceline.views.table import table
from paceline.views.units import bare_milliseconds, milliseconds, percent, times

_NUMBERS = frozenset({"STEP MS", "+-", "TIMES PLAIN", "EXCHANGE"})


def step_text(
    found: Sequence[StrategyTime],
    program: Sequence[str],
    words: Sequence[str],
    baselines: Sequence[str] = (),
    *,
    width: int = 100,
    ascii_only: bool = False,
) -> str:
    """One row for each strategy in the requested order, why one has no figure, the recommendation, and the comparison with baselines."""
    headers = ["GRADIENTS", "STEP MS", "+-", "TIMES PLAIN", "EXCHANGE", "AVERAGE"]
    rows = [_row(one, ascii_only) for one in found]
    blocks = [table(headers, rows, right=_NUMBERS, width=width, ascii_only=ascii_only)]
    blocks += labelled("failed", [f"{one.strategy}: {one.failure}" for one in found if one.failure], width)
    blocks += labelled("said", [f"{one.strategy}: {one.said}" for one in found if one.said], width)
    best = fastest(found)
    if best is None:
        advice = "no exact strategy is faster than plain by more than chance: keep the script's own way"
    else:
        advice = f"{shlex.join(['paceline', 'run', '--gradients', best.strategy, *words, *program])}"
    blocks.append(f"{'take':<{LABEL_WIDTH}}{advice}")
    blocks += labelled("baseline", baselines, width)
    return "\n\n".join(blocks)


def try_line(tried: Try, number: int, of: int) -> str:
    """One try that has just ended: "direct (3 of 12): 22.0 ms a step over 30 steps (exchange 1.9 ms)"."""
    step = spread(tried.samples)
    inside = f" (exchange {milliseconds(tried.exchange_seconds)})" if tried.exchange_seconds is not None else ""
    return f"{tried.strategy} ({number} of {of}): {milliseconds(step.seconds)} a step over {step.count} steps{inside}"


def step_json(found: Sequence[StrategyTime], program: Sequence[str], asked: dict[str, Any]) -> dict[str, Any]:
    """The same for a program."""
    best = fastest(found)
    return {
        "schema": SCHEMA,
        "collective": "step",
        "program": list(program),
        "asked": asked,
        "strategies": [
            {
                "gradients": one.strategy,
                "exact": one.is_exact,
                "step_seconds": None if one.step is None else one.step.seconds,
                "mad_seconds": None if one.step is None else one.step.mad_seconds,
                "step_count": 0 if one.step is None else one.step.count,
                "times_plain": one.times_plain,
                "exposed_communication_fraction": one.exchange_fraction,
                "run_ids": list(one.runs),
                "said": one.said,
                "failure": one.failure,
            }
            for one in found
        ],
        "take": PLAIN if best is None else best.strategy,
    }


def _row(one: StrategyTime, ascii_only: bool) -> list[str]:
    kind = "exact" if one.is_exact else "lossy"
    if one.step is None:
        return [one.strategy, "-", "-", "-", "-", kind]
    return [
        one.strategy,
        bare_milliseconds(one.step.seconds),
        bare_milliseconds(one.step.mad_seconds),
        times(one.times_plain, ascii_only=ascii_only),
        percent(one.exchange_fraction),
        kind,
    ]
