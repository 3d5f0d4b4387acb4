"""The list of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import msgspec

from paceline.diagnosis.restart_costs import RestartTotals
from paceline.diagnosis.run_state import RunState
from paceline.facts import RankRecord, Run, SecondaryStatus, Status
from paceline.views.documents import RunNowDocument, run_now_keys
from paceline.views.pace import pace
from paceline.views.report.redaction import command_without_secrets
from paceline.views.restarts import restarts_text
from paceline.views.run_state import state_note
from paceline.views.status import ranks_text, run_lasts
from paceline.views.table import table
from paceline.views.units import UNKNOWN, bare_milliseconds, count, duration

_HEADERS = ("RUN", "NAME", "STATUS", "RANKS", "STEP", "MS/STEP", "AGE", "NOTE")
HERE = "here"
"""The place of a run of this directory."""
# Position of the engine's column, which is shown if a run has an engine.
_ENGINE = 2
_NUMBERS = frozenset({"RANKS", "STEP", "MS/STEP", "AGE"})


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run of the list, with the last state of its ranks."""

    run: Run
    """The run."""
    state: RunState
    """What is the matter with it."""
    ranks: tuple[RankRecord, ...]
    """What its ranks last reported."""
    engine: str = ""
    """The engine that has the job; "" for a run that was started by hand."""
    restarts: RestartTotals = field(default_factory=RestartTotals)
    """How often its ranks were started again, and what that cost."""


def ps_text(
    runs: Sequence[ListedRun], now_ns: int, *, here: str = "", width: int | None = 100, ascii_only: bool = False
) -> str:
    """One line per run, in the order given. `here`: the folder of this directory's runs; others get a column that says where they are."""
    if not runs:
        return "no runs: start one with `paceline run train.py`"
    headers, rows = ps_rows(runs, now_ns)
    places = [where_text(listed.run.directory, here) for listed in runs]
    if any(place != HERE for place in places):
        headers = (*headers[:-1], "WHERE", headers[-1])
        rows = [(*row[:-1], place, row[-1]) for row, place in zip(rows, places, strict=True)]
    return table(headers, rows, right=_NUMBERS, width=width, ascii_only=ascii_only)


def where_text(directory: str, here: str) -> str:
    """ "here", or the directory in which the run was started, as far as its recording lies in the usual place below it."""
    path = PurePath(directory)
    if not here or not directory or path.is_relative_to(here):
        return HERE
    return str(PurePath(*path.parts[: path.parts.index(".paceline")])) if ".paceline" in path.parts else directory


def ps_rows(runs: Sequence[ListedRun], now_ns: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The names of the columns, and the columns of each run."""
    rows = [_row(listed, now_ns) for listed in runs]
    headers: tuple[str, ...] = _HEADERS
    if any(listed.engine for listed in runs):
        headers = (*headers[:_ENGINE], "ENGINE", *headers[_ENGINE:])
        rows = [
            (*row[:_ENGINE], listed.engine or UNKNOWN, *row[_ENGINE:]) for row, listed in zip(rows, runs, strict=True)
        ]
    return headers, rows


class ListedRunDocument(RunNowDocument, frozen=True, kw_only=True):
    """One run of the list, for programs."""

    name: str
    """Name of the job, `--name` or the script's own."""
    engine: str | None
    """The engine that has the job; None: it was started by hand."""
    exit_code: int | None
    """Exit code of `paceline run`; None while it lasts, or if nobody saw its end."""
    started_ns: int | None
    """When it started, Unix time in ns."""
    finished_ns: int | None
    """When it ended, Unix time in ns; None: it lasts, or its agent left no word."""
    first_host: str
    """Name of the first host."""
    agent_pid: int | None
    """Process id of the agent on that host."""
    directory: str
    """The directory of the recording."""
    command: tuple[str, ...]
    """The command line, one word an element, without secrets."""


class RunsDocument(msgspec.Struct, frozen=True, tag_field="schema", tag="paceline.ps/2"):
    """The list of runs, for programs."""

    runs: tuple[ListedRunDocument, ...]
    """The runs, the newest first."""


def ps_facts(runs: Sequence[ListedRun]) -> RunsDocument:
    """The same for a program; unknown values are None."""
    return RunsDocument(tuple(_facts(listed) for listed in runs))


def _facts(listed: ListedRun) -> ListedRunDocument:
    run, now = listed.run, pace(listed.ranks, ended=not run_lasts(listed.run))
    return ListedRunDocument(
        **run_now_keys(run, listed.restarts, listed.state, now),
        name=run.name,
        engine=listed.engine or None,
        exit_code=run.exit_code,
        started_ns=run.started_ns or None,
        finished_ns=run.finished_ns,
        first_host=run.first_host,
        agent_pid=run.agent_pid,
        directory=run.directory,
        command=tuple(command_without_secrets(list(run.command))),
    )


def _row(listed: ListedRun, now_ns: int) -> tuple[str, ...]:
    run, now = listed.run, pace(listed.ranks, ended=not run_lasts(listed.run))
    ranks = ranks_text(now) if listed.ranks else UNKNOWN
    age = duration((now_ns - run.started_ns) / 1e9) if run.started_ns else UNKNOWN
    return (
        run.id,
        run.name or UNKNOWN,
        str(run.status),
        ranks,
        count(now.step),
        UNKNOWN if listed.state.lasting_stall is not None else bare_milliseconds(now.step_seconds),
        age,
        note_text(listed, now_ns),
    )


def note_text(listed: ListedRun, now_ns: int) -> str:
    """What is the matter, the restarts, the phase of a run that lasts, and how it ended if it did not end well."""
    run = listed.run
    parts = [state_note(listed.state, now_ns), restarts_text(listed.restarts)]
    if run_lasts(run):
        parts.append("" if run.secondary_status is SecondaryStatus.TRAINING else str(run.secondary_status))
    elif run.status is not Status.COMPLETED:
        parts += [f"exit {run.exit_code}" if run.exit_code is not None else "", run.reason]
    return "  ".join(filter(None, parts))
