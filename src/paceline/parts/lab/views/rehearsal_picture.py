"""A rehearsal as a picture: measured and predicted steps by number of ranks, and how fast one rank is at each size."""

import shlex
from collections.abc import Iterator, Sequence

from paceline.parts.plan.planner.rehearsal import Prediction, Rehearsal
from paceline.parts.web.views.svg import BOTH, Axis, Chart, Draw, Palette, Point, Series, picture
from paceline.views.units import count, percent


def rehearsal_svg(rehearsal: Rehearsal, predicted: Sequence[Prediction], *, palette: Palette = BOTH) -> str:
    """The picture. Crowded sizes are in it, as hollow dots."""
    sizes = {float(one.measurement.devices) for one in rehearsal.sizes}
    sizes |= {float(one.hosts * one.ranks_per_host) for one in predicted}
    x = Axis(title="ranks", is_log=True, at=tuple(sorted(sizes)))
    first = rehearsal.sizes[0].measurement.step_seconds
    step = Chart(
        title="Time of a step",
        x=x,
        y=Axis(title="ms"),
        series=tuple(_steps(rehearsal, predicted)),
    )
    speed = Chart(
        title="Speed of one rank, of that at the smallest size",
        x=x,
        y=Axis(title="percent", spell=percent),
        series=tuple(_speeds(rehearsal, predicted, first)),
    )
    program = shlex.join(rehearsal.program)
    return picture(f"Rehearsal of {program}", _desc(rehearsal), [step, speed], notes=_notes(rehearsal), palette=palette)


def _steps(rehearsal: Rehearsal, predicted: Sequence[Prediction]) -> Iterator[Series]:
    yield Series(name="predicted", points=tuple(_from_measured(rehearsal, predicted)))
    here = [Point(one.hosts * one.ranks_per_host, one.here_seconds * 1e3) for one in predicted if one.here_seconds]
    if here:
        yield Series(name="predicted, with as few CPUs or GPUs as here", points=tuple(here), draw=Draw.DASHED)
    for crowded in (False, True):
        found = [one.measurement for one in rehearsal.sizes if (one.crowding > 1.0) is crowded]
        if found:
            yield Series(
                name="measured, crowded" if crowded else "measured",
                points=tuple(Point(one.devices, one.step_seconds * 1e3) for one in found),
                draw=Draw.HOLLOW if crowded else Draw.DOTS,
                is_neutral=True,
            )


def _from_measured(rehearsal: Rehearsal, predicted: Sequence[Prediction]) -> Iterator[Point]:
    """The predicted sizes, from the largest size that the prediction rests on."""
    last = max(rehearsal.measurements, key=lambda one: one.devices)
    milliseconds = last.step_seconds * 1e3
    yield Point(last.devices, milliseconds, milliseconds, milliseconds)
    for one in sorted(predicted, key=lambda one: one.hosts * one.ranks_per_host):
        step = one.step
        yield Point(one.hosts * one.ranks_per_host, step.seconds * 1e3, step.low_seconds * 1e3, step.high_seconds * 1e3)


def _speeds(rehearsal: Rehearsal, predicted: Sequence[Prediction], first: float) -> Iterator[Series]:
    """The same points as shares of the first step."""
    for series in _steps(rehearsal, predicted):
        points = tuple(
            Point(
                one.x,
                first * 1e3 / one.y,
                None if one.high is None else first * 1e3 / one.high,
                None if one.low is None else first * 1e3 / one.low,
            )
            for one in series.points
        )
        yield Series(name=series.name, points=points, draw=series.draw, is_neutral=series.is_neutral)


def _desc(rehearsal: Rehearsal) -> str:
    ranks = ", ".join(count(one.measurement.devices) for one in rehearsal.sizes)
    return f"The time of a training step, measured with {ranks} ranks and predicted for more."


def _notes(rehearsal: Rehearsal) -> Iterator[str]:
    yield f"Rehearsal {rehearsal.id}. The band covers at least 80 % of held-out cases; it is for machines with room for each rank."
    if any(one.crowding > 1.0 for one in rehearsal.sizes):
        yield "Crowded: more ranks than this machine has CPUs or GPUs. The prediction leaves such a size out where another has room."
