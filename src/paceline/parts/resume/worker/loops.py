"""The loops of the script that are being run, and how far each is.

A `for` tells its items and its end. A `while` tells only that the script comes to it and that it looks whether it goes on; that it has
ended is seen by where its frame is.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from time import monotonic_ns
from types import CodeType, FrameType, GeneratorType
from typing import Any

from ....worker.no_compile import passed_over_by_warnings
from . import frames, random_state
from .object_graph import PLAIN_TYPES, CannotPutBack

# Place of a loop: its file and function, its line.
Place = tuple[str, str, int]
# Stop following a loop after it has ended this many times without an optimizer step.
_TIMES_WITHOUT_STEP = 3
_LONG_ITEM_NS = 1_000_000
_MAY_WAIT = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class Loop:
    """One loop that is being run."""

    __slots__ = (
        "began_with",
        "code",
        "entered",
        "frame_id",
        "goal",
        "is_taking",
        "item",
        "last_line",
        "made",
        "ordinal",
        "over_generator",
        "over_loader",
        "place",
        "random",
        "stepped",
        "steps_here",
        "taken",
        "taken_ns",
    )

    def __init__(
        self, place: Place, frame: FrameType, ordinal: int, began_with: Any = None, last_line: int = 0
    ) -> None:
        self.place = place
        self.code = frame.f_code
        # The frame itself would keep the script's objects alive.
        self.frame_id = id(frame)
        # Of a `while`: the last line of its body.
        self.last_line = last_line
        # How often the place was reached before, since the loop around it took its item.
        self.ordinal = ordinal
        # Of a range: its start, stop and step. Of an enumerate: its first number.
        self.began_with = began_with
        self.taken = 0
        self.taken_ns = 0
        # It waits for its next item, which a generator of the script may be making.
        self.is_taking = False
        # Of a `while`: its cursor of the saved state, until it is there.
        self.goal: tuple[Any, ...] | None = None
        # Its items are batches of a data loader; are made by a generator.
        self.over_loader = False
        self.over_generator = False
        # The item at which it is, if that is a plain value.
        self.item: Any = None
        # Random numbers right after it took its item.
        self.random: Any = None
        # An optimizer stepped in it, in no loop inside it / in it or in a loop inside it.
        self.steps_here = False
        self.stepped = False
        # Since it took its item: how often each place was reached, how many iterators of loaders were made.
        self.entered: dict[Place, int] = {}
        self.made = 0

    def take(self) -> None:
        """It goes on with its next item."""
        self.taken += 1
        self.is_taking = False
        if self.entered:
            self.entered.clear()
        self.made = 0
        if not self.steps_here:
            # Taking them costs more than a short item.
            now_ns = monotonic_ns()
            if self.taken == 1 or now_ns - self.taken_ns > _LONG_ITEM_NS:
                self.random = random_state.kept()
            self.taken_ns = now_ns

    def is_around(self, frame: FrameType | None) -> bool:
        """Whether it is being run in this frame, which has its id."""
        if frame is None or not self.last_line:
            return frame is not None
        return frame.f_code is self.code and self.place[2] <= (frame.f_lineno or 0) <= self.last_line

    def cursor(self) -> tuple[Any, ...]:
        """Where it is, as plain values."""
        return self.place, self.ordinal, self.taken, self.item, self.began_with, self.random, self.is_taking

    @property
    def gives_items(self) -> bool:
        """Whether it is in a generator and makes no steps: who takes the generator's items may make them."""
        return bool(self.code.co_flags & CO_GENERATOR) and not self.stepped


