"""How a run ended: its exit code, its status in SageMaker's words, and the rank that failed first. Pure."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import msgspec

from paceline.diagnosis.crash.root_cause import SAVED_AND_LEFT, blame_time_ns, by_blame, how_it_ended, is_symptom
from paceline.facts import RankExit, SecondaryStatus, Status
from paceline.findings import Finding, Severity
from paceline.recording.rank_sets import named_ranks

OWN_CODES = range(200, 206)
MISMATCH_CODE = 205


class StopKind(StrEnum):
    SIGNAL = "signal"
    USER = "user"
    LIMIT = "limit"
    REFUSED = "refused"
    HANG = "hang"
    LIFELINE = "leash"


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to end the job."""

    kind: StopKind
    """Who or what requests the end. The kind decides the status and the exit code."""
    signal: str
    """Name of the signal that the ranks get first, such as SIGTERM."""
    reason: str
    """Why, in a few words, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a run."""

    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    """Exit code of `paceline run`."""
    status: Status
    """Status of the run, in SageMaker's words."""
    secondary_status: SecondaryStatus
    """Secondary status of the run, in SageMaker's words."""
    reason: str
    """Why the run ended so, in one sentence."""
    exits: tuple[RankExit, ...] = ()
    """How the last attempt's ranks ended; the rank that gives `reason` comes first, and other hosts know of it alone. The tuple is empty
    if no rank's failure ended the run."""
    finding: Finding | None = None
    """What a person must know about the end beside the reason; None: nothing."""

    def for_other_hosts(self) -> "Outcome":
        """Without what only the first host shows."""
        return replace(self, exits=tuple(replace(exit, tail="") for exit in self.exits[:1]), finding=None)

    def failure_text(self) -> str:
        """The reason in a few lines for output/failure, complete enough for a reader who sees only this file."""
        first = self.exits[0] if self.exits else None
        if first is None or first.error is None:
            return "\n".join(part for part in (self.reason, first.note if first else "") if part)
        error = first.error
        lines = [f"{self.reason}: {error.message}" if error.message else self.reason]
        if error.file is not None:
            lines.append(f"  {error.file}:{error.line}" + (f" in {error.function}" if error.function else ""))
        if error.source:
            lines.append(f"    {error.source.strip()}")
        return "\n".join(lines)


def completed() -> Outcome:
    """Every rank of the last attempt ended with 0."""
    return Outcome(
        exit_code=0,
        status=Status.COMPLETED,
        secondary_status=SecondaryStatus.COMPLETED,
        reason="every rank ended with 0",
    )


def failed(exits: Sequence[RankExit], *, more: str = "", finding: Finding | None = None) -> Outcome:
    """A rank failed. The exit code is that of the earliest failure that did not follow from another rank's failure.

    `more`: what is said behind the reason.

    Holds: the code is never 0; a script's own 200 to 205 become 1
    """
    ordered = by_blame(exits)
    first = ordered[0]
    return Outcome(
        exit_code=run_code(first.code),
        status=Status.FAILED,
        secondary_status=SecondaryStatus.FAILED,
        reason=f"rank {first.rank} on {first.host} {how_it_ended(first)}{_after_whom(first, exits)}"
        + (f"; {more}" if more else ""),
        exits=ordered,
        finding=finding,
    )


def failed_step(step: int, deaths: int, exits: Sequence[RankExit]) -> Outcome:
    """Ranks were killed `deaths` times while `step` was the newest step that all of them had kept."""
    first = by_blame(exits)[0]
    finding = Finding(
        code="F07",
        severity=Severity.ERROR,
        what=f"step {step} failed {deaths} times: it is the script",
        saw="each time a rank or its loader worker was killed before a later step was kept; "
        f"the last one, rank {first.rank} on {first.host}, {how_it_ended(first)}",
        next="paceline why",
        more="paceline help F07",
    )
    return failed(exits, more=f"{finding.what} (F07)", finding=finding)


def hung_step(step: int, times: int, stop: Stop) -> Outcome:
    """Ranks hung, or were killed, `times` times while `step` was the newest step that all of them had kept; the last time they hung."""
    finding = Finding(
        code="F07",
        severity=Severity.ERROR,
        what=f"step {step} failed {times} times: it is the script",
        saw=f"each time a rank hung or was killed before a later step was kept; the last time: {stop.reason}",
        next="paceline why",
        more="paceline help F07",
    )
    ended = stopped(stop)
    return replace(ended, reason=f"{ended.reason}; {finding.what} (F07)", finding=finding)


