"""Measured steps that cannot be right, or are too unusual to extrapolate from without a warning.

Judged from the numbers alone; a doubt is a warning, never a reason to refuse. `bench/accuracy.py` counts how many rows that their
collectors flagged draw one, and how many sound rows do.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from paceline.parts.plan.planner.answer import Fit
from paceline.parts.plan.planner.collective import all_reduce_seconds
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.memory import GIB, memory
from paceline.parts.plan.planner.roofline import peak_flops
from paceline.parts.plan.planner.scaling import Shape, exchange_seconds
from paceline.parts.plan.planner.workload import Measurement, Precision, Strategy, Workload

# Throughput of n devices is at least this many times that of one before it counts as growing at all.
FLAT_TIMES = 1.3
# One machine repeats itself within 2 %, equal machines within 2 %: more than both is not noise.
SUPERLINEAR = 0.95
# Where the exchange inside a host is this share of a step and more, the step grows by about all of it (see fitted_constants.py); by
# less than a quarter is rare.
WEIGHTY_EXCHANGE = 0.03
HIDDEN_SHARE = 0.25
# Backward's share of a step: two multiplications for each of forward.
BACKWARD_SHARE = 2 / 3
NOISE = 0.01
# Most of a matrix unit's peak that a training step reached in the rows and in published model FLOP utilizations; less than any sound row's.
MOST_OF_PEAK = 0.70
LEAST_OF_PEAK = 0.025
# Launching one operation takes about 10 us and a step has hundreds: steps this short differ by 7 % between equal machines.
SHORT_SECONDS = 0.010
# Backward writes every gradient, the update reads it, and reads and writes the parameter.
UPDATE_PASSES = 4


def doubts(machines: Machines, workload: Workload, measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """A sentence for each contradiction between the measurements and the machines or the other measurements."""
    found: list[str] = []
    for measured in measurements:
        found += _alone(machines, workload, measured)
    ordered = sorted(measurements, key=lambda one: one.devices)
    for small, large in pairwise(ordered):
        if large.devices > small.devices and small.batch == large.batch:
            found += _together(machines, workload, small, large)
    return tuple(dict.fromkeys(found))


def too_short_to_update(machines: Machines, workload: Workload, measured: Measurement) -> bool:
    """Whether the device's memory is too slow for an update of these parameters in the measured step.

    Then the time is not that of a step (of a sample, of a token), or the gradients are not this job's; a shard may be any size.
    """
    least = _update_seconds(machines, workload)
    return least is not None and measured.step_seconds < least


def _update_seconds(machines: Machines, workload: Workload) -> float | None:
    device, size = machines.device, workload.gradient_bytes
    if device is None or device.memory_gb_per_second is None or size is None or workload.strategy is Strategy.FSDP:
        return None
    return UPDATE_PASSES * size / (device.memory_gb_per_second * 1e9)


def _alone(machines: Machines, workload: Workload, measured: Measurement) -> Iterator[str]:
    seconds = measured.step_seconds
    if seconds < SHORT_SECONDS:
        yield (
            f"the measured step takes {seconds * 1e3:.3g} ms: steps this short are mostly launches and waiting, and differ by 7 % and "
            "more between equal machines"
        )
    least = _update_seconds(machines, workload)
    if least is not None and seconds < least:
        yield (
            f"the measured step takes {seconds * 1e3:.3g} ms, an update of {(workload.gradient_bytes or 0) / 1024**2:.4g} MiB at least "
            f"{least * 1e3:.3g} ms: the time is not that of a whole step, or the gradients are smaller; their size is not used"
        )
    else:
        yield from _exchange_alone(machines, workload, measured)
    yield from _memory(machines, workload, measured)
    batch = measured.batch or workload.batch
    if workload.flops is None or machines.device is None or not workload.batch or not batch:
        return
    peak = peak_flops(machines.device, workload.precision or Precision.FP32)
    if peak is None:
        return
    share = workload.flops * batch / workload.batch / seconds / peak
    if share > MOST_OF_PEAK:
        yield f"the measured step would need {share:.0%} of the peak of {machines.device.name}: more than training reaches"
    elif share < LEAST_OF_PEAK:
        yield f"the measured step uses {share:.1%} of the peak of {machines.device.name}: something other than the device limits it"


def _memory(machines: Machines, workload: Workload, measured: Measurement) -> Iterator[str]:
    """A step that ran fitted its device."""
    device = machines.device
    if device is None or device.memory_gib is None or workload.activation_bytes is None:
        return
    needed = memory(
        workload, capacity_bytes=round(device.memory_gib * GIB), devices=measured.devices, batch=measured.batch
    )
    if needed.verdict is Fit.DOES_NOT_FIT and needed.need_bytes is not None:
        yield (
            f"the measured step needs {needed.need_bytes / GIB:.3g} GiB of a {device.name} that has {device.memory_gib:g}: the activations "
            "given are too high, or it ran on another device or at another batch"
        )


def _exchange_alone(machines: Machines, workload: Workload, measured: Measurement) -> Iterator[str]:
    """A step cannot be shorter than its own exchange."""
    if measured.devices == 1 or workload.gradient_bytes is None:
        return
    shape = Shape(measured.hosts, max(1, measured.devices // measured.hosts))
    least = 0.0
    for ranks, link in ((shape.per_host, machines.intra), (shape.hosts, machines.inter)):
        if ranks > 1 and link is not None:
            least += all_reduce_seconds(workload.gradient_bytes, ranks, link) - link.latency_seconds
    if least > measured.step_seconds:
        yield (
            f"the measured step of {measured.devices} devices takes {measured.step_seconds * 1e3:.3g} ms, the exchange of its gradients "
            f"alone {least * 1e3:.3g} ms over these links: the links are better than stated, or nothing was exchanged"
        )


def _together(machines: Machines, workload: Workload, small: Measurement, large: Measurement) -> Iterator[str]:
    times = large.devices / small.devices
    ratio = large.step_seconds / small.step_seconds
    sizes = f"{small.devices} and {large.devices} devices"
    if times / ratio < min(FLAT_TIMES, times**0.5):
        yield (
            f"throughput hardly grows between {sizes} ({times / ratio:.2f} times): the devices wait for something that they share, or the "
            "batch given is not that of each device"
        )
    elif ratio < SUPERLINEAR:
        yield f"each device is {1 / ratio - 1:.0%} faster among {large.devices} than among {small.devices}: the two runs were not alike"
    else:
        yield from _hidden(machines, workload, small, large)


def _hidden(machines: Machines, workload: Workload, small: Measurement, large: Measurement) -> Iterator[str]:
    """An exchange that takes time leaves a trace in the larger step."""

    def exchange(measured: Measurement) -> tuple[float, float]:
        shape = Shape(measured.hosts, max(1, measured.devices // measured.hosts))
        inside, between = exchange_seconds(shape, workload, machines.intra, machines.inter)
        return (inside or 0.0) / small.step_seconds, (between or 0.0) / small.step_seconds

    inside, between = (after - before for after, before in zip(exchange(large), exchange(small), strict=True))
    growth = large.step_seconds / small.step_seconds - 1
    # Between hosts a good overlap hides what backward is long enough for; inside one the devices themselves carry the exchange.
    least = max(HIDDEN_SHARE * inside, between - BACKWARD_SHARE)
    if inside + between >= WEIGHTY_EXCHANGE and growth < max(least, NOISE if inside >= WEIGHTY_EXCHANGE else 0.0):
        way = "grows" if growth >= 0 else "shrinks"
        yield (
            f"the step {way} by {abs(growth):.1%} between {small.devices} and {large.devices} devices, the exchange alone grows by "
            f"{inside + between:.0%} of a step over these links: the links are better than stated, or nothing was exchanged"
        )
