"""Offset between another machine's clock and ours, from pings and their answers. Pure: the sender passes the times."""

from collections import deque
from dataclasses import dataclass

RECENT_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class _Sample:
    round_trip_ns: int
    offset_ns: int


class OffsetEstimate:
    """The offset of one remote clock, by the fastest of the recent exchanges.

    A delay on the way can change the result by at most half of itself.

    Holds:   |offset_ns - true offset| <= round_trip_ns / 2, as long as the clocks run alike
    Source:  RFC 5905 (NTP), clock filter: the sample with the least delay
    """

    def __init__(self, recent_samples: int = RECENT_SAMPLES) -> None:
        self._samples: deque[_Sample] = deque(maxlen=recent_samples)

    def add(self, sent_ns: int, remote_ns: int, received_ns: int) -> None:
        """One exchange: when we sent, what the other clock showed, when the answer came. Sent and received are stamps of our own clock.

        An answer that is older than its question (our clock was set back meanwhile) is ignored.
        """
        round_trip_ns = received_ns - sent_ns
        if round_trip_ns < 0:
            return
        self._samples.append(_Sample(round_trip_ns, remote_ns - (sent_ns + received_ns) // 2))

    @property
    def offset_ns(self) -> int | None:
        """The remote clock minus ours; None before the first answer."""
        best = self._best()
        return None if best is None else best.offset_ns

    @property
    def round_trip_ns(self) -> int | None:
        """Round trip of the sample behind `offset_ns`; half of it bounds the error."""
        best = self._best()
        return None if best is None else best.round_trip_ns

    def _best(self) -> _Sample | None:
        # Of equally fast samples the newest, because clocks drift.
        return min(reversed(self._samples), key=lambda sample: sample.round_trip_ns, default=None)