def mismatched(exits: Sequence[RankExit]) -> Outcome:
    """A rank found another state or batch after a resume than the one that was kept, and stopped before it trained on it."""
    ordered = sorted(by_blame(exits), key=lambda exit: not exit.state_mismatch)
    first = ordered[0]
    return Outcome(
        exit_code=MISMATCH_CODE,
        status=Status.FAILED,
        secondary_status=SecondaryStatus.FAILED,
        reason=f"rank {first.rank} on {first.host} did not find the state or the batch that was kept (F03)",
        exits=tuple(ordered),
        finding=Finding(
            code="F03",
            severity=Severity.ERROR,
            what="the state or the batch after resuming is not the one that was kept",
            saw=f"rank {first.rank} on {first.host} compared them and stopped; nothing was trained on it",
            next=f"paceline logs --rank {first.rank} --stderr",
            more="paceline help F03",
        ),
    )


def not_put_back(step: int, exits: Sequence[RankExit]) -> Outcome:
    """A rank could not put the saved state back, and the job has nothing else to go on from."""
    ordered = sorted(by_blame(exits), key=lambda exit: not exit.not_put_back)
    first = ordered[0]
    return Outcome(
        exit_code=MISMATCH_CODE,
        status=Status.FAILED,
        secondary_status=SecondaryStatus.FAILED,
        reason=f"the saved state of step {step} could not be put back on rank {first.rank} (F05)",
        exits=tuple(ordered),
        finding=Finding(
            code="F05",
            severity=Severity.ERROR,
            what=f"the saved state of step {step} could not be put back",
            saw=f"rank {first.rank} on {first.host} said why, and ended before it trained; the saved state is unchanged",
            next=f"paceline logs --rank {first.rank} --stderr",
            more="paceline help F05",
        ),
    )


def host_lost(host: str, reason: str) -> Outcome:
    """A host or its agent is lost, and the job cannot or must not continue without it."""
    return Outcome(
        exit_code=200,
        status=Status.FAILED,
        secondary_status=SecondaryStatus.FAILED,
        reason=f"host {host} is lost: {reason}",
    )


def never_arrived(missing: int, wanted: int, waited_seconds: float) -> Outcome:
    """The first attempt never started: hosts that the job needs did not join within the join timeout."""
    return Outcome(
        exit_code=201,
        status=Status.FAILED,
        secondary_status=SecondaryStatus.FAILED,
        reason=f"{missing} of {wanted} hosts never arrived (waited {waited_seconds:.0f} s)",
    )


def stopped(stop: Stop, exits: Sequence[RankExit] = ()) -> Outcome:
    """The job was ended from outside: by its limit, a signal to the agent, `paceline stop`, or a host that cannot run it.

    `exits`: how the ranks ended; those that saved before are named.
    """
    if stop.kind is StopKind.REFUSED:
        return Outcome(exit_code=2, status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, reason=stop.reason)
    if stop.kind is StopKind.HANG:
        return Outcome(exit_code=202, status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, reason=stop.reason)
    secondary = SecondaryStatus.STOPPED
    if stop.kind is StopKind.LIMIT:
        code, secondary = 204, SecondaryStatus.MAX_RUNTIME_EXCEEDED
    elif stop.kind is StopKind.USER:
        code = 128 + signal.SIGTERM
    elif stop.signal == "SIGTERM":
        code, secondary = 204, SecondaryStatus.INTERRUPTED
    else:
        code = 128 + signal.Signals[stop.signal]
    return Outcome(
        exit_code=code, status=Status.STOPPED, secondary_status=secondary, reason=stop.reason + _saved(exits)
    )


def _saved(exits: Sequence[RankExit]) -> str:
    saved = [exit.rank for exit in exits if exit.note == SAVED_AND_LEFT]
    return f"; {named_ranks(saved)} {SAVED_AND_LEFT}" if saved else ""


def run_code(code: int) -> int:
    """The run's exit code for a rank's exit code: 128+n for signal n. 200 to 205 are paceline's own codes and become 1."""
    if code < 0:
        return 128 - code
    return 1 if code in OWN_CODES else code


def _after_whom(first: RankExit, exits: Sequence[RankExit]) -> str:
    """Names the rank that ended early, if the first error is only that its peers lost the connection to it."""
    left = [exit for exit in exits if exit.code == 0 and exit.time_ns <= blame_time_ns(first)]
    if not left or not is_symptom(first):
        return ""
    earliest = min(left, key=lambda exit: exit.time_ns)
    return f" after rank {earliest.rank} on {earliest.host} had ended with 0"
