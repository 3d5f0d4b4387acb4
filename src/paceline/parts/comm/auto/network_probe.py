"""Measures the links between the ranks of a job with small messages, in about a second, before the first step. See `MeasuredNetwork`."""

import time
from collections.abc import Callable
from typing import Any

import torch

from ..transports.preposted_receives import Tag
from .prediction import MeasuredNetwork

_SMALL_BYTES = 4096
# A ring that would take longer than this is not measured: a hop of it then counts as gloo's usual two latencies.
_LONGEST_RING_SECONDS = 0.6
_GLOO_LATENCIES_A_HOP = 2.0
_FIRST_BYTES = 64 * 1024
_LARGEST_BYTES = 4 * 1024 * 1024
# What a message may take that measures a rate.
_RATE_SECONDS = 0.04
_MEMORY_BYTES = 4 * 1024 * 1024


def measure_network(
    communicator: Any, *, plain_is_hierarchical: bool = False, clock: Callable[[], float] = time.monotonic
) -> MeasuredNetwork:
    """Every rank calls it on a communicator (see communicator.py) of its own; every rank gets the same answer.

    Between hosts, one rank of each host exchanges messages with hosts at distance 1, 2, 4, ..., in both directions at once.
    """
    topology, size = communicator.topology, communicator.size
    hosts = len(topology.hosts)
    leaders = [ranks[0] for ranks in topology.hosts]
    probe = _Probe(communicator, leaders, clock)
    hop, rate, slowest = 0.0, 0.0, None
    if hosts > 1:
        shifts = [1 << power for power in range((hosts - 1).bit_length())]
        hops = probe.agree([probe.message(shift, _SMALL_BYTES, batches=3) for shift in shifts])
        hop = max(max(row) for row in hops)
        first = probe.agree([probe.message(shift, _FIRST_BYTES, batches=1) for shift in shifts])
        wanted = _rate_bytes(max(max(row) for row in first) - hop)
        rows = probe.agree([probe.message(shift, wanted) for shift in shifts])
        seconds, at, index = max((value, at, index) for at, row in enumerate(rows) for index, value in enumerate(row))
        rate = wanted / max(seconds - hop, 1e-9)
        host = next(number for number, ranks in enumerate(topology.hosts) if at in ranks)
        slowest = (leaders[(host - shifts[index]) % hosts], leaders[host])
    ring_hop = _GLOO_LATENCIES_A_HOP * hop
    if 2 * (size - 1) * ring_hop <= _LONGEST_RING_SECONDS:
        seconds = probe.all_reduce(_SMALL_BYTES)
        ring_hop = max(max(row) for row in probe.agree([seconds])) / (2 * (size - 1))
        # A message that is waited for is never slower than one that first has to be asked for.
        hop = min(hop, ring_hop) if size == hosts else hop
    ring_rate = memory_rate = None
    if hosts == 1:
        seconds = max(max(row) for row in probe.agree([probe.all_reduce(_LARGEST_BYTES)]))
        ring_rate = 2 * (size - 1) / size * _LARGEST_BYTES / seconds
    if any(len(ranks) > 1 for ranks in topology.hosts):
        worst = max(max(row) for row in probe.agree([probe.memory()]))
        memory_rate = _MEMORY_BYTES / worst if worst > 0 else None
    return MeasuredNetwork(
        ranks=size,
        hosts=hosts,
        hop_seconds=hop,
        bytes_per_second=rate or ring_rate or 0.0,
        ring_hop_seconds=ring_hop,
        ring_bytes_per_second=ring_rate,
        memory_bytes_per_second=memory_rate,
        slowest=slowest,
        plain_is_hierarchical=plain_is_hierarchical,
    )


def _rate_bytes(seconds_for_first: float) -> int:
    """Bytes of a message that takes about _RATE_SECONDS, if the first one took this long beyond its latency."""
    wanted = _FIRST_BYTES * _RATE_SECONDS / max(seconds_for_first, 1e-6)
    return int(min(max(wanted, _FIRST_BYTES), _LARGEST_BYTES)) // _SMALL_BYTES * _SMALL_BYTES


class _Probe:
    """One rank's part. Measurements between hosts take no time at ranks that do not represent their host."""

    def __init__(self, communicator: Any, leaders: list[int], clock: Callable[[], float]) -> None:
        self._communicator, self._leaders, self._clock = communicator, leaders, clock

    def message(self, shift: int, size_bytes: int, *, batches: int = 2) -> float:
        """Seconds until the message of the host `shift` before mine is here, while mine goes to the host `shift` after it.

        The best of some batches, after one that opens TCP's window. A batch has two messages, because a single one may have been sent
        before this rank began to wait for it.
        """
        if self._communicator.rank not in self._leaders:
            return 0.0
        at, count, receives = (
            self._leaders.index(self._communicator.rank),
            len(self._leaders),
            self._communicator.receives,
        )
        there, here = self._leaders[(at + shift) % count], self._leaders[(at - shift) % count]
        receives.expect(Tag.PUSH, here, size_bytes)
        receives.announce(Tag.PUSH, there, size_bytes)
        message, found = torch.zeros(size_bytes, dtype=torch.uint8), []
        for _ in range(1 + batches):
            began = self._clock()
            for _ in range(2):
                receives.send(Tag.PUSH, there, message)
                receives.take(Tag.PUSH, here, size_bytes)
                receives.release(Tag.PUSH, here)
                receives.finish()
            found.append((self._clock() - began) / 2)
        return min(found[1:])

    def all_reduce(self, size_bytes: int) -> float:
        """Seconds of gloo's all-reduce among all ranks."""
        return self._best(self._communicator.all_reduce, size_bytes)

    def memory(self) -> float:
        """Seconds of an all-reduce through the memory of this rank's host; 0 if the rank is alone on it."""
        return 0.0 if self._communicator.host is None else self._best(self._communicator.host.all_reduce, _MEMORY_BYTES)

    def _best(self, reduce: Callable[[torch.Tensor, str], None], size_bytes: int) -> float:
        tensor, found = torch.zeros(size_bytes // 4), []
        for _ in range(3):
            began = self._clock()
            reduce(tensor, "sum")
            found.append(self._clock() - began)
        return min(found[1:])

    def agree(self, mine: list[float]) -> list[list[float]]:
        """The measurements of every rank, in rank order."""
        return agree(self._communicator, mine)


def agree(communicator: Any, mine: list[float]) -> list[list[float]]:
    """The numbers of every rank, on every rank, so that all ranks decide alike.

    Holds:   each rank gives as many numbers; the result is bitwise the same on every rank
    """
    own = torch.tensor(mine, dtype=torch.float64)
    every = torch.empty(communicator.size * len(mine), dtype=torch.float64)
    communicator.all_gather(every, own)
    found: list[list[float]] = every.view(communicator.size, len(mine)).tolist()
    return found
