"""How much others may take of the coordinator: connections that nobody knows yet, and what one host may say.

Few unknown connections at once, few of one address, so that a crowd costs neither descriptors nor time. What a host says beyond its rate
waits in its own network buffers, so that no host fills this one's disk or time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

MOST = 64
MOST_OF_ONE_ADDRESS = 16
GREETING_SECONDS = 3.0
MOST_TOLD = 5

BYTES_PER_SECOND, BURST_BYTES = 4 << 20, 64 << 20
MESSAGES_PER_SECOND, BURST_MESSAGES = 500.0, 10_000.0


@dataclass(slots=True)
class RateLimit:
    """Two buckets that fill with time. A host of hundreds of ranks uses a tenth of them."""

    at: float
    """When the buckets were last brought up to date, in seconds of the caller's clock."""
    byte_count: float = BURST_BYTES
    """Bytes that may be read at once; below 0, the host has to wait."""
    message_count: float = BURST_MESSAGES
    """Messages that may be read at once; below 0, the host has to wait."""

    def wait_seconds(self, size_bytes: int, now: float) -> float:
        """For how long the next message of this host is to be left unread.

        Holds:   over any t seconds at most BURST + t x rate is read, the last message excepted
        """
        passed, self.at = max(now - self.at, 0.0), now
        self.byte_count = min(self.byte_count + passed * BYTES_PER_SECOND, BURST_BYTES) - size_bytes
        self.message_count = min(self.message_count + passed * MESSAGES_PER_SECOND, BURST_MESSAGES) - 1
        return max(-self.byte_count / BYTES_PER_SECOND, -self.message_count / MESSAGES_PER_SECOND, 0.0)


@dataclass(slots=True, eq=False)
class PendingConnection:
    """One connection before it has shown what it is."""

    address: str
    """Address that it comes from."""
    close: Callable[[], None]
    """Closes it."""


@dataclass(slots=True)
class ConnectionLimit:
    """The newest comes in, and the one that has said nothing for the longest time goes: of the same address, else of all."""

    _waiting: list[PendingConnection] = field(default_factory=list)
    _told: int = 0

    def enter(self, address: str, close: Callable[[], None]) -> PendingConnection:
        """Holds: at most MOST are waiting, at most MOST_OF_ONE_ADDRESS of one address; those that went were closed."""
        same = [waiting for waiting in self._waiting if waiting.address == address]
        oldest = (
            same[0] if len(same) >= MOST_OF_ONE_ADDRESS else self._waiting[0] if len(self._waiting) >= MOST else None
        )
        if oldest is not None:
            self.leave(oldest)
            oldest.close()
        newcomer = PendingConnection(address, close)
        self._waiting.append(newcomer)
        return newcomer

    def leave(self, waiting: PendingConnection) -> None:
        """It was taken in, or is gone; may be said twice."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def is_worth_telling(self) -> bool:
        """Whether the person is told of one more that was refused: not of a thousand."""
        self._told += 1
        return self._told <= MOST_TOLD
