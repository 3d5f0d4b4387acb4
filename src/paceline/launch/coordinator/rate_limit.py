"""How much one host may say: what is beyond that waits in its own network buffers, so that no host fills this one's disk or time."""

from dataclasses import dataclass

BYTES_PER_SECOND, BURST_BYTES = 4 << 20, 64 << 20
MESSAGES_PER_SECOND, BURST_MESSAGES = 500.0, 10_000.0


@dataclass(slots=True)
class RateLimit:
    """Two buckets that fill with time. A host of hundreds of ranks uses a tenth of them."""

    at: float
    byte_count: float = BURST_BYTES
    message_count: float = BURST_MESSAGES

    def wait_seconds(self, size_bytes: int, now: float) -> float:
        """For how long the next message of this host is to be left unread.

        Holds:   over any t seconds at most BURST + t x rate is read, the last message excepted
        """
        passed, self.at = max(now - self.at, 0.0), now
        self.byte_count = min(self.byte_count + passed * BYTES_PER_SECOND, BURST_BYTES) - size_bytes
        self.message_count = min(self.message_count + passed * MESSAGES_PER_SECOND, BURST_MESSAGES) - 1
        return max(-self.byte_count / BYTES_PER_SECOND, -self.message_count / MESSAGES_PER_SECOND, 0.0)
