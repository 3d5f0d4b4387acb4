"""The path of `auto` from plain DDP to a strategy, and back if the strategy is slower. Pure: measurements go in, decisions come out.

Plain DDP is measured first. A strategy that is predicted to be clearly faster is tried and measured. It stays if it is faster
by a wide margin. If it is a little faster, it is compared with plain DDP once more, because early steps are slow for other reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from .prediction import PLAIN, MeasuredNetwork, PredictedChoice, StepProfile, choose

# Steps that are not counted. DDP exchanges one large bucket in the first, and makes its buckets anew in the second; new connections
# need some more until TCP has opened their windows.
_FIRST_STEPS = 2
_FIRST_STEPS_OF_A_TRIAL = 4
# After how many counted steps all ranks look at their times together, until they have enough of them.
LOOKS = (2, 4, 8, 16, 32, 64)
_ENOUGH_SECONDS = 1.0
_ENOUGH_SECONDS_OF_FEW = 10.0
# Faster by this much needs no second look at plain DDP; less than the other is not worth keeping.
_WIDE = 1.3
_KEPT = 1.03
_MOST_TRIALS = 2


class TuningPhase(Enum):
    PLAIN = "plain DDP before anything is tried"
    TRIAL = "a strategy is tried"
    AGAIN = "plain DDP again, to compare"
    OVER = "decided"


@dataclass(frozen=True, kw_only=True)
class PhaseTiming:
    """Times of one phase's steps, agreed among the ranks."""

    step_seconds: float
    """Step time of the slowest rank."""
    backward_seconds: float = 0.0
    """Time in which its gradients become ready."""
    exposed_seconds: float | None = None
    """Least exposed communication of any rank; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The next thing to do."""

    choice: PredictedChoice | None
    """Exchange in this way; None: change nothing."""
    text: str = ""
    """Message to the user."""


def is_enough(count: int, seconds: float) -> bool:
    """Whether enough steps are measured: about a second of them, so many short steps or few long ones."""
    wanted = _ENOUGH_SECONDS_OF_FEW if count < LOOKS[1] else _ENOUGH_SECONDS
    return count >= LOOKS[-1] or (count >= LOOKS[0] and seconds >= wanted)


