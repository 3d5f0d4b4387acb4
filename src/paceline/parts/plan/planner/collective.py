"""Time of an exchange among ranks: plain arithmetic, standard library only, because ranks use it too."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

MIB = 1024 * 1024

# torch's DDP: the first bucket is small so that the exchange starts early, the others hold 25 MiB.
# Source: torch 2.13 torch/nn/parallel/distributed.py, `bucket_cap_mb=25`; dist._DEFAULT_FIRST_BUCKET_BYTES.
FIRST_BUCKET_BYTES = MIB
BUCKET_BYTES = 25 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What ranks exchange over, as a collective sees it."""

    kind: str
    """Such as nvlink3, pcie4, efa, tcp or infiniband."""
    bytes_per_second: float
    """Bus bandwidth (nccl-tests) of a rank that large messages reach, one direction; between hosts of a whole host."""
    latency_seconds: float
    """Of one collective's smallest message."""
    ramp_seconds_per_root_byte: float = 0.0
    """What messages between the two cost besides, times the root of the bytes."""
    flow_bytes_per_second: float | None = None
    """The most that all connections to one neighbour carry; None: no such cap."""
    source: str = ""
    """Where the figures are from; "measured here" for a probe."""
    points: tuple[tuple[float, float], ...] = ()
    """(bytes, seconds) of all-reduces, growing; they are used in place of the formula."""
    ranks: int | None = None
    """Ranks that `points` were measured among."""


def all_reduce_seconds(size_bytes: float, ranks: int, link: Link, *, hop_seconds: float | None = None) -> float:
    """Time of one ring all-reduce when nothing overlaps it.

    `hop_seconds`: what one message takes from a rank to the next; 2 (n - 1) of them follow each other, as in gloo's ring, and they take
    the place of the link's latency. None: that latency, however many ranks there are, as NCCL's is measured.

    Units:   bytes of the whole buffer, seconds
    Holds:   ranks == 1 -> 0.0; without ramp, doubling size_bytes doubles the bandwidth term only
    Raises:  ValueError: ranks < 1 or size_bytes < 0
    Source:  nccl-tests doc/PERFORMANCE.md, "AllReduce": busbw = size / time * 2 (n - 1) / n
    """
    if hop_seconds is not None:
        link = replace(link, latency_seconds=2 * (ranks - 1) * hop_seconds, points=())
    _sound(size_bytes, ranks)
    if ranks == 1:
        return 0.0
    return _from_points(size_bytes, ranks, link) if link.points else _formula_seconds(size_bytes, ranks, link)


def direct_seconds(size_bytes: float, ranks: int, link: Link, *, hop_seconds: float | None = None) -> float:
    """Time of an all-reduce in two hops: each rank sends every other rank its shard, sums, and sends the sum back.

    The bytes are those of a ring, the latency is two messages however many ranks there are; every pair keeps connections of its own,
    so a cap per connection hurts less. `hop_seconds`: as for all_reduce_seconds; here two follow each other.

    Units:   bytes of the whole buffer, seconds
    Holds:   ranks == 1 -> 0.0; ranks == 2 -> as long as a ring without a flow cap
    Raises:  ValueError: ranks < 1 or size_bytes < 0
    Source:  Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH", section 4
    """
    _sound(size_bytes, ranks)
    if hop_seconds is not None:
        link = replace(link, latency_seconds=2 * hop_seconds)
    return 0.0 if ranks == 1 else _formula_seconds(size_bytes, ranks, link, flows=ranks - 1)


