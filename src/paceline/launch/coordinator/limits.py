"""Limits the load that others put on the coordinator: unknown connections, and the messages of one host.

Only few unknown connections are open at once, and fewer from one address, so that many clients use up neither descriptors nor time.
Messages beyond a host's rate wait in that host's network buffers, so that no host can fill this host's disk or use up its time.
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
    """Two token buckets, for bytes and for messages. A host with hundreds of ranks uses a tenth of each."""

    at: float
    """When the buckets were last updated, in seconds on the caller's clock."""
    byte_count: float = BURST_BYTES
    """Number of bytes that may be read at once. Below 0 the host must wait."""
    message_count: float = BURST_MESSAGES
    """Number of messages that may be read at once. Below 0 the host must wait."""

    def wait_seconds(self, size_bytes: int, now: float) -> float:
        """How long to wait before the next message of this host is read.

        Holds:   in any t seconds at most BURST + t x rate is read, not counting the last message
        """
        passed, self.at = max(now - self.at, 0.0), now
        self.byte_count = min(self.byte_count + passed * BYTES_PER_SECOND, BURST_BYTES) - size_bytes
        self.message_count = min(self.message_count + passed * MESSAGES_PER_SECOND, BURST_MESSAGES) - 1
        return max(-self.byte_count / BYTES_PER_SECOND, -self.message_count / MESSAGES_PER_SECOND, 0.0)


@dataclass(slots=True, eq=False)
class PendingConnection:
    """A connection whose agent is not admitted yet."""

    address: str
    """The address from which the connection comes."""
    close: Callable[[], None]
    """Closes the connection."""


@dataclass(slots=True)
class ConnectionLimit:
    """Limits the number of pending connections.

    A new connection always enters. Beyond a limit, the oldest pending connection is closed: the oldest from the same address, or the
    oldest of all.
    """

    _waiting: list[PendingConnection] = field(default_factory=list)
    _told: int = 0

    def enter(self, address: str, close: Callable[[], None]) -> PendingConnection:
        """Add a connection, and close the oldest pending connection if a limit is reached.

        Holds:   at most MOST connections are pending, at most MOST_OF_ONE_ADDRESS from one address
        """
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
        """Remove a connection that was admitted or has ended. A second call does nothing."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def is_worth_telling(self) -> bool:
        """Whether one more refused connection is reported. Only the first MOST_TOLD are."""
        self._told += 1
        return self._told <= MOST_TOLD
