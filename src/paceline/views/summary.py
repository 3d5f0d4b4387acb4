"""The end of a run in a few lines: how it ended, how long it took, where the time went, what could not be judged."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from paceline.diagnosis.restart_costs import totals
from paceline.diagnosis.run_state import run_state
from paceline.diagnosis.slow.slowdown import slowest_ranks
from paceline.diagnosis.slow.steady_step import SteadyStep, steady_step
from paceline.diagnosis.time_breakdown import TimeSpent, time_spent
from paceline.facts import Evidence, RankExit, Run, SecondaryStatus, Status
from paceline.findings import CauseFinding
from paceline.recording.rank_sets import named_ranks
from paceline.terminal_text import BOLD, BOLD_GREEN, BOLD_RED, painted
from paceline.views.documents import RunDocument, run_keys
from paceline.views.headline import headline
from paceline.views.pace import pace, samples_per_second
from paceline.views.restarts import restarts_text
from paceline.views.status import run_lasts
from paceline.views.table import crop
from paceline.views.units import counted, duration, milliseconds, percent, samples_rate
from paceline.views.why import finding_short

_MOST_NOT_JUDGED = 5
# If less time follows the start-up, no lost time is reported: the end of a process alone takes a tenth of it.
_LONG_ENOUGH_SECONDS = 60.0
_SHOWN_SECONDS = 0.05
_MOST_CAUSES = 2
_EXCEPTION = "C01"


def summary_text(
    evidence: Evidence,
    exits: Sequence[RankExit] = (),
    *,
    now_ns: int | None = None,
    width: int | None = 100,
    color: bool = False,
    ascii_only: bool = False,
) -> str:
    """The end-of-run summary. `exits` are the failed ranks, the one to blame first; `now_ns` ends the clock of a run that lasts."""
    run = evidence.run
    spent = _spent(evidence, now_ns)
    lines = [_first_line(evidence, spent, color)]
    cause = headline(exits, width=None if width is None else width - 2, ascii_only=ascii_only)
    told = [_row("cause" if place == 0 else "", text) for place, text in enumerate(_causes(evidence, bool(cause)))]
    first = [f"  {line}" for line in cause.splitlines()]
    if run.reason and not cause and run.status is not Status.COMPLETED:
        first.append(_row("because", run.reason))
    lines += [*told, *first] if _blames_another(evidence, exits) else [*first, *told]
    if spent.startup_seconds and spent.startup_seconds >= _SHOWN_SECONDS:
        lines.append(_row("start-up", f"{duration(spent.startup_seconds)} before the first step"))
    lines.append(_row("time", _where_time_went(spent)))
    lines += [_row("" if place else "gradients", text) for place, text in enumerate(_exchange(evidence))]
    if lost := _lost(spent):
        lines.append(_row("lost", lost))
    if restarts := restarts_text(totals(evidence.events)):
        lines.append(_row("restarts", restarts))
    slowest = _slowest(evidence)
    if slowest:
        lines.append(_row("slowest", slowest))
    lines += [_row("not judged", text) for text in _capped(evidence.not_judged)]
    lines.append(_row("logs", f"paceline logs {run.id}   {run.directory}"))
    return "\n".join([lines[0], *(crop(line, width, ascii_only=ascii_only) for line in lines[1:])])


class SlowestRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that the others wait for."""

    host: str
    """Host of the first of them."""
    rank: int
    """The first of them."""
    spread: float | None
    """The slowest rank's own time of a step over the median rank's."""
    ranks: tuple[int, ...]
    """Their global ranks."""
    hosts: tuple[str, ...]
    """Names of their hosts."""
    waited_seconds: float
    """By which they delay each step."""
    waited_seconds_low: float
    """Lower end of the interval."""
    waited_seconds_high: float
    """Upper end of the interval."""
    step_seconds: float
    """Duration of one step."""