def hierarchical_seconds(
    size_bytes: float,
    devices_per_host: int,
    hosts: int,
    intra: Link | None,
    inter: Link | None,
    *,
    hop_seconds: float | None = None,
) -> float:
    """Time of an all-reduce in three parts: reduce-scatter in each host, all-reduce of the shards between hosts, all-gather in each host.

    The devices of a host share its network, so between hosts the whole buffer passes it: `inter.bytes_per_second` is a host's.
    `hop_seconds`: of one message between hosts, as for all_reduce_seconds.

    Units:   bytes of the whole buffer, seconds
    Holds:   hosts == 1 -> all_reduce_seconds over `intra`; devices_per_host == 1 -> all_reduce_seconds over `inter`
    Raises:  ValueError: a count < 1, size_bytes < 0, or a link that is needed and not given
    Source:  NCCL and Horovod hierarchical all-reduce; Jia et al. 2018, "Highly scalable deep learning training system"
    """
    inside = 0.0
    if devices_per_host > 1:
        if intra is None:
            raise ValueError("several devices a host and no link between them")
        inside = all_reduce_seconds(size_bytes, devices_per_host, intra)
    if hosts == 1:
        return inside
    if inter is None:
        raise ValueError("several hosts and no link between them")
    return inside + all_reduce_seconds(size_bytes, hosts, inter, hop_seconds=hop_seconds)


def bucket_sizes(
    gradient_bytes: float, *, cap_bytes: float = BUCKET_BYTES, first_bytes: float = FIRST_BUCKET_BYTES
) -> tuple[float, ...]:
    """Sizes of DDP's buckets in the order of their exchange, as if a tensor could be cut anywhere.

    Units:   bytes
    Holds:   sum of the result == gradient_bytes
    Source:  torch 2.13 torch/nn/parallel/distributed.py
    """
    first = min(first_bytes, gradient_bytes)
    sizes = [first] if first > 0 else []
    left = gradient_bytes - first
    while left > 0:
        sizes.append(min(cap_bytes, left))
        left -= sizes[-1]
    return tuple(sizes)


def buckets_seconds(gradient_bytes: float, ranks: int, link: Link, *, cap_bytes: float = BUCKET_BYTES) -> float:
    """Time of DDP's all-reduces of all buckets one after the other, when nothing overlaps them.

    Units:   bytes, seconds
    Holds:   as long as the sum of all_reduce_seconds over bucket_sizes
    """
    if ranks == 1 or gradient_bytes <= 0:
        return 0.0
    first = min(float(FIRST_BUCKET_BYTES), gradient_bytes)
    full, last = divmod(gradient_bytes - first, cap_bytes)
    seconds = all_reduce_seconds(first, ranks, link)
    if full:
        seconds += full * all_reduce_seconds(cap_bytes, ranks, link)
    return seconds + (all_reduce_seconds(last, ranks, link) if last else 0.0)


def exposed_seconds(bucket_seconds: Sequence[float], bucket_bytes: Sequence[float], backward_seconds: float) -> float:
    """The rest of the exchange after backward: a bucket starts when its gradients are ready and the previous bucket is done.

    Gradients are assumed to become ready evenly over backward, by bytes.

    Units:   seconds, bytes
    Holds:   backward_seconds == 0 -> sum(bucket_seconds); never less than the last bucket's time
    Source:  Li et al. 2020, "PyTorch Distributed", VLDB'20, section 3.2
    """
    total = sum(bucket_bytes)
    if not bucket_seconds or total <= 0:
        return 0.0
    done = ready_bytes = 0.0
    for seconds, size in zip(bucket_seconds, bucket_bytes, strict=True):
        ready_bytes += size
        done = max(done, backward_seconds * ready_bytes / total) + seconds
    return max(0.0, done - backward_seconds)


def lanes_exposed_seconds(
    wire_seconds: Sequence[float],
    wait_seconds: Sequence[float],
    bucket_bytes: Sequence[float],
    backward_seconds: float,
    *,
    lanes: int,
) -> float:
    """As exposed_seconds, if `lanes` buckets may be under way: while one waits for a message, another uses the shared link.

    Units:   seconds, bytes; of a bucket's exchange `wire_seconds` fill the link, `wait_seconds` leave it free
    Holds:   lanes == 1 -> exposed_seconds of the sums; never more than that
    Raises:  ValueError: lanes < 1
    Source:  torch 2.13 ProcessGroupGloo: two threads take its collectives in turn
    """
    if lanes < 1:
        raise ValueError(f"{lanes} lanes")
    total = sum(bucket_bytes)
    if not bucket_bytes or total <= 0:
        return 0.0
    wire_free = ready_bytes = 0.0
    lane_free = [0.0] * lanes
    for number, (wire, wait, size) in enumerate(zip(wire_seconds, wait_seconds, bucket_bytes, strict=True)):
        ready_bytes += size
        begin = max(lane_free[number % lanes], backward_seconds * ready_bytes / total)
        wire_free = max(begin, wire_free) + wire
        lane_free[number % lanes] = max(wire_free, begin + wire + wait)
    return max(0.0, max(lane_free) - backward_seconds)


