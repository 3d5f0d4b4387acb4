"""What many streams write, brought onto one terminal so that no line holds the text of two. Pure: bytes and times in, bytes out."""

from collections.abc import Hashable
from dataclasses import dataclass, field

# Unfinished text (a prompt, a progress bar) is shown after so long. Where several write here a line has more time to become whole.
ALONE_SECONDS, BESIDE_OTHERS_SECONDS = 0.1, 1.0
# Unfinished text leaves its line to that of another stream once it has stood there for so long without a change.
QUIET_SECONDS = 1.0
LONGEST_HELD_BYTES = 1 << 20


@dataclass(slots=True)
class _Held:
    """Text of one stream that has no end yet and is not shown."""

    text: bytearray = field(default_factory=bytearray)
    """The text, without the stream's prefix."""
    since: float = 0.0
    """When its first byte came, on the clock of the caller, in seconds."""
    moves: bool = False
    """It paints over itself, as a progress bar does."""


class ConsoleLines:
    """One terminal, or the file in its place. Streams are told apart by a key, and their writers, which may have two, by another.

    Holds:   the bytes of each stream come out in order and whole; prefixes and line ends are added, the latter only where a stream
             begins to write while the line of another has no end
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}
        self._prefixes: dict[Hashable, bytes] = {}
        self._writers: set[Hashable] = set()
        # The stream whose unfinished text stands in the last line, since when, and whether its next byte begins a line.
        self._owner: Hashable | None = None
        self._owner_since = 0.0
        self._at_begin = True

    @property
    def line_open(self) -> bool:
        """Whether the last line lacks its end."""
        return self._owner is not None

    @property
    def waiting(self) -> bool:
        """Whether text is held that `due` may let out later."""
        return any(held.text for held in self._held.values())

    def take(self, stream: Hashable, writer: Hashable, chunk: bytes, now: float, *, prefix: bytes = b"") -> bytes:
        """What a chunk of a stream brings onto the terminal at once: its whole lines, and more of the line that is its own."""
        self._writers.add(writer)
        self._prefixes[stream] = prefix
        held = self._held.setdefault(stream, _Held())
        out = b""
        if cut := chunk.rfind(b"\n") + 1:
            out = self._whole(stream, bytes(held.text) + chunk[:cut])
            held.text.clear()
            chunk = chunk[cut:]
        if chunk:
            if not held.text:
                held.since, held.moves = now, False
            held.text += chunk
            held.moves = held.moves or b"\r" in chunk
        return out + self._unfinished(stream, held, now)

    def due(self, now: float) -> bytes:
        """Unfinished text that has waited long enough."""
        return b"".join(self._unfinished(stream, held, now) for stream, held in self._held.items())

    def end(self, stream: Hashable) -> bytes:
        """The rest of a stream that has ended."""
        held = self._held.pop(stream, None)
        out = self._shown(stream, bytes(held.text), self._owner_since) if held and held.text else b""
        self._prefixes.pop(stream, None)
        return out

    def between(self, text: bytes) -> bytes:
        """Text that begins on a line of its own and ends one."""
        out = b"\n" + text if self.line_open else text
        self._owner = None
        return out

    def _unfinished(self, stream: Hashable, held: _Held, now: float) -> bytes:
        if not held.text:
            return b""
        is_free = self._owner in (None, stream)
        too_long = len(held.text) > LONGEST_HELD_BYTES
        patience = BESIDE_OTHERS_SECONDS if len(self._writers) > 1 else ALONE_SECONDS
        is_due = self._owner == stream or held.moves or now - held.since >= patience
        if not too_long and not (is_due and (is_free or now - self._owner_since >= QUIET_SECONDS)):
            return b""
        text = bytes(held.text)
        held.text.clear()
        return self._shown(stream, text, now)

    def _whole(self, stream: Hashable, lines: bytes) -> bytes:
        out = self._begun(stream) + self._prefixed(stream, lines)
        self._owner = None
        return out

    def _shown(self, stream: Hashable, text: bytes, now: float) -> bytes:
        out = self._begun(stream) + self._prefixed(stream, text)
        self._owner, self._owner_since = stream, now
        self._at_begin = text.endswith(b"\r")
        return out

    def _begun(self, stream: Hashable) -> bytes:
        """The end of another stream's line."""
        return b"" if self._owner in (None, stream) else b"\n"

    def _prefixed(self, stream: Hashable, data: bytes) -> bytes:
        prefix = self._prefixes.get(stream, b"")
        if not prefix:
            return data
        goes_on = self._owner == stream and not self._at_begin
        pieces = data.splitlines(keepends=True)
        return b"".join(piece if goes_on and place == 0 else prefix + piece for place, piece in enumerate(pieces))
