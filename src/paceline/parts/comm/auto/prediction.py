"""Predicts the step time for each strategy and bucket size from measurements. It is plain arithmetic: every rank gets the same answer.

A prediction changes one part of a measured step, the exposed exchange; the other parts stay as measured under plain DDP.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...plan.planner.collective import (
    FIRST_BUCKET_BYTES,
    MIB,
    Link,
    all_reduce_seconds,
    direct_seconds,
    hierarchical_seconds,
    lanes_exposed_seconds,
)

PLAIN = "plain"
# What a strategy must be expected to gain before it is tried, as a fraction of the step: less is within what is not known here.
LEAST_GAIN = 0.05
# A bucket's way through a hook in Python and a thread, and what one pass over its bytes costs a core besides: guards against winning
# on paper only. Measured with 2 ranks on 2 cores; a trial has the last word.
HOOK_SECONDS = 0.4e-3
PASS_BYTES_PER_SECOND = 3e9
# gloo's own threads (torch 2.13, ProcessGroupGloo::Options), and as many as a strategy has.
LANES = 2
BUCKET_CAPS = tuple(mib * MIB for mib in (1, 2, 5, 10, 25, 50, 100, 200))
# Fraction of the bytes that a wrapper sends, and how often it goes over a bucket.
WRAPPERS = {"": (1.0, 1), "bf16": (0.5, 2), "int8": (0.26, 5)}
# Several senders at a time to one receiver: how much longer than one after the other. Measured: 4 hosts at 100 Mbit/s, 1 and 4 MiB.
_INCAST = 1.25
# How far the measured exposure of plain DDP may correct a prediction: beyond, something else than the network holds the ranks up.
_CORRECTION = (0.5, 2.0)
# How far plain DDP may be faster than the probe: 2 to the power of this.
_MOST_DOUBLINGS = 6.0


@dataclass(frozen=True, kw_only=True)
class MeasuredNetwork:
    """Measurements of the links between the ranks."""

    ranks: int
    """Of all hosts."""
    hosts: int
    """Number of hosts."""
    hop_seconds: float
    """One message, one way, between the two hosts that are worst connected; 0 on one host."""
    bytes_per_second: float
    """Of the same link; 0 on one host."""
    ring_hop_seconds: float
    """A hop of gloo's all-reduce among all ranks, whose messages wait until they are asked for."""
    ring_bytes_per_second: float | None = None
    """Bus bandwidth of that all-reduce; None: only links between hosts were measured."""
    memory_bytes_per_second: float | None = None
    """Of an all-reduce through shared memory among the ranks of a host, bytes of the buffer; None: there is none."""
    slowest: tuple[int, int] | None = None
    """The ranks at the two ends of the worst link."""
    plain_is_hierarchical: bool = False
    """The script's own group is of the backend `paceline`."""


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """A measured step of plain DDP on the slowest rank."""

    gradient_bytes: tuple[int, ...]
    """Bytes of each parameter's gradient, in the order of readiness."""
    step_seconds: float
    """Duration of the step."""
    backward_seconds: float
    """Time in which the gradients become ready."""
    exposed_seconds: float | None
    """Time that the exchange delayed the step; None: not known."""
    bucket_cap_bytes: int = 25 * MIB
    """DDP's bucket size."""
    first_bucket_bytes: int = FIRST_BUCKET_BYTES
    """Size of DDP's first bucket."""
    may_change_buckets: bool = True
    """Another bucket size may be chosen."""


@dataclass(frozen=True, kw_only=True)
class PredictedChoice:
    """A strategy with its bucket size, and the expected step time."""

    strategy: str
    """Name of the strategy; PLAIN: DDP's own exchange in C++."""
    bucket_cap_bytes: int
    """Bucket size."""
    step_seconds: float
    """Expected step time."""