def _from_points(size_bytes: float, ranks: int, link: Link) -> float:
    """Along the measured curve; other counts of ranks move along it with the bytes that cross a wire."""
    measured = link.ranks or ranks
    share = (ranks - 1) / ranks / ((measured - 1) / measured) if measured > 1 else 1.0
    size = size_bytes * share
    last_size, last_seconds = link.points[-1]
    if size <= last_size:
        return interpolate(size, link.points)
    return last_seconds * _formula_seconds(size, measured, link) / _formula_seconds(last_size, measured, link)


def _formula_seconds(size_bytes: float, ranks: int, link: Link, *, flows: int = 1) -> float:
    wire_bytes = size_bytes * 2 * (ranks - 1) / ranks
    ramp = link.ramp_seconds_per_root_byte * math.sqrt(size_bytes)
    return link.latency_seconds + ramp + wire_bytes / _rate(link, flows=flows)


def interpolate(size_bytes: float, points: Sequence[tuple[float, float]]) -> float:
    """Seconds at a size between measured sizes: a monotone cubic through the logarithms of both.

    Below the smallest size its seconds: the latency. Above the largest, its rate.

    Units:   bytes, seconds; points grow in bytes
    Holds:   at a measured size -> the measured seconds; seconds that grow with the size stay so in between
    Source:  Fritsch and Butland 1984, "A method for constructing local monotone piecewise cubic interpolants"
    """
    first_size, first_seconds = points[0]
    last_size, last_seconds = points[-1]
    if size_bytes <= first_size:
        return first_seconds
    if size_bytes >= last_size:
        return last_seconds * size_bytes / last_size
    at = bisect_left([size for size, _ in points], size_bytes)
    near = [(math.log(size), math.log(seconds)) for size, seconds in points[max(0, at - 2) : at + 2]]
    left = at - 1 - max(0, at - 2)
    (low, low_value), (high, high_value) = near[left], near[left + 1]
    width = high - low
    here = (math.log(size_bytes) - low) / width
    slope, after = _tangent(near, left), _tangent(near, left + 1)
    value = (
        low_value * (1 + 2 * here) * (1 - here) ** 2
        + width * slope * here * (1 - here) ** 2
        + high_value * here**2 * (3 - 2 * here)
        + width * after * here**2 * (here - 1)
    )
    return math.exp(value)


def _tangent(near: Sequence[tuple[float, float]], at: int) -> float:
    """Slope of the cubic at a point: between those of the pieces beside it, 0 where they differ in sign; at an end its piece's."""

    def piece(left: int) -> tuple[float, float]:
        (low, low_value), (high, high_value) = near[left], near[left + 1]
        return high - low, (high_value - low_value) / (high - low)

    if at == 0 or at == len(near) - 1:
        return piece(max(0, at - 1))[1]
    (width, slope), (next_width, next_slope) = piece(at - 1), piece(at)
    if slope * next_slope <= 0:
        return 0.0
    weight, next_weight = 2 * next_width + width, next_width + 2 * width
    return (weight + next_weight) / (weight / slope + next_weight / next_slope)


def _rate(link: Link, *, flows: int) -> float:
    if link.flow_bytes_per_second is None:
        return link.bytes_per_second
    return min(link.bytes_per_second, link.flow_bytes_per_second * flows)


def _sound(size_bytes: float, ranks: int) -> None:
    if ranks < 1:
        raise ValueError(f"{ranks} ranks")
    if size_bytes < 0:
        raise ValueError(f"{size_bytes} bytes")