class SummaryDocument(RunDocument, frozen=True, kw_only=True, tag_field="schema", tag="paceline.summary/2"):
    """The end of a run, for programs. None is not judged."""

    exit_code: int | None
    """Exit code of `paceline run`; None while it lasts, or if nobody saw its end."""
    reason: str
    """Why it ended so, in one sentence."""
    wall_seconds: float | None
    """Time from the start of the run to its end, or to now."""
    step_count: int | None
    """Number of steps."""
    step_seconds: float | None
    """Duration of one step: the median of steady steps."""
    steady_step_count: int | None
    """Number of these steps."""
    samples_per_second: float | None
    """Samples of all ranks in a second, if batches are full; None where other loaders than that of steps are read."""
    in_steps_seconds: float | None
    """Time of all steps: the four below together."""
    compute_seconds: float | None
    """In steps: computation."""
    loading_seconds: float | None
    """In steps: waiting for data."""
    exposed_communication_seconds: float | None
    """In steps: communication that no computation hides."""
    checkpoint_seconds: float | None
    """In steps: saving checkpoints."""
    lost_seconds: float | None
    """Time outside steps: the three below together."""
    startup_seconds: float | None
    """Time from the start of the run to its first step."""
    restarts_seconds: float | None
    """Between attempts."""
    end_seconds: float | None
    """After the last step."""
    slowest: SlowestRanks | None
    """The ranks that the others wait for; None: none for certain."""
    gradients: tuple[str, ...]
    """How gradients were exchanged, in words."""
    network: Mapping[str, Any] | None
    """The network of local hosts; None: this machine's own."""
    not_judged: tuple[str, ...]
    """What could not be looked at, and why."""
    findings: tuple[CauseFinding, ...]
    """Why the run ended as it did."""
    directory: str
    """The directory of the recording."""


def summary_facts(evidence: Evidence, *, now_ns: int | None = None) -> SummaryDocument:
    """The same for a program."""
    run = evidence.run
    spent = _spent(evidence, now_ns)
    steady = steady_step(evidence.ranks)
    return SummaryDocument(
        **run_keys(run, totals(evidence.events)),
        exit_code=run.exit_code,
        reason=run.reason,
        wall_seconds=spent.wall_seconds,
        step_count=spent.step_count,
        step_seconds=None if steady is None else steady.seconds,
        steady_step_count=None if steady is None else steady.count,
        samples_per_second=_samples_per_second(evidence, steady),
        in_steps_seconds=spent.step_seconds,
        compute_seconds=spent.compute_seconds,
        loading_seconds=spent.data_seconds,
        exposed_communication_seconds=spent.communication_seconds,
        checkpoint_seconds=spent.checkpoint_seconds,
        lost_seconds=spent.lost_seconds,
        startup_seconds=spent.startup_seconds,
        restarts_seconds=spent.restarts_seconds,
        end_seconds=spent.end_seconds,
        slowest=_slowest_facts(evidence),
        gradients=tuple(_exchange(evidence)),
        network=_network(evidence),
        not_judged=tuple(evidence.not_judged),
        findings=run_state(evidence.run, evidence.events).findings,
        directory=run.directory,
    )


def wall_seconds(run: Run, now_ns: int | None) -> float | None:
    """From the start to the end, or to now while the run lasts; None when either is unknown."""
    end_ns = _end_ns(run, now_ns)
    return None if end_ns is None or not run.started_ns else (end_ns - run.started_ns) / 1e9


def _end_ns(run: Run, now_ns: int | None) -> int | None:
    return now_ns if run.finished_ns is None and run_lasts(run) else run.finished_ns


def _spent(evidence: Evidence, now_ns: int | None) -> TimeSpent:
    return time_spent(evidence.ranks, evidence.run.started_ns, _end_ns(evidence.run, now_ns))


def _first_line(evidence: Evidence, spent: TimeSpent, color: bool) -> str:
    run = evidence.run
    word = {Status.COMPLETED: "done", Status.FAILED: "failed", Status.STOPPED: "stopped"}.get(run.status, "running")
    if color:
        word = painted({"done": BOLD_GREEN, "failed": BOLD_RED}.get(word, BOLD), word)
    parts = [f"{word}  {run.id}"]
    if run.exit_code is not None:
        parts.append(f"exit {run.exit_code}")
    elif run.status is Status.FAILED:
        parts.append("exit not judged")
    if run.secondary_status in (SecondaryStatus.MAX_RUNTIME_EXCEEDED, SecondaryStatus.INTERRUPTED):
        parts.append(str(run.secondary_status))
    parts.append(f"in {duration(spent.wall_seconds)}" if spent.wall_seconds is not None else "duration not judged")
    if spent.step_count:
        parts.append(counted(spent.step_count, "step"))
        if spent.step_count > 1 and (steady := steady_step(evidence.ranks)) is not None:
            parts.append(f"{milliseconds(steady.seconds)}/step")
            if (speed := _samples_per_second(evidence, steady)) is not None:
                parts.append(samples_rate(speed))
    return "  ".join(parts)


def _samples_per_second(evidence: Evidence, steady: SteadyStep | None) -> float | None:
    newest = max((record.attempt for record in evidence.ranks), default=0)
    records = [record for record in evidence.ranks if record.attempt == newest]
    return None if steady is None else samples_per_second(records, steady.seconds)


