"""Reads earlier measurements from files: probed links, a rehearsal, a recorded run."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import NotEnoughEvidence, UsageError
from paceline.parts.plan.planner.collective import Link
from paceline.parts.plan.planner.links import link_from_curve
from paceline.parts.plan.planner.workload import Assumption, Measurement

CURVE_SCHEMA = "paceline.curve/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedInputs:
    """Steps and links that were measured, from files."""

    measurements: tuple[Measurement, ...] = ()
    """Measured steps; empty: no file has any."""
    within: Link | None = None
    """A link inside a host; None: no file has such a link."""
    among: Link | None = None
    """A link between hosts; None: no file has such a link."""
    device: str | None = None
    """Name of the accelerator that the steps were measured on; None: unknown."""
    assumptions: tuple[Assumption, ...] = ()
    """Assumptions and problems of a rehearsal."""


def recorded(args: argparse.Namespace) -> RecordedInputs:
    """The content of --curve, --rehearsal and --from-run. A curve takes precedence over the rehearsal's own probe.

    Raises:  UsageError U27, X05, U09: a file or a run that cannot be found or used; NotEnoughEvidence P08: a run with too few steps
    """
    rehearsed = _rehearsal(args.rehearsal) if args.rehearsal else RecordedInputs()
    curve = _curve(args.curve) if args.curve else RecordedInputs()
    return RecordedInputs(
        measurements=(*rehearsed.measurements, *map(_run, args.from_run)),
        within=curve.within or rehearsed.within,
        among=curve.among or rehearsed.among,
        device=rehearsed.device,
        assumptions=rehearsed.assumptions,
    )


def _run(name: str) -> Measurement:
    from paceline.parts.plan.planner.observed import measurement_of, step_count, too_few
    from paceline.recording.evidence import evidence

    found = evidence(name)
    measured = measurement_of(found)
    if measured is None:
        raise NotEnoughEvidence(
            "P08",
            f"run {found.run.id} has too few steps to measure one",
            saw=too_few(step_count(found.ranks)),
            next=f"paceline ps, for a longer run than {found.run.id}",
        )
    return measured


def _rehearsal(name: str) -> RecordedInputs:
    from paceline.parts.plan.rehearsal_file import read_rehearsal

    found = read_rehearsal(name)
    several = found.probe is not None and found.probe.hosts > 1
    return RecordedInputs(
        measurements=found.measurements,
        within=None if several else found.link,
        among=found.link if several else None,
        device=found.room.accelerator,
        assumptions=tuple(Assumption(what=note) for note in found.notes),
    )


def _curve(path: str) -> RecordedInputs:
    """A link probe of the job's own hosts: of all ranks, and of parts of them if there were several hosts."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "U27", f"--curve {path} cannot be read", saw=str(error), next="paceline bench --rehearse measures one"
        ) from None
    if not isinstance(plain, dict) or plain.get("schema") != CURVE_SCHEMA:
        raise UsageError(
            "U27",
            f"--curve {path} is not a measured curve",
            saw=f"schema {plain.get('schema')!r}" if isinstance(plain, dict) else "no object",
            next=f"measure one with paceline bench --rehearse; its schema is {CURVE_SCHEMA}",
        )
    several = isinstance(plain.get("hosts"), int) and plain["hosts"] > 1
    within, among = (plain.get("within"), plain.get("among") or plain) if several else (plain, None)
    return RecordedInputs(
        within=_link(within, path) if within is not None else None,
        among=_link(among, path) if among is not None else None,
    )


def _link(part: Mapping[str, Any], path: str) -> Link:
    try:
        points = [(float(size), float(seconds)) for size, seconds in part["points"]]
        return link_from_curve(points, int(part["ranks"]), source=f"measured, {path}")
    except (KeyError, TypeError, ValueError) as wrong:
        raise UsageError(
            "U27",
            f"--curve {path} is not a measured curve",
            saw=f"{wrong}; wanted ranks, hosts and points of [bytes, seconds]",
            next="measure it: paceline bench --rehearse",
        ) from None
