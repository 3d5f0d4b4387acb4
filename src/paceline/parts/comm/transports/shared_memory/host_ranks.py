"""The ranks of one host, connected through shared memory: what its collectives have in common, for any kind of arrays."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from .arrays import Array, Arrays, Function
from .collectives import ANNOUNCEMENT_BYTES, PARTS, Areas, broadcast_pieces, chain_parts, reduce_chain, reduce_together
from .connect import meet
from .segment import Segment, unnamed_file, whole_pages
from .sync import Doorbell

_WIDEST_BYTES = 64  # of an element, and more
_MIB = 1 << 20
# Up to this size, one synchronisation with all additions on every rank is faster than a chain of more than two ranks.
_TOGETHER_BYTES = 1 << 20


def area_bytes_for(size: int) -> int:
    """Memory that each of `size` ranks adds to the segment: more than a core's own cache, and for many ranks their part of 32 MiB.

    Source: bench/exchange_host.py on 2 and 4 ranks and 2 cores; for more ranks it is a guess.
    """
    return max(min(4 * _MIB, 32 * _MIB // size), _MIB // 2)


class HostRanks:
    """Every rank makes the same exchanges in the same order, one at a time, from any thread.

    Raises:  (every exchange) PeerLost; PeerLate: a rank made no progress for `timeout_seconds`; ValueError: ranks that call different
             things. After an error in the middle of an exchange, the others raise PeerLost when they miss this rank, and every later
             exchange here raises RuntimeError.
    """

    arrays: ClassVar[Arrays]
    """What its exchanges move."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        *,
        timeout_seconds: float,
        area_bytes: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """Connect to the other ranks of this host, 0 to size - 1.

        store:      a torch Store, or what has its set, get and wait, whose keys nothing else uses
        area_bytes: of each rank in the shared memory, the same on all; default `area_bytes_for`
        numbers:    the number of each rank in messages, such as its rank in the job; default 0 to size - 1
        Raises:     SharedMemoryUnavailable: on every rank, if these ranks cannot share memory
        """
        self.rank, self.size, self.timeout_seconds = rank, size, timeout_seconds
        self._numbers = list(range(size)) if numbers is None else list(numbers)
        self._over = ""
        self._segment_bytes = 0
        if size > 1:
            self._meet(store, area_bytes)

    def _meet(self, store: Any, area_bytes: int | None) -> None:
        announcements_at = Doorbell.bytes_needed(self.size)
        data_at = whole_pages(announcements_at + self.size * ANNOUNCEMENT_BYTES)
        area_bytes = whole_pages(max(area_bytes or area_bytes_for(self.size), _WIDEST_BYTES * self.size))
        self._segment_bytes = data_at + self.size * area_bytes
        met = meet(store, self.rank, self.size, self.timeout_seconds, lambda: unnamed_file(self._segment_bytes))
        segment = Segment(met.memory, self._segment_bytes)
        self._doorbell = Doorbell(
            segment, self.rank, met.bells, met.lines, numbers=self._numbers, spare_cores=met.cores >= self.size
        )
        self._areas = Areas(
            segment,
            self._doorbell,
            self.rank,
            self.size,
            self.arrays,
            announcements_at=announcements_at,
            data_at=data_at,
            area_bytes=area_bytes,
        )

    def extra_bytes(self) -> int:
        """Memory in addition to the arrays, per rank: its share of the segment, for any size of the arrays."""
        return -(-self._segment_bytes // self.size)

    def close(self) -> None:
        """Leave. A call that waits in another thread raises RuntimeError. The other ranks notice it only when they wait for this rank."""
        self._over = self._over or "it was closed"
        if self.size > 1:
            self._doorbell.close()

    def _reduce_all(self, announcement: bytes, source: Array, target: Array, function: Function, divisor: int) -> None:
        """Set `target` to the reduction of every rank's `source`. Both may be the same."""
        chained = self.size > 2 and source.nbytes > min(_TOGETHER_BYTES, self._areas.area_bytes)
        if chained:
            # Every rank of the chain should have work at the same time.
            length = self._areas.chunk_elements(source.dtype, chain_parts(self.size))
            length = min(length, -(-len(source) // self.size))
        else:
            length = self._areas.chunk_elements(source.dtype, PARTS)
        inputs = self.arrays.cut(source, length)
        outputs = inputs if target is source else self.arrays.cut(target, length)
        steps = reduce_chain if chained else reduce_together
        self._run(announcement, len(inputs), steps, inputs, outputs, function, divisor=divisor)

    def _broadcast(self, announcement: bytes, octets: Array, root: int) -> None:
        """Replace every rank's bytes by those of `root`."""
        pieces = self.arrays.cut(octets, self._areas.chunk_elements(octets.dtype, PARTS))
        self._run(announcement, len(pieces), broadcast_pieces, pieces, root)

    def _run(
        self, announcement: bytes, chunks: int, steps: Callable[..., None], *arguments: Any, **options: Any
    ) -> None:
        """Run one exchange. An error in it leaves the ranks in different states, from which they cannot continue."""
        if self._over:
            raise RuntimeError(f"this exchange among the ranks of a host is over: {self._over}")

        def check(peer: int) -> None:
            if (theirs := self._areas.announced(peer)) != announcement:
                raise ValueError(
                    f"the ranks of this host call different things: rank {self._numbers[self.rank]} {announcement.decode()}, "
                    f"rank {self._numbers[peer]} {theirs.decode(errors='replace')}"
                )

        end = self._areas.first + chunks
        self._doorbell.timeout_seconds = self.timeout_seconds
        self._doorbell.begin(end)
        try:
            self._areas.announce(announcement)
            steps(self._areas, *arguments, check=check, **options)
            self._areas.first = end
        except BaseException as error:
            self._over = self._over or f"{type(error).__name__}: {error}"
            self._doorbell.leave(getattr(error, "rank", self._numbers[self.rank]), str(error) or type(error).__name__)
            raise
        finally:
            self._doorbell.end()


@lru_cache(maxsize=1024)
def announcement_of(name: str, op: str, numel: int, dtype: Any) -> bytes:
    """The text that a rank announces. A message shows it if another rank announces something else."""
    return f"calls {' '.join(filter(None, (name, op)))} of {numel} {str(dtype).removeprefix('torch.')}".encode()