def typical_seconds(steps: Sequence[float]) -> float:
    """Mean of the faster three quarters: rare work (a checkpoint, an evaluation) is left out.

    Holds:   one step in four may take any time
    """
    kept = sorted(steps)[: max(1, len(steps) * 3 // 4)]
    return sum(kept) / len(kept)


class TuningPolicy:
    """`training`: of which the times are still to be measured. `strategies`: that may be chosen."""

    def __init__(self, training: StepProfile, network: MeasuredNetwork, strategies: Sequence[str]) -> None:
        self._training, self._network = training, network
        self._strategies = list(strategies)
        self.phase = TuningPhase.PLAIN
        self._trials = 0
        self._plain_seconds = self._trial_seconds = 0.0
        self._as_it_was = PredictedChoice(strategy=PLAIN, bucket_cap_bytes=training.bucket_cap_bytes, step_seconds=0.0)
        self._tried = self._as_it_was

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, as plain values."""
        return {
            "training": asdict(self._training),
            "network": asdict(self._network),
            "strategies": list(self._strategies),
            "phase": self.phase.name,
            "trials": self._trials,
            "seconds": (self._plain_seconds, self._trial_seconds),
            "as_it_was": asdict(self._as_it_was),
            "tried": asdict(self._tried),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a state of `state_dict`: the steps of its phase are measured again.

        Holds:   judge() decides as that of the policy whose state it was
        """
        self._training, self._network = StepProfile(**state["training"]), MeasuredNetwork(**state["network"])
        self._strategies = list(state["strategies"])
        self.phase, self._trials = TuningPhase[state["phase"]], state["trials"]
        self._plain_seconds, self._trial_seconds = state["seconds"]
        self._as_it_was, self._tried = PredictedChoice(**state["as_it_was"]), PredictedChoice(**state["tried"])

    @property
    def warm_up_steps(self) -> int:
        """Steps of the present phase that are not counted."""
        return _FIRST_STEPS if self.phase is TuningPhase.PLAIN else _FIRST_STEPS_OF_A_TRIAL

    def judge(self, measured: PhaseTiming) -> Decision:
        """The decision from the steps of the present phase; then another phase begins.

        Holds:   ends in OVER after at most 2 * _MOST_TRIALS + 1 turns
        """
        if self.phase is TuningPhase.TRIAL:
            return self._after_trial(measured.step_seconds)
        first = self.phase is TuningPhase.PLAIN
        self._plain_seconds = measured.step_seconds
        self._training = replace(
            self._training,
            step_seconds=measured.step_seconds,
            backward_seconds=measured.backward_seconds,
            exposed_seconds=measured.exposed_seconds,
        )
        if first:
            return self._try_next(self._nothing_wins())
        if self._trial_seconds * _KEPT <= self._plain_seconds:
            self.phase = TuningPhase.OVER
            return Decision(choice=self._tried, text=self._result())
        return self._try_next(self._was_wrong())

    def _try_next(self, otherwise: str) -> Decision:
        choice = choose(self._training, self._network, self._strategies)
        if self._trials == _MOST_TRIALS or _same(choice, self._as_it_was):
            back = self._as_it_was if self.phase is TuningPhase.TRIAL else None
            self.phase = TuningPhase.OVER
            return Decision(choice=back, text=otherwise)
        self._trials += 1
        self._tried, self.phase = choice, TuningPhase.TRIAL
        expected, plain = _ms(choice.step_seconds), _ms(self._plain_seconds)
        return Decision(
            choice=choice, text=f"trying {self._named()}: {expected} a step expected, plain DDP takes {plain}"
        )

    def _after_trial(self, seconds: float) -> Decision:
        self._trial_seconds = seconds
        if seconds * _WIDE <= self._plain_seconds:
            self.phase = TuningPhase.OVER
            return Decision(choice=None, text=self._result())
        if seconds < self._plain_seconds:
            self.phase = TuningPhase.AGAIN
            return Decision(choice=self._as_it_was)
        return self._try_next(self._was_wrong())

    def _nothing_wins(self) -> str:
        exposed = self._training.exposed_seconds
        waits = "" if exposed is None else f", {_ms(exposed)} of it for the exchange"
        return f"plain DDP: {_ms(self._plain_seconds)} a step{waits}; nothing is clearly better"

    def _was_wrong(self) -> str:
        # Not again in this run, with whatever bucket size.
        self._strategies = [name for name in self._strategies if name != self._tried.strategy]
        if self._tried.strategy == PLAIN:
            self._training = replace(self._training, may_change_buckets=False)
        took = f"{self._named()} took {_ms(self._trial_seconds)}, expected {_ms(self._tried.step_seconds)}"
        return f"plain DDP again, {_ms(self._plain_seconds)} a step: {took} (X13)"

    def _result(self) -> str:
        expected, got = _ms(self._tried.step_seconds), _ms(self._trial_seconds)
        return f"{self._named()}: {got} a step (expected {expected}, plain DDP {_ms(self._plain_seconds)})"

    def _named(self) -> str:
        name = "plain DDP" if self._tried.strategy == PLAIN else self._tried.strategy
        if self._tried.bucket_cap_bytes == self._as_it_was.bucket_cap_bytes:
            return name
        return f"{name}, buckets of {self._tried.bucket_cap_bytes / (1 << 20):g} MiB"


def _same(one: PredictedChoice, other: PredictedChoice) -> bool:
    return (one.strategy, one.bucket_cap_bytes) == (other.strategy, other.bucket_cap_bytes)


def _ms(seconds: float) -> str:
    return (
        f"{seconds * 1e3:.1f} ms"
        if seconds < 0.1
        else f"{seconds * 1e3:.0f} ms"
        if seconds < 10
        else f"{seconds:.1f} s"
    )
