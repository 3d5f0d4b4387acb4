"""Leaves out of the terminal what a rank shows again after a resume. Pure: bytes in, bytes out.

After a resume at a kept step a rank runs its script again from the top, and then makes again the steps that were not kept. A line is left
out only if the same line of the same stream was shown before:

* until the state is put back: anywhere before the kept step, each shown line once;
* in the steps that are made again: after the kept step, in the same order.

Text that overwrites itself with a carriage return, as a progress bar does, is never left out.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from paceline.recording.output_mark import between_marks

REMEMBERED_BYTES = 1 << 18
# A longer piece of a line is shown before its end is known.
_LONGEST_HELD_BYTES = 1 << 16
_PIECE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
# The rank has two slots, so it goes on from one of the two newest kept steps.
_KEPT_STEPS = 2


@dataclass(frozen=True, slots=True)
class ResumedFrom:
    """Where a rank goes on in a new attempt."""

    step: int
    """The kept step; 0: the script begins from the beginning."""
    begun_step: int
    """The last step that the rank had begun in the attempts before."""


class _Phase(Enum):
    NEW = auto()
    # The script runs again from the top, until its state is put back.
    REPEATING = auto()
    # Steps are made again.
    REDOING = auto()


@dataclass(slots=True)
class _Lines:
    """The newest lines, up to a bound."""

    lines: deque[bytes] = field(default_factory=deque)
    """The lines with their ends."""
    size_bytes: int = 0
    """Their size."""

    def add(self, lines: Iterable[bytes]) -> None:
        """Remember these lines. Beyond the bound the oldest are forgotten."""
        for line in lines:
            self.lines.append(line)
            self.size_bytes += len(line)
            while self.size_bytes > REMEMBERED_BYTES:
                self.size_bytes -= len(self.lines.popleft())


class _InOrder:
    """Lines that may be met again, in their order. Each line is found in constant time, however many there are."""

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        self._lines = list(lines)
        self._next = 0
        self._places: dict[bytes, deque[int]] = {}
        for place, line in enumerate(self._lines):
            self._places.setdefault(line, deque()).append(place)

    def __bool__(self) -> bool:
        return self._next < len(self._lines)

    def meet(self, line: bytes) -> bool:
        """Whether the line is one of those that were not passed; if so, those before it are passed too."""
        places = self._places.get(line, deque())
        while places and places[0] < self._next:
            places.popleft()
        if not places:
            return False
        self._next = places.popleft() + 1
        return True

    def left(self) -> list[bytes]:
        """The lines that were not passed."""
        return self._lines[self._next :]


class RepeatedOutput:
    """One stream of one rank over all attempts of a job: what it has shown, and what of a new attempt is shown again."""

    def __init__(self) -> None:
        self._phase = _Phase.NEW
        self._resumed = ResumedFrom(0, 0)
        # The start of a mark whose rest was not read yet.
        self._unread = b""
        # A line whose end was not read yet. Where nothing is left out, it is shown already.
        self._held = b""
        # The start of the held line is shown already; the text before it ended with a carriage return.
        self._begun = self._moved = False
        # Shown lines: the first ones, later ones before the kept steps, and those after each of the newest kept steps.
        self._first, self._later = _Lines(), _Lines()
        self._since: deque[tuple[int, _Lines]] = deque()
        # What may be left out in the attempt: in any order, and in this order.
        self._before: Counter[bytes] = Counter()
        self._redone = _InOrder()

    def begin(self, resumed: ResumedFrom) -> None:
        """A new attempt begins. The streams of the one before have been read."""
        if not resumed.step:
            self.__init__()  # type: ignore[misc]
            return
        if self._redone:
            resumed = ResumedFrom(resumed.step, max(resumed.begun_step, self._resumed.begun_step))
        after = _Lines()
        is_known = any(step == resumed.step for step, _ in self._since)
        for step, lines in self._since:
            (after if is_known and step >= resumed.step else self._later).add(lines.lines)
        self._since = deque([(resumed.step, after)])
        self._before = Counter([*self._first.lines, *self._later.lines])
        self._redone = _InOrder(after.lines)
        self._resumed, self._phase = resumed, _Phase.REPEATING
        self._unread = self._held = b""
        self._begun = self._moved = False

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """What the rank has written, without marks, and what of it is to be shown."""
        texts, self._unread = between_marks(self._unread + data)
        shown = []
        for text, step in texts:
            shown.append(self._text(text))
            if step is not None:
                shown.append(self._mark(step))
        return b"".join(text for text, _ in texts), b"".join(shown)

    def end(self) -> tuple[bytes, bytes]:
        """The stream has ended: what is left of it, and what of that is to be shown."""
        rest, self._unread = self._unread, b""
        shown = self._text(rest)
        if self._phase is not _Phase.NEW:
            shown += self._held
        self._held = b""
        return rest, shown

    # --------------------------------------------------------------------------------------------------------- inside

    def _text(self, text: bytes) -> bytes:
        was_new = self._phase is _Phase.NEW
        self._held += text
        shown, at = [], 0
        for match in _PIECE.finditer(self._held):
            shown.append(self._piece(match[0]))
            at = match.end()
        self._held = self._held[at:]
        if was_new:
            if len(self._held) > _LONGEST_HELD_BYTES:
                self._begun, self._held = True, b""
            return text
        if self._phase is _Phase.REDOING and not self._redone:
            self._phase = _Phase.NEW
            shown.append(self._held)
            self._begun = self._begun or bool(self._held)
        elif self._begun or self._moved or len(self._held) > _LONGEST_HELD_BYTES:
            # Not waited for: a progress bar has no line end.
            shown.append(self._held)
            self._begun, self._held = self._begun or bool(self._held), b""
        return b"".join(shown)

    def _piece(self, piece: bytes) -> bytes:
        """A whole line, the part of one up to a carriage return, or the part before a mark: itself if it is to be shown."""
        begun, moved = self._begun, self._moved
        self._begun, self._moved = False, piece.endswith(b"\r")
        if begun or self._moved or (moved and piece == b"\n"):
            return piece
        if self._was_shown(piece):
            return b""
        self._remember(piece)
        return piece

    def _was_shown(self, piece: bytes) -> bool:
        if self._phase is _Phase.REPEATING and self._before[piece] > 0:
            self._before[piece] -= 1
            return True
        return self._phase is _Phase.REDOING and self._redone.meet(piece)

    def _remember(self, piece: bytes) -> None:
        if self._phase is _Phase.REPEATING:
            return
        if self._since:
            self._since[-1][1].add([piece])
        elif self._first.size_bytes + len(piece) <= REMEMBERED_BYTES:
            self._first.add([piece])
        else:
            self._later.add([piece])

    def _mark(self, step: int) -> bytes:
        held, self._held = self._held, b""
        shown = self._piece(held) if held else b""
        if self._phase is _Phase.NEW:
            shown = b""
        self._begun = self._moved = False
        if self._phase is _Phase.REPEATING:
            self._phase = _Phase.REDOING if self._redone else _Phase.NEW
            return shown
        if self._phase is _Phase.REDOING and step >= self._resumed.begun_step:
            self._redone, self._phase = _InOrder(), _Phase.NEW
        lines = _Lines()
        lines.add(self._redone.left())
        self._since.append((step, lines))
        while len(self._since) > _KEPT_STEPS:
            self._later.add(self._since.popleft()[1].lines)
        return shown
