"""What a restart cost: whether the script went on from a checkpoint, and how many steps it makes again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from paceline.facts import RankRecord
from paceline.recording.fact_json import fact_or_none

EVENT = "attempt_began"
RESUMED = "resumed"
# The clock of a file server may differ from that of the first host.
_CLOCK_NS = 300 * 10**9


class NotUsed(StrEnum):
    """Why a file that a script loads before its first step is no checkpoint that it goes on from."""

    OLDER = "it was written before the job began"
    WITHOUT_STEPS = "the job wrote it before its first step"
    NOTHING_TAKEN = "the model took none of its parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The beginning of an attempt that follows another attempt."""

    attempt: int
    """Number of the attempt that began, counted from 0."""
    loaded: bool | None
    """Whether the script went on from a checkpoint of this job before its first step; None: it is not known."""
    file: str = ""
    """What it loaded; empty: nothing, or it is not known."""
    not_used: str = ""
    """Why it did not go on from what it loaded: one of the members of NotUsed; empty: it did, or it loaded nothing."""
    lost_steps: int | None = None
    """Steps that had been made and are made again; None: it is not known."""

    @property
    def began_anew(self) -> bool:
        """Whether steps are lost because the script went on from no checkpoint."""
        return self.loaded is False and self.lost_steps != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A restart after a killed rank, or after a hang, that went on from the state that all ranks had kept."""

    attempt: int
    """Number of the attempt that went on, counted from 0."""
    step: int
    """The step from which it went on."""
    rank: int
    """The rank that was killed first, or whose loader worker was, or that hung."""
    host: str
    """The host of that rank."""
    signal: str | None
    """The signal that killed it; None: it hung, or ended because one of its loader workers was killed."""
    hung: bool = False
    """It hung, and paceline killed it for that."""
    seconds: float
    """Time from its end to the end of the first step that every rank has made since."""
    steps_again: int
    """Steps that had been made and are made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartTotals:
    """All restarts of a run."""

    count: int = 0
    """How often the ranks were started again."""
    lost_steps: int | None = 0
    """Steps that are made again because of all of them; None: it is not known."""
    found: tuple[Restart, ...] = ()
    """The restarts from the start of the script after which a step was made."""
    resumed: tuple[Resumption, ...] = ()
    """The restarts that went on from kept state."""


def restart(before: Sequence[Sequence[RankRecord]], now: Sequence[RankRecord], *, job_started_ns: int) -> Restart:
    """What the newest attempt went on from. `before`: the ranks of each earlier attempt, the first one first; `now`: those of the newest.

    Steps since the last checkpoint count as lost if the script loaded one, else all steps.

    Holds:   nothing was loaded after attempts of 5 and 7 steps without a checkpoint -> lost_steps == 12 in all of the two restarts
    """
    lost: int | None = None
    reached: int | None = 0
    for place, (ranks, after) in enumerate(pairwise([*before, now]), 1):
        has_loaded, _ = _loaded(after, before[:place], job_started_ns)
        lost, reached = _lost(reached, before[:place], ranks, has_loaded)
    loaded, not_used = _loaded(now, before, job_started_ns)
    file = next((record.loaded_file for record in now if record.loaded_file), "")
    return Restart(
        attempt=max(record.attempt for record in now),
        loaded=loaded,
        file=file,
        not_used=not_used or "",
        lost_steps=lost,
    )


def totals(events: Iterable[Mapping[str, Any]]) -> RestartTotals:
    """The restarts in the events of a run."""
    found: dict[int, Restart] = {}
    resumed: dict[int, Resumption] = {}
    # Attempt -> steps that are lost. What a resume makes again had been kept: it is not lost.
    lost: dict[int, int | None] = {}
    for event in events:
        attempt = event.get("attempt")
        if event.get("event") == "restart" and isinstance(attempt, int):
            lost[attempt] = 0 if isinstance(event.get("resume_step"), int) else None
        elif event.get("event") == RESUMED and (one := fact_or_none(Resumption, event)) is not None:
            resumed[one.attempt] = one
        elif event.get("event") == EVENT and (began := fact_or_none(Restart, event.get("restart"))) is not None:
            found[began.attempt] = began
    lost |= {attempt: began.lost_steps for attempt, began in found.items()}
    known = [steps for steps in lost.values() if steps is not None]
    return RestartTotals(
        count=len(lost),
        lost_steps=sum(known) if len(known) == len(lost) else None,
        found=tuple(found[attempt] for attempt in sorted(found)),
        resumed=tuple(resumed[attempt] for attempt in sorted(resumed)),
    )


def _loaded(
    ranks: Sequence[RankRecord], before: Sequence[Sequence[RankRecord]], job_started_ns: int
) -> tuple[bool | None, NotUsed | None]:
    """Whether these ranks went on from a checkpoint that the attempts `before` wrote; and if they loaded one and did not, why not.

    That a file was read says little: weights that the job starts from are read at each start, and strict=False takes what fits.
    """
    times = [record.loaded_ns for record in ranks]
    asked = sum(record.parameters_asked for record in ranks)
    if asked and not any(record.parameters_loaded for record in ranks):
        return False, NotUsed.NOTHING_TAKEN
    if any(time_ns is not None and time_ns >= job_started_ns - _CLOCK_NS and time_ns > 0 for time_ns in times):
        has_optimizer = any(record.optimizer_loaded for record in ranks)
        if not has_optimizer and _saved_only_before_steps(before):
            return False, NotUsed.WITHOUT_STEPS
        return True, None
    if None in times:
        return None, None
    return False, NotUsed.OLDER if any(times) else None


def _saved_only_before_steps(before: Sequence[Sequence[RankRecord]]) -> bool:
    """Whether every save of the attempts that is seen was over before their first step."""
    records = [record for ranks in before for record in ranks]
    return any(map(_saved, records)) and not any(record.saved_steps or record.saved_steps is None for record in records)


def _lost(
    reached: int | None, before: Sequence[Sequence[RankRecord]], ranks: Sequence[RankRecord], loaded: bool | None
) -> tuple[int | None, int | None]:
    """Steps that are lost between an attempt and the next one, and the step of the job at which the next one begins.

    `reached`: the step at which the attempt of `ranks` began.
    """
    made = [record.step_count for record in ranks if record.step_count is not None]
    if loaded is None or reached is None or (ranks and not made):
        return None, None
    steps = max(made, default=0)
    if not loaded:
        return reached + steps, 0
    if not any(record.saved_steps is not None and _saved(record) for attempt in before for record in attempt):
        # The script saves in a way that nobody sees.
        return None, None
    saved = max((record.saved_steps or 0 for record in ranks), default=0)
    return steps - saved, reached + saved


def _saved(record: RankRecord) -> bool:
    return bool(record.checkpoint_seconds or record.checkpoint_outside_seconds)
