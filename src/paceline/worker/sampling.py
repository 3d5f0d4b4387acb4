"""Marks how each DataLoader's DistributedSampler distributes its samples, when an epoch begins. The agents compare the marks.

    {"loader": 1, "turn": 2, "replicas": 4, "rank": 0, "seed": 0, "shuffle": true, "samples": 1024, "epoch": 0,
     "made_at": "/home/ada/train.py:26", "epoch_before": 0, "steps_before": 250}

`turn` counts how often this loader has begun. `epoch_before`, `steps_before`: the sampler's epoch in this loader's last turn with
steps, and the number of these steps. A turn that repeats that epoch is marked only after a step in it, because scripts also look at a first
batch before they set the sampler's epoch. A mark has only numbers that the sampler keeps, and the user's line that made it; no sample is
read.
"""

import weakref
from collections import deque
from typing import Any

_MOST_LOADERS, _MOST_TURNS = 16, 4
_FIELDS = {
    "replicas": "num_replicas",
    "rank": "rank",
    "seed": "seed",
    "shuffle": "shuffle",
    "samples": "total_size",
    "epoch": "epoch",
}


class _Turns:
    """One loader. `steps`: steps in the current turn, as far as known; `trained`: epoch and steps of the last turn that had steps."""

    __slots__ = ("epoch", "loader", "number", "steps", "trained", "turn")

    def __init__(self, loader: Any, number: int) -> None:
        self.loader = weakref.ref(loader)
        self.number = number
        self.turn = self.steps = 0
        self.epoch: int | None = None
        self.trained: tuple[int | None, int] | None = None


class Samplers:
    """The loaders of one process that have a DistributedSampler, or a sampler with the same attributes."""

    __slots__ = ("_held", "_known", "_last", "_made", "_steps_then")

    def __init__(self) -> None:
        self._known: dict[int, _Turns] = {}
        self._last: _Turns | None = None
        self._steps_then = 0
        self._held: dict[str, Any] | None = None
        self._made: deque[tuple[weakref.ref[Any], str]] = deque(maxlen=_MOST_LOADERS)

    def made(self, sampler: Any, at: str) -> None:
        """A sampler was made. `at`: the user's line, as FILE:LINE."""
        self._made.append((weakref.ref(sampler), at))

    def begins(self, loader: Any, step_count: int) -> list[dict[str, Any]]:
        """An epoch of a loader begins. Returns the marks to write."""
        marks = self.stepped(step_count)
        if self._last is not None:
            self._last.steps += step_count - self._steps_then
        self._steps_then = step_count
        self._last = self._held = None
        facts = sampler_facts(loader)
        turns = self._turns_of(loader) if facts is not None else None
        if facts is None or turns is None:
            return marks
        self._last = turns
        # A copy: another thread may make a sampler meanwhile.
        at = next((at for made, at in tuple(self._made) if at and made() is loader.sampler), None)
        mark = _next_turn(turns, facts if at is None else {**facts, "made_at": at})
        if turns.turn > _MOST_TURNS:
            return marks
        if mark.get("epoch_before") == mark["epoch"]:
            self._held = mark
            return marks
        return [*marks, mark]

    def holds_a_mark(self) -> bool:
        """Whether a mark becomes due with the next step."""
        return self._held is not None

    def stepped(self, step_count: int) -> list[dict[str, Any]]:
        """Returns the marks to write after this many steps: the mark of the current turn, if it was held back."""
        if self._held is None or step_count <= self._steps_then:
            return []
        held, self._held = self._held, None
        return [held]

    def _turns_of(self, loader: Any) -> _Turns | None:
        known = self._known.get(id(loader))
        if known is not None and known.loader() is loader:
            return known
        if len(self._known) >= _MOST_LOADERS:
            return None
        self._known[id(loader)] = turns = _Turns(loader, len(self._known) + 1)
        return turns


def _next_turn(turns: _Turns, facts: dict[str, Any]) -> dict[str, Any]:
    """The mark of a loader's turn that begins."""
    if turns.steps:
        turns.trained = turns.epoch, turns.steps
    turns.turn += 1
    turns.epoch, turns.steps = facts["epoch"], 0
    before = dict(zip(("epoch_before", "steps_before"), turns.trained or (), strict=False))
    return {"loader": turns.number, "turn": turns.turn, **facts, **before}


def sampler_facts(loader: Any) -> dict[str, Any] | None:
    """The numbers of a loader's sampler; None for another kind of sampler."""
    kept = getattr(getattr(loader, "sampler", None), "__dict__", {})
    facts = {name: kept.get(attribute) for name, attribute in _FIELDS.items()}
    return facts if all(isinstance(value, int) for value in facts.values()) else None
