"""What the page of a run says, as plain data: `paceline.page/1`. Its figures are those of `why`, `top` and the summary."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from paceline.diagnosis.case import Case
from paceline.diagnosis.restart_costs import totals
from paceline.diagnosis.run_state import run_state
from paceline.diagnosis.time_limit import forecast_text
from paceline.diagnosis.verdict import Diagnosis, told_otherwise
from paceline.facts import Evidence
from paceline.recording.fact_json import to_plain
from paceline.recording.lateness import LateRow
from paceline.recording.log_tails import LogEnd
from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.storage.urls import shown_argv
from paceline.views.host_load import HostUsage, RunLoad, usage_in_columns
from paceline.views.live import event_text
from paceline.views.pace import Pace
from paceline.views.report.grid import grid_facts
from paceline.views.report.notes import marks, notes
from paceline.views.restarts import restart_lines
from paceline.views.run_state import state_words
from paceline.views.stack import stack_text
from paceline.views.summary import summary_facts
from paceline.views.top import top_facts
from paceline.views.why import why_json

SCHEMA = "paceline.page/1"
COLUMNS = 300
# More rows than these are one row for each host: the worst of its ranks.
_MOST_ROWS = 64
_MOST_EVENTS = 500
_MARKED = frozenset({"standstill", "restart", "cause", "stop_asked", "host_lost"})
# What `event_text` returns for its own lines begins so.
_OWN = "paceline  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the page is made of."""

    evidence: Evidence
    """The recording, with the telemetry of the whole run as far as it is read."""
    case: Case
    """The newest attempt as the causes see it."""
    diagnosis: Diagnosis
    """The findings."""
    pace: Pace
    """The newest pace; of an ended run, over its whole life."""
    loads: Sequence[HostUsage] | Sequence[RunLoad]
    """How busy the hosts are, or were."""
    axis: TimeAxis
    """From the run's start to its end, or to now."""
    steps: Sequence[StepColumns]
    """The steps on that axis."""
    late: Sequence[LateRow] = ()
    """How late the ranks came to the collectives."""
    logs: Sequence[LogEnd] = ()
    """Ends of logs, those that say most first."""
    not_shown: Sequence[str] = ()
    """What is left out, in words."""
    now_ns: int = 0
    """When the page is made."""
    usd_per_hour: float | None = None
    """Price of one host for an hour, in US dollars; None: not known."""
    price_from: str = ""
    """Where that price is from."""
    hosts_read: Collection[str] = ()
    """The hosts whose own directory is in this recording; (): not known."""