def _causes(evidence: Evidence, has_headline: bool) -> list[str]:
    """One line for each; an exception is in the headline already."""
    told = run_state(evidence.run, evidence.events).findings
    found = [cause for cause in told if cause.code != _EXCEPTION or not has_headline]
    lines = [finding_short(finding) for finding in found[:_MOST_CAUSES]]
    return [*lines, f"more: paceline why {evidence.run.id}"] if lines else []


def _blames_another(evidence: Evidence, exits: Sequence[RankExit]) -> bool:
    """Whether the failed ranks are victims of a rank that ended with 0 or still waits: the cause then comes before their errors."""
    failed = {exit.rank for exit in exits if exit.code != 0}
    causes = run_state(evidence.run, evidence.events).findings
    return bool(failed) and bool(causes) and all(cause.ranks and not failed & set(cause.ranks) for cause in causes)


def _where_time_went(spent: TimeSpent) -> str:
    """Fractions of the time from the first step on."""
    if spent.step_seconds is None:
        return "not judged: no rank reported steps"
    startup = spent.startup_seconds or 0.0
    whole = spent.wall_seconds - startup if spent.wall_seconds else spent.step_seconds
    lost = None if spent.lost_seconds is None else max(spent.lost_seconds - startup, 0.0)
    parts = [
        f"{name} {percent(seconds / whole, 1) if seconds is not None and whole > 0 else 'not judged'}"
        for name, seconds in (
            ("compute", spent.compute_seconds),
            ("data", spent.data_seconds),
            ("exposed comm", spent.communication_seconds),
            ("checkpoint", spent.checkpoint_seconds),
            ("lost", lost),
        )
    ]
    return "  ".join(parts)


def _exchange(evidence: Evidence) -> list[str]:
    """The ranks' report about their strategy in the newest attempt. For `auto` the last one, with the measured time."""
    said: list[str] = []
    for event in evidence.events:
        if event["event"] == "attempt_started":
            said = []
        elif event["event"] == "notice" and event.get("topic") == "gradients":
            said.append(str(event.get("text")).removeprefix("--gradients "))
    chosen = [text for text in said if text.startswith("auto: ")]
    return chosen[-1:] or said[:_MOST_CAUSES]


def _network(evidence: Evidence) -> dict[str, Any] | None:
    """The network of local hosts, requested and measured; None if they use this machine's own."""
    found = next((event for event in evidence.events if event["event"] == "network"), None)
    return None if found is None else {name: found.get(name) for name in ("asked", "zones", "delivered")}


def _lost(spent: TimeSpent) -> str:
    """Where the lost time is; only if it is at least a tenth of a long enough run without its start-up."""
    parts = (("in restarts", spent.restarts_seconds), ("after the last step", spent.end_seconds))
    lost = sum(seconds or 0.0 for _, seconds in parts)
    trained = (spent.wall_seconds or 0.0) - (spent.startup_seconds or 0.0)
    if trained < _LONG_ENOUGH_SECONDS or lost < trained / 10:
        return ""
    return ", ".join(
        f"{duration(seconds)} {where}" for where, seconds in parts if seconds is not None and seconds >= _SHOWN_SECONDS
    )


def _slowest(evidence: Evidence) -> str:
    """The ranks that delayed the others at the end; nothing if it could be chance."""
    found = slowest_ranks(evidence.events)
    if found is None:
        return ""
    late, timing = found
    where = ", ".join(dict.fromkeys(rank.host for rank in late.ranks))
    span = f"{milliseconds(late.low_seconds)} to {milliseconds(late.high_seconds)}"
    return f"{named_ranks(late.numbers)} on {where}: the others wait {span} of each step of {milliseconds(timing.step_seconds)}"


def _slowest_facts(evidence: Evidence) -> SlowestRanks | None:
    found = slowest_ranks(evidence.events)
    if found is None:
        return None
    late, timing = found
    first, overall = late.ranks[0], pace(evidence.ranks)
    return SlowestRanks(
        host=first.host,
        rank=first.rank,
        spread=overall.spread if overall.slowest is not None and overall.slowest.rank == first.rank else None,
        ranks=tuple(late.numbers),
        hosts=tuple(dict.fromkeys(rank.host for rank in late.ranks)),
        waited_seconds=late.gain_seconds,
        waited_seconds_low=late.low_seconds,
        waited_seconds_high=late.high_seconds,
        step_seconds=timing.step_seconds,
    )


def _row(name: str, text: str) -> str:
    return f"  {name:<10}  {text}"


def _capped(texts: Sequence[str]) -> list[str]:
    if len(texts) <= _MOST_NOT_JUDGED:
        return list(texts)
    rest = len(texts) - _MOST_NOT_JUDGED + 1
    return [*texts[: _MOST_NOT_JUDGED - 1], f"and {rest} more: paceline top --once --json"]
