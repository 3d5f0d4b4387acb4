"""The states of a training job from Starting to its end: a pure function from a state and an event to the next state.

    Starting -> Pending -> Downloading -> Training -> Uploading -> Completed
                                                  \\-> Stopping -> Uploading -> Stopped, or MaxRuntimeExceeded
    any of them -> Failed

Times are seconds since 1970, UTC.
"""

from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from paceline.contract.describe import REASON_CHARACTERS
from paceline.facts import SecondaryStatus as Secondary
from paceline.facts import Status

MESSAGES = {
    Secondary.STARTING: "Starting the training job",
    Secondary.PENDING: "Waiting for the hosts of this machine",
    Secondary.DOWNLOADING: "Downloading input data",
    Secondary.TRAINING: "Training in-progress",
    Secondary.STOPPING: "Stopping the training job",
    Secondary.UPLOADING: "Uploading generated training model",
    Secondary.COMPLETED: "Training job completed",
    Secondary.STOPPED: "Training job stopped",
    Secondary.FAILED: "Training job failed",
    Secondary.MAX_RUNTIME_EXCEEDED: "Training job runtime exceeded MaxRuntimeInSeconds provided",
}
_ENDED = (Status.COMPLETED, Status.FAILED, Status.STOPPED)
_ORDER = (Secondary.STARTING, Secondary.PENDING, Secondary.DOWNLOADING, Secondary.TRAINING)


class Transition(msgspec.Struct, frozen=True, array_like=True):
    """One secondary status and its duration. `ended` is None for the current status. It is stored as a list, in this order."""

    status: Secondary
    started: float
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJobState:
    """The state of a job."""

    status: Status = Status.IN_PROGRESS
    """Its status."""
    secondary: Secondary = Secondary.STARTING
    """Its secondary status."""
    transitions: tuple[Transition, ...] = ()
    """[secondary status, when it began, when it ended], the oldest first."""
    created: float
    """When the job was created, in seconds since 1970, as all times here."""
    modified: float
    """When the state changed last."""
    training_started: float | None = None
    """When Training began."""
    ended: float | None = None
    """When the job ended."""
    why_stopping: Secondary | None = None
    """The final status of a job that is stopping."""
    reason: str = ""
    """The reason of a failure."""

    @property
    def over(self) -> bool:
        """Whether the job has ended, so that no other state can follow."""
        return self.status in _ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReached:
    """The job reached Pending, Downloading, Training or Uploading."""

    to: Secondary


@dataclass(frozen=True, slots=True)
class JobStopRequested:
    """A client asked to stop the job."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """MaxRuntimeInSeconds have passed since Training began."""


@dataclass(frozen=True, slots=True)
class Finished:
    """All hosts have ended, and the results are uploaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailed:
    """The job failed, for `reason`."""

    reason: str


Event = StageReached | JobStopRequested | LimitReached | Finished | StageFailed


def created(now: float) -> TrainingJobState:
    """The state of a new job."""
    return TrainingJobState(
        created=now, modified=now, transitions=(Transition(status=Secondary.STARTING, started=now),)
    )


def step(state: TrainingJobState, event: Event, now: float) -> TrainingJobState:
    """The next state after an event. An event without a meaning in this state changes nothing.

    Holds:   a final state never changes; every transition ends when the next one starts; a job whose stop was requested ends
             neither at a time limit nor as a failure
    """
    if state.over:
        return state
    match event:
        case StageReached(to=to):
            return _moved(state, to, now)
        case JobStopRequested():
            return _stopping(state, Secondary.STOPPED, now)
        case LimitReached():
            return _stopping(state, Secondary.MAX_RUNTIME_EXCEEDED, now)
        case Finished():
            last = state.why_stopping or Secondary.COMPLETED
            status = Status.COMPLETED if last is Secondary.COMPLETED else Status.STOPPED
            return _over(state, status, last, now)
        case StageFailed(reason=reason):
            return replace(_over(state, Status.FAILED, Secondary.FAILED, now), reason=reason[:REASON_CHARACTERS])


def training_seconds(state: TrainingJobState) -> int | None:
    """Whole seconds from Training to the end; None before the end, or if the job never trained."""
    if state.training_started is None or state.ended is None:
        return None
    return max(round(state.ended - state.training_started), 1)


def _moved(state: TrainingJobState, to: Secondary, now: float) -> TrainingJobState:
    known = to is Secondary.UPLOADING or (
        to in _ORDER and state.secondary in _ORDER and _ORDER.index(to) > _ORDER.index(state.secondary)
    )
    if not known or state.secondary is to or (state.why_stopping is not None and to is not Secondary.UPLOADING):
        return state
    moved = _entered(state, to, now)
    return replace(moved, training_started=now) if to is Secondary.TRAINING else moved


def _stopping(state: TrainingJobState, why: Secondary, now: float) -> TrainingJobState:
    if state.why_stopping is not None:
        return state
    if why is Secondary.MAX_RUNTIME_EXCEEDED and state.secondary is not Secondary.TRAINING:
        return state
    stopping = replace(state, status=Status.STOPPING, why_stopping=why)
    return _entered(stopping, Secondary.STOPPING, now)


def _over(state: TrainingJobState, status: Status, last: Secondary, now: float) -> TrainingJobState:
    over = _entered(state, last, now)
    *before, final = over.transitions
    return replace(over, status=status, ended=now, transitions=(*before, structs.replace(final, ended=now)))


def _entered(state: TrainingJobState, secondary: Secondary, now: float) -> TrainingJobState:
    earlier = tuple(one if one.ended is not None else structs.replace(one, ended=now) for one in state.transitions)
    transitions = (*earlier, Transition(status=secondary, started=now))
    return replace(state, secondary=secondary, transitions=transitions, modified=now)
