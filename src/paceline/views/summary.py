"""The end of a run in a few lines: how it ended, how long it took, where the time went, what could not be judged."""

from collections.abc import Sequence
from typing import Any

from paceline.facts import Evidence, RankExit, SecondaryStatus, Status
from paceline.views.headline import headline
from paceline.views.pace import TimeSpent, pace, time_spent
from paceline.views.table import crop
from paceline.views.units import count, duration, milliseconds, percent, times

_BOLD, _GREEN, _RED, _RESET = "\x1b[1m", "\x1b[1;32m", "\x1b[1;31m", "\x1b[0m"
_MOST_NOT_JUDGED = 5


def summary_text(
    evidence: Evidence,
    exits: Sequence[RankExit] = (),
    *,
    now_ns: int | None = None,
    width: int = 100,
    color: bool = False,
    ascii_only: bool = False,
) -> str:
    """The end-of-run summary. `exits` are the failed ranks, the one to blame first; `now_ns` ends the clock of a run that lasts."""
    run = evidence.run
    spent = time_spent(evidence.ranks, wall_seconds(evidence, now_ns))
    lines = [_first_line(evidence, spent, color)]
    cause = headline(exits, width=width - 2, ascii_only=ascii_only)
    lines += [f"  {line}" for line in cause.splitlines()]
    if run.reason and not cause and run.status is not Status.COMPLETED:
        lines.append(_row("because", run.reason))
    lines.append(_row("time", _where_time_went(spent)))
    restarts = max((record.attempt for record in evidence.ranks), default=0)
    if restarts:
        lines.append(_row("restarts", str(restarts)))
    slowest = _slowest(evidence, ascii_only)
    if slowest:
        lines.append(_row("slowest", slowest))
    lines += [_row("not judged", text) for text in _capped(evidence.not_judged)]
    lines.append(_row("logs", f"paceline logs {run.id}   {run.directory}"))
    return "\n".join(lines if color else [crop(line, width, ascii_only=ascii_only) for line in lines])


def summary_facts(evidence: Evidence, *, now_ns: int | None = None) -> dict[str, Any]:
    """The same for a program; a value that is not judged is null."""
    run = evidence.run
    spent = time_spent(evidence.ranks, wall_seconds(evidence, now_ns))
    overall = pace(evidence.ranks)
    return {
        "schema": "paceline.summary/1",
        "run": run.id,
        "status": str(run.status),
        "secondary_status": str(run.secondary_status),
        "exit_code": run.exit_code,
        "reason": run.reason,
        "wall_seconds": spent.wall_seconds,
        "step_count": spent.step_count,
        "step_seconds": spent.step_seconds,
        "compute_seconds": spent.compute_seconds,
        "data_seconds": spent.data_seconds,
        "communication_exposed_seconds": spent.communication_seconds,
        "checkpoint_seconds": spent.checkpoint_seconds,
        "lost_seconds": spent.lost_seconds,
        "slowest": None
        if overall.slowest is None
        else {"host": overall.slowest.host, "rank": overall.slowest.rank, "times_median": overall.spread},
        "not_judged": list(evidence.not_judged),
        "directory": run.directory,
    }


def wall_seconds(evidence: Evidence, now_ns: int | None) -> float | None:
    """From the start to the end, or to now while the run lasts; None when either is unknown."""
    run = evidence.run
    end = run.finished_ns
    if end is None and run.status in (Status.IN_PROGRESS, Status.STOPPING):
        end = now_ns
    return None if end is None or not run.started_ns else (end - run.started_ns) / 1e9


def _first_line(evidence: Evidence, spent: TimeSpent, color: bool) -> str:
    run = evidence.run
    word = {Status.COMPLETED: "done", Status.FAILED: "failed", Status.STOPPED: "stopped"}.get(run.status, "running")
    if color:
        paint = {"done": _GREEN, "failed": _RED}.get(word, _BOLD)
        word = f"{paint}{word}{_RESET}"
    parts = [f"{word}  {run.id}"]
    if run.exit_code is not None:
        parts.append(f"exit {run.exit_code}")
    elif run.status is Status.FAILED:
        parts.append("exit not judged")
    if run.secondary_status in (SecondaryStatus.MAX_RUNTIME_EXCEEDED, SecondaryStatus.INTERRUPTED):
        parts.append(str(run.secondary_status))
    parts.append(f"in {duration(spent.wall_seconds)}" if spent.wall_seconds is not None else "duration not judged")
    if spent.step_count:
        parts.append(f"{count(spent.step_count)} {'step' if spent.step_count == 1 else 'steps'}")
        if spent.step_seconds:
            parts.append(f"{milliseconds(spent.step_seconds / spent.step_count)}/step")
    return "  ".join(parts)


def _where_time_went(spent: TimeSpent) -> str:
    if spent.step_seconds is None:
        return "not judged: no rank reported steps"
    whole = spent.wall_seconds if spent.wall_seconds else spent.step_seconds
    parts = [
        f"{name} {percent(seconds / whole, 1) if seconds is not None and whole else 'not judged'}"
        for name, seconds in (
            ("compute", spent.compute_seconds),
            ("data", spent.data_seconds),
            ("exposed comm", spent.communication_seconds),
            ("checkpoint", spent.checkpoint_seconds),
            ("lost", spent.lost_seconds),
        )
    ]
    lost = " (start-up, restarts, teardown)" if spent.lost_seconds is not None else ""
    return "  ".join(parts) + lost


def _slowest(evidence: Evidence, ascii_only: bool) -> str:
    overall = pace(evidence.ranks)
    if overall.slowest is None:
        return ""
    where = f"rank {overall.slowest.rank} on {overall.slowest.host}"
    return f"{where}, {times(overall.spread, ascii_only=ascii_only)} the median rank's own time a step"


def _row(name: str, text: str) -> str:
    return f"  {name:<10}  {text}"


def _capped(texts: Sequence[str]) -> list[str]:
    if len(texts) <= _MOST_NOT_JUDGED:
        return list(texts)
    rest = len(texts) - _MOST_NOT_JUDGED + 1
    return [*texts[: _MOST_NOT_JUDGED - 1], f"and {rest} more: paceline top --once --json"]
