"""Merges the output of many streams for one terminal, so that no line holds text of two streams. Pure: bytes and times in, bytes out."""

from collections.abc import Hashable
from dataclasses import dataclass, field

# Unfinished text (a prompt, a progress bar) is shown after this time. The time is longer if several streams write to the terminal, so
# that a line can be completed.
ALONE_SECONDS, BESIDE_OTHERS_SECONDS = 0.1, 1.0
# After this time without a change, unfinished text of one stream gives its line to unfinished text of another stream.
QUIET_SECONDS = 1.0
LONGEST_HELD_BYTES = 1 << 20


@dataclass(slots=True)
class _Held:
    """An unfinished line of one stream that is not shown yet."""

    text: bytearray = field(default_factory=bytearray)
    """The text, without the stream's prefix."""
    since: float = 0.0
    """When the first byte of the text arrived, in seconds on the caller's clock."""
    moves: bool = False
    """The text overwrites itself, as a progress bar does."""


class ConsoleLines:
    """One terminal, or the file in its place. One key identifies a stream. Another key identifies its writer, which may have two streams.

    Holds:   all bytes of each stream come out, in order; prefixes and line ends are added; a line end is added only if a stream begins
             to write while another stream's line is unfinished
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}
        self._prefixes: dict[Hashable, bytes] = {}
        self._writers: set[Hashable] = set()
        # The stream whose unfinished text is in the last line, since when, and whether its next byte begins a line.
        self._owner: Hashable | None = None
        self._owner_since = 0.0
        self._at_begin = True

    @property
    def line_open(self) -> bool:
        """Whether the last line has no line end yet."""
        return self._owner is not None

    @property
    def waiting(self) -> bool:
        """Whether text is held that `due` may return later."""
        return any(held.text for held in self._held.values())

    def take(self, stream: Hashable, writer: Hashable, chunk: bytes, now: float, *, prefix: bytes = b"") -> bytes:
        """The bytes for the terminal that follow from a chunk at once: complete lines, and more of the last line if the stream owns it."""
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
        """The text on lines of its own."""
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
        """The line end for another stream's unfinished line; empty if there is none."""
        return b"" if self._owner in (None, stream) else b"\n"

    def _prefixed(self, stream: Hashable, data: bytes) -> bytes:
        prefix = self._prefixes.get(stream, b"")
        if not prefix:
            return data
        goes_on = self._owner == stream and not self._at_begin
        pieces = data.splitlines(keepends=True)
        return b"".join(piece if goes_on and place == 0 else prefix + piece for place, piece in enumerate(pieces))