def candidates(network: MeasuredNetwork, *, allow_lossy: bool) -> tuple[str, ...]:
    """The strategies worth predicting. If two have the same predicted time, the first is chosen.

    Left out are strategies that send more than others without a gain, and `powersgd` and `local_sgd`, whose cost in steps to the same loss
    a measurement of a few steps does not show.
    """
    if network.hosts == 1:
        return ("hierarchical",) if network.memory_bytes_per_second and not network.plain_is_hierarchical else ()
    # Its own fusing begins there, and here the buckets are of the size that is wanted.
    direct = "direct:fuse_mib=0" if network.hosts > 8 else "direct"
    exact = (direct, "hierarchical")
    lossy = tuple(f"{name}+{wrapper}" for wrapper in ("bf16", "int8") for name in exact)
    return (*exact, *lossy) if allow_lossy else exact


def choose(training: StepProfile, network: MeasuredNetwork, strategies: Sequence[str]) -> PredictedChoice:
    """The fastest of the strategies and of plain DDP with other buckets; plain DDP as it is, if none is clearly faster.

    Holds:   the result is plain, or its step_seconds <= (1 - LEAST_GAIN) * training.step_seconds
    """
    as_it_is = PredictedChoice(
        strategy=PLAIN, bucket_cap_bytes=training.bucket_cap_bytes, step_seconds=training.step_seconds
    )
    network = as_observed(training, network)
    known = [name for name in strategies if _cost_of(name)]
    caps = _caps(training)
    if network.hosts > 1:
        known.append(PLAIN)
    else:
        # There the exchange takes the cores of the computation that smaller buckets would hide it behind.
        caps = (training.bucket_cap_bytes,)
    found = [predict(training, network, name, cap) for name in known for cap in caps]
    best = min(found, key=lambda choice: choice.step_seconds, default=as_it_is)
    return best if best.step_seconds <= (1 - LEAST_GAIN) * training.step_seconds else as_it_is


def as_observed(training: StepProfile, network: MeasuredNetwork) -> MeasuredNetwork:
    """The network, with at least the rate that plain DDP reached. A probe may measure less, because TCP opens its window slowly.

    Holds:   no rate is less than before; the exposed exchange of plain DDP by the result is not more than measured, if rates can do that
    """
    if training.exposed_seconds is None:
        return network

    def faster(times: float) -> MeasuredNetwork:
        ring = network.ring_bytes_per_second
        return replace(
            network,
            bytes_per_second=network.bytes_per_second * times,
            ring_bytes_per_second=ring * times if ring is not None else None,
        )

    def is_too_slow(times: float) -> bool:
        assert training.exposed_seconds is not None
        return _exposed(training, faster(times), PLAIN, training.bucket_cap_bytes) > training.exposed_seconds

    low, high = 0.0, _MOST_DOUBLINGS
    if not is_too_slow(1.0):
        return network
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if is_too_slow(2.0**middle) else (low, middle)
    return faster(2.0**high)


def predict(training: StepProfile, network: MeasuredNetwork, strategy: str, bucket_cap_bytes: int) -> PredictedChoice:
    """The predicted step; with unchanged buckets, plain DDP is as measured.

    Holds:   predict(plain, its own bucket size).step_seconds == training.step_seconds
    Raises:  KeyError: the cost of the strategy is not known
    """
    plain = _exposed(training, network, PLAIN, training.bucket_cap_bytes)
    measured = plain if training.exposed_seconds is None else training.exposed_seconds
    measured = min(measured, 0.95 * training.step_seconds)
    low, high = _CORRECTION
    correction = min(max(measured / plain, low), high) if plain > 0 else 1.0
    if strategy == PLAIN and bucket_cap_bytes == training.bucket_cap_bytes:
        exposed = measured
    else:
        exposed = correction * _exposed(training, network, strategy, bucket_cap_bytes)
    step = training.step_seconds - measured + exposed
    return PredictedChoice(strategy=strategy, bucket_cap_bytes=bucket_cap_bytes, step_seconds=step)


def buckets_of(gradient_bytes: Sequence[int], *, cap_bytes: int, first_bytes: int) -> tuple[int, ...]:
    """Bytes of DDP's buckets: a bucket ends with the gradient that fills it.

    Holds:   sum of the result == sum of gradient_bytes
    Source:  torch 2.13 reducer.cpp, compute_bucket_assignment_by_size
    """
    closed, filled, limit = [], 0, first_bytes
    for size in gradient_bytes:
        filled += size
        if filled >= limit:
            closed.append(filled)
            filled, limit = 0, cap_bytes
    return (*closed, filled) if filled else tuple(closed)


