"""States of a recording that a reader must know before anything else: it goes on, its agent is gone, a host is missing, it is newer."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from paceline import __version__
from paceline.facts import Evidence, Run, Status
from paceline.views.live import doing
from paceline.views.status import run_lasts
from paceline.views.units import stamp

_GONE = "agent gone: "
_NUMBERS = re.compile(r"\d+")


def notes(evidence: Evidence, hosts_read: Collection[str], now_ns: int) -> Iterable[dict[str, str]]:
    """`kind` and `text` of each state of the recording, the most important one first. `hosts_read`: hosts whose directory was read."""
    run = evidence.run
    if _release(run.version) > _release(__version__):
        yield _note(
            "later_version",
            f"Made by paceline {run.version}, and this page by {__version__}: open the recording with that one. "
            "Here is what can be read.",
        )
    if run.status is Status.FAILED and run.finished_ns is None:
        reason = run.reason.removeprefix(_GONE)
        yield _note(
            "agent_gone", f"The agent of {run.id} is gone: {reason}. What came after its last record is not known."
        )
    if not evidence.events:
        yield _note(
            "no_events", "No event of this run is recorded: how it began, what was told and how it ended is not known."
        )
    if not any(record.step_count for record in evidence.ranks):
        now = next((text for event in reversed(evidence.events) if (text := doing(event))), "")
        yield _note("no_step", "No step has ended yet" + (f": {now}." if now and run_lasts(run) else "."))
    for host in evidence.hosts:
        if hosts_read and host not in hosts_read:
            yield _note(
                "host_missing",
                f"{host}: its part is not in this recording. Give its directory too: paceline report {_name(run)} --dir DIRECTORY",
            )
    if run_lasts(run):
        yield _note("running", f"The run goes on. This is its state of {stamp(now_ns)}.")


def _note(kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, "text": text}


def _name(run: Run) -> str:
    return run.directory or run.id


def _release(version: str | None) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall((version or "").partition("+")[0])[:3]))


def marks(events: Iterable[Mapping[str, Any]], until_ns: int) -> Iterable[dict[str, Any]]:
    """What is drawn over the time: `kind`, `t_ns`, the end of what lasts, and the ranks that the others waited for."""
    stall: dict[str, Any] | None = None
    ranks_of: dict[Any, list[int]] = {}
    for event in events:
        name, at_ns = event.get("event"), event.get("t_ns")
        if not isinstance(at_ns, int):
            continue
        if stall is not None and name in _OVER:
            yield {**stall, "until_ns": at_ns}
            stall = None
        if name == "standstill":
            told = event.get("standstill")
            told = told if isinstance(told, Mapping) else {}
            since, late = told.get("since_ns"), told.get("late")
            ranks = [rank for rank in late if isinstance(rank, int)] if isinstance(late, list) else []
            stall = stall or _mark("standstill", since if isinstance(since, int) else at_ns, ranks)
        elif name == "attempt_started":
            ranks_of = dict(_ranks_of_hosts(event.get("hosts")))
        elif name in _SHORT:
            yield _mark(name, at_ns, ranks_of.get(event.get("host"), []) if name == "host_lost" else [])
    if stall is not None:
        yield {**stall, "until_ns": until_ns}


_OVER = frozenset({"standstill_over", "stopping", "attempt_ended", "run_finished"})
_SHORT = frozenset({"restart", "cause", "stop_asked", "host_lost"})


def _mark(kind: Any, t_ns: int, ranks: list[int]) -> dict[str, Any]:
    return {"kind": str(kind), "t_ns": t_ns, "until_ns": None, "ranks": ranks}


def _ranks_of_hosts(listed: Any) -> Iterable[tuple[str, list[int]]]:
    for one in listed if isinstance(listed, list) else ():
        if (
            isinstance(one, Mapping)
            and isinstance(first := one.get("first_rank"), int)
            and isinstance(one.get("ranks"), int)
        ):
            yield str(one.get("host")), list(range(first, first + one["ranks"]))
