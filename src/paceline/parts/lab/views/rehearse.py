"""A rehearsal: measured sizes, predicted sizes, and the basis of the predictions."""

import shlex
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from paceline.parts.plan.planner.rehearsal import Prediction, Rehearsal, RehearsedSize, to_plain
from paceline.views.label_column import LABEL_WIDTH, labelled
from paceline.views.table import table
from paceline.views.units import (
    UNKNOWN,
    bare_milliseconds,
    count,
    counted,
    milliseconds,
    percent,
    rate,
    size,
)


def rehearsal_text(
    rehearsal: Rehearsal, predicted: Sequence[Prediction], path: str, *, width: int = 100, ascii_only: bool = False
) -> str:
    """The page: one row for each size, measured or predicted."""
    headers = ["HOSTS", "RANKS", "", "STEP MS", "EFF", "COMPUTE", "EXCHANGE", "LOADING"]
    rows = [*_measured(rehearsal), *_predicted(predicted)]
    here = [one for one in predicted if one.here_seconds is not None]
    if here:
        headers.append("HERE MS")
        rows = [
            [*row, cell]
            for row, cell in zip(rows, [*("" for _ in rehearsal.sizes), *map(_here, predicted)], strict=True)
        ]
    blocks = [table(headers, rows, right=frozenset(headers) - {""}, width=width, ascii_only=ascii_only)]
    if here:
        blocks.append("\n".join(wrap(_crowded_here(here, rehearsal), width)))
    if rehearsal.probe is not None:
        blocks.append("\n".join(wrap(_exchange(rehearsal), width)))
    warnings = list(dict.fromkeys(text for one in predicted for text in one.step.warnings))
    blocks += labelled("warning", warnings, width)
    blocks += labelled("rests on", rehearsal.notes, width)
    program = shlex.join(rehearsal.program)
    blocks.append(
        f"{'next':<{LABEL_WIDTH}}paceline plan --rehearsal {path} {_machines(rehearsal)}--host-counts 1,2,4 {program}"
    )
    return "\n\n".join(blocks)


def tried_line(tried: RehearsedSize) -> str:
    """One size that has just been measured: "2 ranks: 14.2 ms a step over 30 steps (exchange 3.1 ms, loading 0.2 ms)"."""
    measured = tried.measurement
    ranks = counted(measured.devices, "rank")
    hosts = f" on {count(measured.hosts)} hosts" if measured.hosts > 1 else ""
    parts = [
        f"{name} {milliseconds(seconds)}"
        for name, seconds in (
            ("exchange", measured.exposed_communication_seconds),
            ("loading", measured.loading_seconds),
        )
        if seconds is not None
    ]
    inside = f" ({', '.join(parts)})" if parts else ""
    crowded = f", crowded: {tried.crowding:.3g} for each place" if tried.crowding > 1.0 else ""
    return f"{ranks}{hosts}: {milliseconds(measured.step_seconds)} a step over {count(tried.step_count)} steps{inside}{crowded}"


def rehearsal_json(rehearsal: Rehearsal, predicted: Sequence[Prediction], path: str) -> dict[str, Any]:
    """The rehearsal's own file, its path, and the predictions."""
    return {**to_plain(rehearsal), "file": path, "predictions": [_facts(one) for one in predicted]}


def _facts(one: Prediction) -> dict[str, Any]:
    return {
        **{name: getattr(one, name) for name in ("hosts", "efficiency_fraction", "crowding", "here_seconds")},
        "devices": one.hosts * one.ranks_per_host,
        "devices_per_host": one.ranks_per_host,
        "step_seconds": one.step.seconds,
        "step_seconds_low": one.step.low_seconds,
        "step_seconds_high": one.step.high_seconds,
        "tier": one.step.tier,
        "terms_seconds": dict(one.step.terms),
        "warnings": list(one.step.warnings),
    }


def _measured(rehearsal: Rehearsal) -> Iterable[list[str]]:
    first = rehearsal.sizes[0].measurement
    for tried in rehearsal.sizes:
        measured = tried.measurement
        yield [
            count(measured.hosts),
            count(measured.devices),
            "measured, crowded" if tried.crowding > 1.0 else "measured",
            bare_milliseconds(measured.step_seconds),
            percent(first.step_seconds / measured.step_seconds),
            bare_milliseconds(tried.compute_seconds),
            bare_milliseconds(measured.exposed_communication_seconds),
            bare_milliseconds(measured.loading_seconds),
        ]


def _predicted(predicted: Iterable[Prediction]) -> Iterable[list[str]]:
    for one in predicted:
        step = one.step
        low, high = bare_milliseconds(step.low_seconds), bare_milliseconds(step.high_seconds)
        yield [
            count(one.hosts),
            count(one.hosts * one.ranks_per_host),
            f"predicted, tier {step.tier}",
            f"{bare_milliseconds(step.seconds)} ({low}..{high})",
            percent(one.efficiency_fraction),
            bare_milliseconds(step.terms.get("compute", 0.0) + step.terms.get("multi_device_tax", 0.0)),
            bare_milliseconds(step.terms.get("exposed_communication")),
            UNKNOWN,
        ]


def _machines(rehearsal: Rehearsal) -> str:
    """Steps that were measured on a known accelerator can be planned for other types; those on CPUs for machines like this one."""
    return "--instance TYPE " if rehearsal.room.accelerator is not None else ""


def _here(one: Prediction) -> str:
    return "" if one.here_seconds is None else bare_milliseconds(one.here_seconds)


def _crowded_here(here: Sequence[Prediction], rehearsal: Rehearsal) -> str:
    room = rehearsal.room
    place = f"{room.devices} devices" if room.devices else f"{room.cpus:g} CPUs"
    return (
        f"The predicted step is for machines with room for each rank. HERE MS is the step if all ranks run on this machine's {place}, "
        f"{here[0].crowding:.3g} or more of them taking turns on each."
    )


def _exchange(rehearsal: Rehearsal) -> str:
    probe = rehearsal.probe
    assert probe is not None
    (small, quick), (large, seconds) = probe.points[0], probe.points[-1]
    bus = rate(large / seconds * 2 * (probe.ranks - 1) / probe.ranks)
    figures = f"{bus} bus bandwidth at {size(large)}, {milliseconds(quick)} at {size(small)}"
    return f"exchange timed among {probe.ranks} ranks ({probe.backend}): {figures}"
