"""What the page of a run says, as plain data: `paceline.page/1`. Its figures are those of `why`, `top` and the summary."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from paceline.diagnosis.case import Case, StepTiming, from_plain, to_plain
from paceline.diagnosis.restarts import totals
from paceline.diagnosis.time_limit import forecast_text
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import Evidence
from paceline.recording.log_tails import LogEnd
from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.storage.urls import shown_argv
from paceline.views.host_load import HostUsage, RunLoad, usage_in_columns
from paceline.views.live import event_text
from paceline.views.pace import Pace
from paceline.views.restarts import restart_lines
from paceline.views.stack import stack_text
from paceline.views.summary import summary_facts
from paceline.views.top import top_facts
from paceline.views.why import earlier, why_json

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
    logs: Sequence[LogEnd] = ()
    """Ends of logs, those that say most first."""
    not_shown: Sequence[str] = ()
    """What is left out, in words."""
    now_ns: int = 0
    """When the page is made."""


def page_facts(recorded: Recorded) -> dict[str, Any]:
    """Everything that the page says; null is unknown."""
    evidence, case = recorded.evidence, recorded.case
    run, now_ns = evidence.run, recorded.now_ns
    restarts = totals(evidence.events)
    late, late_left_out = _lateness(evidence.events, recorded.axis)
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
        "verdict": why_json(recorded.diagnosis, run, earlier(recorded.diagnosis, case), restarts),
        "summary": summary_facts(evidence, now_ns=now_ns),
        "now": top_facts(evidence, recorded.pace, recorded.loads, now_ns=now_ns),
        "forecast": None if case.forecast is None else to_plain(case.forecast),
        "forecast_text": None if case.forecast is None else forecast_text(case.forecast),
        "restart_lines": restart_lines(restarts),
        "axis": {"from_ns": recorded.axis.from_ns, "to_ns": recorded.axis.to_ns, "columns": recorded.axis.columns},
        "pace": _pace(recorded.steps, recorded.axis),
        "lateness": late,
        "machines": [
            {"host": host, **usage_in_columns(host, evidence.telemetry.get(host, ()), recorded.axis)}
            for host in evidence.hosts
        ],
        "stacks_text": stack_text(run.id, tuple(case.looks.values()), lasts=case.lasts) if case.looks else None,
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


def _lateness(events: Iterable[Mapping[str, Any]], axis: TimeAxis) -> tuple[dict[str, Any], list[str]]:
    """For each rank, how much later than the first rank it came to the collectives, as a share of the step."""
    attempt = 0
    timings: list[StepTiming] = []
    for event in events:
        if event.get("event") != "tempo":
            continue
        try:
            timing = from_plain(StepTiming, event.get("tempo"))
        except msgspec.ValidationError:
            continue
        if timing.attempt > attempt:
            attempt, timings = timing.attempt, []
        if timing.step_seconds > 0 and any(rank.late_seconds is not None for rank in timing.ranks):
            timings.append(timing)
    shares: dict[int, list[float | None]] = {}
    hosts: dict[int, str] = {}
    for timing in timings:
        first = axis.column(timing.at_ns - round(timing.window_seconds * 1e9))
        for rank in timing.ranks:
            hosts[rank.rank] = rank.host
            row = shares.setdefault(rank.rank, [None] * axis.columns)
            if rank.late_seconds is not None:
                row[first : axis.column(timing.at_ns) + 1] = [rank.late_seconds / timing.step_seconds] * (
                    axis.column(timing.at_ns) + 1 - first
                )
    rows: list[dict[str, Any]] = [{"rank": rank, "host": hosts[rank], "share": shares[rank]} for rank in sorted(shares)]
    if len(rows) <= _MOST_ROWS:
        return {"rows": rows}, []
    worst = sorted(rows, key=lambda row: -max((one for one in row["share"] if one is not None), default=0.0))
    kept = sorted(worst[:_MOST_ROWS], key=lambda row: row["rank"])
    return {"rows": kept}, [f"how late {len(rows) - _MOST_ROWS} other ranks came: the {_MOST_ROWS} latest are shown"]


def _events(events: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """What was told while the run lasted."""
    for event in events:
        text = event_text(event)
        if text is None or not isinstance(event.get("t_ns"), int):
            continue
        name = str(event.get("event"))
        yield {"t_ns": event["t_ns"], "event": name, "text": text.removeprefix(_OWN), "is_marked": name in _MARKED}
