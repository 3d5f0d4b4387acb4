"""Connections that nobody knows yet: few at once, few of one address, so that a crowd costs the agent neither descriptors nor time."""

from collections.abc import Callable
from dataclasses import dataclass, field

MOST = 64
MOST_OF_ONE_ADDRESS = 16
GREETING_SECONDS = 3.0
MOST_TOLD = 5


@dataclass(slots=True, eq=False)
class PendingConnections:
    """One connection before it has shown what it is."""

    address: str
    close: Callable[[], None]


@dataclass(slots=True)
class ConnectionLimit:
    """The newest comes in, and the one that has said nothing for the longest time goes: of the same address, else of all."""

    _waiting: list[PendingConnections] = field(default_factory=list)
    _told: int = 0

    def enter(self, address: str, close: Callable[[], None]) -> PendingConnections:
        """Holds: at most MOST are waiting, at most MOST_OF_ONE_ADDRESS of one address; those that went were closed."""
        same = [waiting for waiting in self._waiting if waiting.address == address]
        oldest = (
            same[0] if len(same) >= MOST_OF_ONE_ADDRESS else self._waiting[0] if len(self._waiting) >= MOST else None
        )
        if oldest is not None:
            self.leave(oldest)
            oldest.close()
        newcomer = PendingConnections(address, close)
        self._waiting.append(newcomer)
        return newcomer

    def leave(self, waiting: PendingConnections) -> None:
        """It was taken in, or is gone; may be said twice."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def is_worth_telling(self) -> bool:
        """Whether the person is told of one more that was refused: not of a thousand."""
        self._told += 1
        return self._told <= MOST_TOLD