class RunningLoops:
    """The loops that are being run, the outermost first, and those that must be reached again."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.running: list[Loop] = []
        # Those of them that are a `while`: by the id of their frame, and their line.
        self.whiles: dict[tuple[int, int], Loop] = {}
        # Of the script outside of all loops: as in a Loop.
        self._entered: dict[Place, int] = {}
        self._made = 0
        # A data loader has given a batch to a loop that does not know it yet; the loop that may have given it on to that one.
        self.batch_was_taken = False
        self._giver: Loop | None = None
        # Whether the loops around the steps have been told of them: not since a loop was reached.
        self.is_noted = False
        # Cursors of the saved state that have not been reached yet.
        self.ahead: list[tuple[Any, ...]] = []
        self._reached: list[Loop] = []
        # Code -> line -> how often a loop ended without a step.
        self._idle: dict[CodeType, dict[int, int]] = {}

    def follow(self, line: int, source: Iterable[Any], frame: FrameType) -> Iterable[Any]:
        """The items of `source`, followed; `source` itself if this loop has no steps."""
        if self._has_no_steps(line, frame):
            return source
        began_with = _began_with(source)
        loop, cursor = self._reach(line, frame, began_with)
        if cursor is not None and self._session.has_other_ranks():
            try:
                _require_other_ranks_do_not_matter(loop, source, cursor)
            except CannotPutBack as error:
                self._session.cannot_put_back(error)
        if cursor is not None and cursor[4] is not None:
            # The script may have begun elsewhere, at a checkpoint of its own.
            source, loop.began_with = _beginning_with(cursor[4], source), cursor[4]
        return self._items(loop, iter(source), cursor)

    def come_to_while(self, line: int, last_line: int, frame: FrameType) -> None:
        """The script comes to a `while`."""
        here = _frames_by_id(frame)
        for key, old in list(self.whiles.items()):
            # One that was left by a break, a return or an exception.
            if key == (id(frame), line) or (old.frame_id not in here and not old.code.co_flags & _MAY_WAIT):
                self.running.remove(self.whiles.pop(key))
        if self._has_no_steps(line, frame):
            return
        loop, goal = self._reach(line, frame, None, last_line)
        loop.goal = goal
        self.running.append(loop)
        self.whiles[id(frame), line] = loop
        self._note_idle(loop)

    def go_on_in_while(self, line: int, frame: FrameType) -> None:
        """A `while` is about to look whether it goes on."""
        loop = self.whiles.get((id(frame), line))
        if loop is None or loop.code is not frame.f_code:
            return
        if loop.goal is not None:
            (_, _, loop.taken, _, _, loop.random, _), loop.goal = loop.goal, None
            loop.stepped = True
            if self.ahead or not self._session.head_is_loop:
                if loop.random is not None:
                    random_state.put_back(loop.random)
                return
            loop.steps_here = True
            self._session.put_back(frame)
        elif self._session.stepped:
            self._session.before_item(loop, frame)
        loop.take()

    def around(self, frame: FrameType | None) -> list[Loop]:
        """The running loops around a frame, the outermost first."""
        if not self.running:
            return []
        here = _frames_by_id(frame)
        return [loop for loop in self.running if loop.is_around(here.get(loop.frame_id))]

    def key_of_iterator(self, frame: FrameType | None) -> tuple[int, int]:
        """The name of an iterator that is made now, (depth, count): how many loops enclose it, and how many iterators were made since the
        innermost loop took its item, this one included."""
        chain = self.around(frame)
        if not chain:
            self._made += 1
            return 0, self._made
        chain[-1].made += 1
        return len(chain), chain[-1].made

    def step_made(self, frame: FrameType | None) -> None:
        """An optimizer stepped below this frame."""
        self.is_noted = True
        chain = self.around(frame)
        for loop in chain:
            loop.stepped = True
        if chain:
            chain[-1].steps_here = True
        if self._idle:
            while frame is not None:
                self._idle.pop(frame.f_code, None)
                frame = frame.f_back

    def is_head(self, loop: Loop, frame: FrameType | None) -> bool:
        """Whether the next item of this loop begins a new step of the training: no loop around it makes steps itself."""
        if not loop.steps_here:
            return False
        return next(one for one in self.around(frame) if one.steps_here) is loop

    @passed_over_by_warnings
    def _items(self, loop: Loop, iterator: Iterator[Any], cursor: tuple[Any, ...] | None) -> Iterator[Any]:
        session = self._session
        self.running.append(loop)
        loop.over_generator = _generator_in(iterator) is not None
        try:
            if cursor is not None and self._is_taking(cursor):
                iterator = _behind(iterator, loop, cursor)
            elif cursor is not None:
                first = self._go_to(loop, iterator, cursor)
                if first is not _NOTHING:
                    yield first
            while True:
                if session.stepped:
                    session.before_item(loop, sys._getframe(1))
                loop.is_taking = True
                # Batches that were taken since, for an evaluation in a generator expression, are no items of this loop.
                self.batch_was_taken = False
                try:
                    item = next(iterator)
                except StopIteration:
                    break
                loop.take()
                if self.batch_was_taken:
                    self._note_batch(loop)
                if type(item) in PLAIN_TYPES:
                    loop.item = item
                if session.batch_is_due:
                    session.take_batch(item)
                yield item
            if not loop.stepped:
                self._note_idle(loop)
        except CannotPutBack as error:
            session.cannot_put_back(error)
        finally:
            self.running.remove(loop)

    def _is_taking(self, cursor: tuple[Any, ...]) -> bool:
        """Whether the loop that is to be reached next is in the generator that makes the items of this one."""
        return bool(self.ahead) and cursor[6]

    def _note_batch(self, loop: Loop) -> None:
        """A data loader has given a batch to this loop, or to the generator from which this loop takes its items."""
        if self._giver is None or not self._giver.stepped:
            loop.over_loader = True
        self._giver = loop if loop.over_loader and loop.gives_items else None
        self.batch_was_taken = self._giver is not None

    def _reach(
        self, line: int, frame: FrameType, began_with: Any, last_line: int = 0
    ) -> tuple[Loop, tuple[Any, ...] | None]:
        """A loop that the script comes to, and its cursor if it is one that must be reached again."""
        chain = self.around(frame)
        entered = chain[-1].entered if chain else self._entered
        place = (*frames.name_of(frame), line)
        ordinal = entered[place] = entered.get(place, -1) + 1
        loop = Loop(place, frame, ordinal, began_with, last_line)
        self.is_noted = False
        return loop, self._cursor_of(loop, chain)

    def _has_no_steps(self, line: int, frame: FrameType) -> bool:
        """Whether this loop came to its end without a step so often that it is no longer followed."""
        if not self._idle or self.ahead:
            return False
        return self._idle.get(frame.f_code, {}).get(line, 0) >= _TIMES_WITHOUT_STEP

    def _note_idle(self, loop: Loop) -> None:
        idle = self._idle.setdefault(loop.code, {})
        idle[loop.place[2]] = idle.get(loop.place[2], 0) + 1

    def _cursor_of(self, loop: Loop, chain: list[Loop]) -> tuple[Any, ...] | None:
        if not self.ahead or chain != self._reached:
            return None
        place, ordinal, *_ = self.ahead[0]
        if (place, ordinal) != (loop.place, loop.ordinal):
            return None
        self._reached.append(loop)
        return self.ahead.pop(0)

    @passed_over_by_warnings
    def _go_to(self, loop: Loop, iterator: Iterator[Any], cursor: tuple[Any, ...]) -> Any:
        """Pass over what was done. Returns the item at which the loop is, or _NOTHING if the next one is to be taken."""
        _, _, taken, item, _, random, _ = cursor
        is_head = not self.ahead and self._session.head_is_loop
        loop.taken, loop.item, loop.random = taken, item, random
        loop.stepped = True
        self._session.loaders.passing = True
        try:
            last = _NOTHING
            for _ in range(taken if is_head else taken - 1):
                last = next(iterator)
        except StopIteration:
            raise CannotPutBack(
                f"{loop.place[0]}:{loop.place[2]}: the loop has fewer items than the {taken} it had"
            ) from None
        finally:
            self._session.loaders.passing = False
        if not is_head:
            last = next(iterator)
        if type(item) in PLAIN_TYPES and item is not None and last is not _NOTHING and last != item:
            raise CannotPutBack(
                f"{loop.place[0]}:{loop.place[2]}: item {taken} of the loop is {last!r}, and was {item!r}"
            )
        if is_head:
            loop.steps_here = True
            self._session.put_back(sys._getframe(2))
            return _NOTHING
        if random is not None:
            random_state.put_back(random)
        return last


def _began_with(source: Iterable[Any]) -> Any:
    """Where a range or an enumerate begins, as plain values; None: it is neither."""
    if type(source) is range:
        return source.start, source.stop, source.step
    if type(source) is enumerate:
        return _parts_of(source)[1]
    return None


def _beginning_with(began_with: Any, source: Iterable[Any]) -> Iterable[Any]:
    """A range or an enumerate that begins as another one did. `source`: as the script has made it."""
    if type(began_with) is tuple:
        return range(*began_with)
    return enumerate(_parts_of(source)[0], began_with) if type(source) is enumerate else source


def _require_other_ranks_do_not_matter(loop: Loop, source: Iterable[Any], cursor: tuple[Any, ...]) -> None:
    """Raises:  CannotPutBack: with another number of ranks the loop has other items than the rest of the data"""
    where = f"{loop.place[0]}:{loop.place[2]}"
    if type(cursor[4]) is tuple and cursor[4] != loop.began_with:
        raise CannotPutBack(
            f"{where}: with another number of ranks the loop is over {source!r}, and was over {range(*cursor[4])!r}"
        )
    if type(source) in (zip, itertools.islice):
        raise CannotPutBack(
            f"{where}: with another number of ranks {type(source).__name__} may end before the data does"
        )


def _generator_in(iterator: Any) -> Any:
    """The generator that makes the items of an iterator, if each of them is one of its own; None: there is none."""
    if type(iterator) is enumerate:
        iterator = _parts_of(iterator)[0]
    return iterator if type(iterator) is GeneratorType else None


def _behind(iterator: Any, loop: Loop, cursor: tuple[Any, ...]) -> Iterator[Any]:
    """An iterator over a generator that has made no item yet, and that goes on after those that were taken."""
    _, _, loop.taken, loop.item, _, loop.random, _ = cursor
    loop.stepped = True
    generator: Iterator[Any] | None = _generator_in(iterator)
    if generator is None:
        raise CannotPutBack(f"{loop.place[0]}:{loop.place[2]}: the loop is over {type(iterator).__name__} now")
    return enumerate(generator, _parts_of(iterator)[1] + loop.taken) if type(iterator) is enumerate else generator


def _parts_of(iterator: Any) -> tuple[Any, int]:
    """What an enumerate counts, and its next number."""
    source, number = iterator.__reduce__()[1]
    return source, number


def _frames_by_id(frame: FrameType | None) -> dict[int, FrameType]:
    """This frame and those around it."""
    found = {}
    while frame is not None:
        found[id(frame)] = frame
        frame = frame.f_back
    return found


_NOTHING: Any = object()