def _caps(training: StepProfile) -> tuple[int, ...]:
    if not training.may_change_buckets:
        return (training.bucket_cap_bytes,)
    whole = sum(training.gradient_bytes)
    return (training.bucket_cap_bytes, *(cap for cap in BUCKET_CAPS if cap < 2 * whole))


def _exposed(training: StepProfile, network: MeasuredNetwork, strategy: str, cap_bytes: int) -> float:
    first = min(training.first_bucket_bytes, cap_bytes)
    sizes = buckets_of(training.gradient_bytes, cap_bytes=cap_bytes, first_bytes=first)
    cost = _cost_of(strategy)
    if cost is None:
        raise KeyError(strategy)
    costs = [cost(size, network) for size in sizes]
    codec, wait = [part[0] for part in costs], [part[1] for part in costs]
    return lanes_exposed_seconds(codec, wait, sizes, training.backward_seconds, lanes=LANES)


# What fills the link, and what only waits, in seconds.
_Cost = Callable[[float, MeasuredNetwork], tuple[float, float]]


def _cost_of(strategy: str) -> _Cost | None:
    """The cost of a strategy; None if it is not known here, so that a prediction never chooses it."""
    if strategy == PLAIN:
        return _plain
    name, _, wrapper = strategy.partition("+")
    name = name.partition(":")[0]
    if name in WRAPPERS and not wrapper:
        name, wrapper = "ring", name
    inner = _COSTS.get(name)
    if inner is None or wrapper not in WRAPPERS:
        return None
    fraction, passes = WRAPPERS[wrapper]

    def cost(size: float, network: MeasuredNetwork) -> tuple[float, float]:
        codec, wait = inner(size * fraction, network)
        return codec, wait + HOOK_SECONDS + passes * size / PASS_BYTES_PER_SECOND

    return cost


def _plain(size: float, network: MeasuredNetwork) -> tuple[float, float]:
    return _hierarchical(size, network) if network.plain_is_hierarchical else _ring(size, network)


def _ring(size: float, network: MeasuredNetwork) -> tuple[float, float]:
    link = _link(network.ring_bytes_per_second or network.bytes_per_second)
    wait = all_reduce_seconds(0.0, network.ranks, link, hop_seconds=network.ring_hop_seconds)
    return all_reduce_seconds(size, network.ranks, link), wait


def _direct(size: float, network: MeasuredNetwork) -> tuple[float, float]:
    hosts = network.hosts
    if hosts == 1:
        return _hierarchical(size, network)
    link = _link(network.bytes_per_second / (_INCAST if hosts > 2 else 1.0))
    wait = direct_seconds(0.0, hosts, link, hop_seconds=network.hop_seconds)
    return direct_seconds(size, hosts, link), wait + _inside(size, network)


def _hierarchical(size: float, network: MeasuredNetwork) -> tuple[float, float]:
    hosts, inside = network.hosts, _inside(size, network)
    if hosts == 1:
        # On one host the limit is the bandwidth of memory.
        return (inside, 0.0) if inside else _ring(size, network)
    link = _link(network.bytes_per_second)
    wait = hierarchical_seconds(0.0, 1, hosts, None, link, hop_seconds=network.hop_seconds)
    return hierarchical_seconds(size, 1, hosts, None, link), wait + inside


def _inside(size: float, network: MeasuredNetwork) -> float:
    if network.memory_bytes_per_second is None or network.ranks == network.hosts:
        return 0.0
    return size / network.memory_bytes_per_second


def _link(bytes_per_second: float) -> Link:
    return Link(kind="measured", bytes_per_second=bytes_per_second, latency_seconds=0.0)


_COSTS: dict[str, _Cost] = {
    "ring": _ring,
    "direct": _direct,
    "parameter_server": _direct,
    "hierarchical": _hierarchical,
}
