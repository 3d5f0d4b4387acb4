"""What `--json` prints: the text of a document, and the keys that all documents about a run have."""

import json
from typing import Any

import msgspec

from paceline.diagnosis.restart_costs import RestartTotals
from paceline.diagnosis.run_state import RunState
from paceline.facts import Run, Status
from paceline.findings import CauseFinding
from paceline.views.pace import Pace
from paceline.views.restarts import restarts_facts


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A run, for programs."""

    run_id: str | None
    """Id of the run; None: only logs were read."""
    status: Status | None
    """`InProgress`, `Completed`, `Failed`, `Stopping` or `Stopped`; None: it is not known."""
    secondary_status: str | None
    """The phase of a run that lasts, such as `Training`; else how it ended, such as `MaxRuntimeExceeded`."""
    restart_count: int | None
    """How often the ranks were started again; None: only logs were read."""
    resume_count: int | None
    """How many of these restarts went on from kept state."""
    lost_step_count: int | None
    """Steps that are made again because of these restarts; None: it is not known."""


class RunNowDocument(RunDocument, frozen=True, kw_only=True):
    """A run at one moment, for programs."""

    reason: str
    """Why it ended so, in one sentence."""
    state: str
    """running, waits, stands still, hangs, stopping, done, stopped, failed, dead or unknown."""
    stands_still_since_ns: int | None
    """Of a run that lasts; None: it makes steps."""
    finding: CauseFinding | None
    """What explains the state, as it was told; None: nothing is known."""
    step: int | None
    """Newest step of the rank that is furthest behind."""
    step_seconds: float | None
    """Duration of one step."""
    ranks_here: int | None
    """Number of ranks that have arrived; None once the run is over."""
    ranks_wanted: int | None
    """Number of ranks that the job needs."""


def json_text(document: Any) -> str:
    """The document in one line of ASCII."""
    return json.dumps(msgspec.to_builtins(document))


def as_read(document: Any) -> dict[str, Any]:
    """The document as a program reads it from its text: lists, and no tuples."""
    read: dict[str, Any] = json.loads(json_text(document))
    return read


def run_keys(run: Run, restarts: RestartTotals) -> dict[str, Any]:
    """The fields of RunDocument."""
    status = {"status": run.status, "secondary_status": run.secondary_status}
    return {"run_id": run.id, **status, **restarts_facts(restarts)}


def run_now_keys(run: Run, restarts: RestartTotals, state: RunState, now: Pace) -> dict[str, Any]:
    """The fields of RunNowDocument."""
    return run_keys(run, restarts) | {
        "reason": run.reason,
        "state": state.word,
        "stands_still_since_ns": None if state.lasting_stall is None else state.lasting_stall.since_ns,
        "finding": state.finding,
        "step": now.step,
        "step_seconds": now.step_seconds,
        "ranks_here": now.ranks_here,
        "ranks_wanted": now.ranks_wanted,
    }