def page_facts(recorded: Recorded) -> dict[str, Any]:
    """Everything that the page says; null is unknown."""
    evidence, case = recorded.evidence, recorded.case
    run, now_ns = evidence.run, recorded.now_ns
    state = run_state(run, evidence.events)
    late = _lateness(recorded.late)
    latest, late_left_out = _latest(late)
    summary = msgspec.to_builtins(summary_facts(evidence, now_ns=now_ns))
    events = list(_events(evidence.events))
    left_out = [*recorded.not_shown, *late_left_out]
    if len(events) > _MOST_EVENTS:
        left_out.append(f"{len(events) - _MOST_EVENTS} events in the middle")
        events = [*events[: _MOST_EVENTS // 2], *events[-_MOST_EVENTS // 2 :]]
    return {
        "schema": SCHEMA,
        "made_ns": now_ns,
        "identity": {
            "run_id": run.id,
            "name": run.name,
            "command": list(shown_argv(run.command)),
            "started_ns": run.started_ns or None,
            "finished_ns": run.finished_ns,
            "paceline_version": run.version,
            "hosts": list(evidence.hosts),
            "ranks_wanted": recorded.pace.ranks_wanted,
            "directory": run.directory,
        },
        "state": {"words": state_words(state, now_ns), "tone": str(state.tone)},
        "verdict": msgspec.to_builtins(why_json(recorded.diagnosis, case)),
        "told_live": [
            msgspec.to_builtins(one)
            for one in told_otherwise(recorded.diagnosis.findings, evidence.events, case.attempt)
            if one.live and one.now
        ],
        "summary": summary,
        "now": msgspec.to_builtins(top_facts(evidence, recorded.pace, recorded.loads, now_ns=now_ns)),
        "forecast": None if case.forecast is None else to_plain(case.forecast),
        "forecast_text": None if case.forecast is None else forecast_text(case.forecast),
        "restart_lines": restart_lines(totals(evidence.events)),
        "axis": {"from_ns": recorded.axis.from_ns, "to_ns": recorded.axis.to_ns, "columns": recorded.axis.columns},
        "pace": _pace(recorded.steps, recorded.axis),
        "lateness": {"rows": latest},
        "grid": grid_facts(
            recorded.steps, late, evidence.events, recorded.axis, (summary["slowest"] or {}).get("ranks", ())
        ),
        "marks": list(marks(evidence.events, recorded.axis.to_ns)),
        "cost": _cost(recorded, summary),
        "notes": list(notes(evidence, recorded.hosts_read, now_ns)),
        "machines": [
            {"host": host, **usage_in_columns(host, evidence.telemetry.get(host, ()), recorded.axis)}
            for host in evidence.hosts
        ],
        "sensors_missing": list(_sensors_missing(evidence.events)),
        "stacks_text": stack_text(run.id, tuple(case.snapshots.values()), lasts=case.lasts) if case.snapshots else None,
        "told": events,
        "logs": [msgspec.to_builtins(one) for one in recorded.logs],
        "not_judged": list(dict.fromkeys((*recorded.diagnosis.not_judged, *evidence.not_judged))),
        "left_out": left_out,
    }


def _pace(steps: Sequence[StepColumns], axis: TimeAxis) -> dict[str, Any]:
    """The mean step of all ranks, and the longest of any, in each part of the time; null: no step was made there."""
    mean: list[float | None] = []
    longest: list[float | None] = []
    width_seconds = (axis.to_ns - axis.from_ns) / axis.columns / 1e9
    for column in range(axis.columns):
        count = sum(one.counts[column] for one in steps)
        mean.append(sum(one.totals_ns[column] for one in steps) / count / 1e9 if count else None)
        longest.append(max(one.longest_ns[column] for one in steps) / 1e9 if count else None)
        # A step counts for the parts through which it went as well.
        through = int((longest[-1] or 0.0) / width_seconds)
        for earlier_column in range(column - 1, max(column - 1 - through, -1), -1):
            if mean[earlier_column] is not None:
                break
            mean[earlier_column], longest[earlier_column] = mean[column], longest[column]
    return {"mean_seconds": mean, "longest_seconds": longest}


def _sensors_missing(events: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, str]]:
    """What could not be measured on a host, and why, each once."""
    told = [
        tuple(str(event.get(name)) for name in ("host", "sensor", "reason"))
        for event in events
        if event.get("event") == "sensor_missing"
    ]
    for host, sensor, reason in dict.fromkeys(told):
        yield {"host": host, "sensor": sensor, "reason": reason}


def _cost(recorded: Recorded, summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the hosts cost, so far and at the end; None: no price is known."""
    price, wall = recorded.usd_per_hour, summary["wall_seconds"]
    if price is None or wall is None:
        return None
    per_second = price * len(recorded.evidence.hosts) / 3600
    end = recorded.case.forecast
    needed = None if end is None or recorded.evidence.run.finished_ns is not None else end.needed_seconds
    lost = summary["restarts_seconds"]
    return {
        "usd_per_hour": price,
        "price_from": recorded.price_from,
        "usd_so_far": per_second * wall,
        "usd_at_end": None if needed is None else per_second * max(needed, wall),
        "usd_lost": None if lost is None else per_second * lost,
    }


def _lateness(rows: Sequence[LateRow]) -> list[dict[str, Any]]:
    """How much later than the first rank each rank came to the collectives, as a share of the step."""
    return [{"rank": row.rank, "host": row.host, "share": row.share} for row in rows]


def _latest(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of the ranks that came latest, in their order, and what is left out, in words."""
    if len(rows) <= _MOST_ROWS:
        return list(rows), []
    order = sorted(rows, key=lambda row: -max((one for one in row["share"] if one is not None), default=0.0))
    kept = sorted(order[:_MOST_ROWS], key=lambda row: row["rank"])
    return kept, [f"the numbers of how late {len(rows) - _MOST_ROWS} other ranks came; the map has them"]


def _events(events: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """What was told while the run lasted."""
    for event in events:
        text = event_text(event)
        if text is None or not isinstance(event.get("t_ns"), int):
            continue
        name = str(event.get("event"))
        if name == "cause":
            # Its evidence stands in the verdict.
            text = text.partition("\n")[0]
        yield {"t_ns": event["t_ns"], "event": name, "text": text.removeprefix(_OWN), "is_marked": name in _MARKED}
