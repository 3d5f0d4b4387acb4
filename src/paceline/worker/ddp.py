"""Exposed communication of DistributedDataParallel, from the timers that its reducer keeps anyway.

DDP exchanges its buckets in C++, where no Python patch sees it. Its logger times chosen iterations: when the gradients of the last
bucket were ready, and when the last bucket had been exchanged. The difference is what the exchange held up the step by. Logging one
iteration costs time in proportion to the number of parameters, and so does reading it, so every n-th iteration is logged, with n such
that both together stay below `BUDGET_NS` per step, and its value is held for the steps until the next one.

How exact: for a logged iteration, exact on a CPU backend, and exact to the CUDA events on a device. The total is a sample mean, so
right for a run whose steps resemble each other; the communication of one single step is not, where n > 1. Broadcasts of buffers in the
forward pass and the exchange of `no_sync` microbatches are not in it. On a device DDP's own rate of 100 is left as it is,
because reading its timers makes the CPU wait for the device.
"""

import functools
import weakref
from time import monotonic_ns
from typing import Any

from ..recording.ring import Basis, Instrument, Phase
from .this_rank import ThisRank, this_rank

BUDGET_NS = 4_000
DEVICE_SAMPLE_EVERY = 100
SHORTEST_SAMPLE_EVERY = 4
# DDP itself logs each of its first ten iterations, warm-up among them.
FIRST_READ_STEP = 3


class SampledReducer:
    """Reads one DDP module's timers every `every` steps and holds the value between."""

    def __init__(self, module: Any) -> None:
        self._module = weakref.ref(module)
        self._on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters())
        self._every = SHORTEST_SAMPLE_EVERY if self._on_cpu else DEVICE_SAMPLE_EVERY
        self._steps_left = FIRST_READ_STEP
        self._steps_since = 0
        self._iteration = 0
        self._cheapest_ns = 1 << 62
        self._rate_was_set = False
        self._held_ns = 0

    def exposed_ns(self, rank: ThisRank) -> int:
        """Exposed communication of the step that ends now. Never raises."""
        self._steps_since += 1
        self._steps_left -= 1
        if self._steps_left <= 0:
            try:
                self._sample(rank)
            except Exception as error:
                rank.ddp.remove(self)
                rank.drop(Instrument.DDP, error)
        return self._held_ns

    def _sample(self, rank: ThisRank) -> None:
        module = self._module()
        if module is None:
            rank.ddp.remove(self)
            self._held_ns = 0
            return
        start_ns = monotonic_ns()
        times = module.logger._get_ddp_logging_data().ints_map
        self._cheapest_ns = min(self._cheapest_ns, monotonic_ns() - start_ns)
        iteration = times.get("iteration", 0)
        if iteration > self._iteration:
            self._take(rank, times, iteration)
        elif self._steps_since > 3 * self._every:
            # Trained no more, or by another module: what it held is no longer true.
            self._held_ns = 0
        if self._on_cpu:
            self._choose_rate(module)
        self._steps_left = self._every

    def _take(self, rank: ThisRank, times: dict[str, int], iteration: int) -> None:
        iterations = iteration - self._iteration
        # The first reading may come from a script that iterated before it stepped.
        per_step = iterations / self._steps_since if self._iteration else 1.0
        exposed_ns = times.get("backward_comm_time_end", 0) - times.get("backward_compute_time_end", 0)
        self._held_ns = int(max(0, exposed_ns) * per_step)
        rank.collective_count += iterations * times.get("num_buckets_reduced", 0)
        rank.collective_bytes += iterations * times.get("total_parameter_size_bytes", 0)
        self._iteration = iteration
        self._steps_since = 0
        rank.rests_on(Basis.DDP_SAMPLED)

    def _choose_rate(self, module: Any) -> None:
        # Logging costs the C++ side about what reading costs us.
        every = min(max(2 * self._cheapest_ns // BUDGET_NS, SHORTEST_SAMPLE_EVERY), DEVICE_SAMPLE_EVERY)
        if every != self._every or not self._rate_was_set:
            self._every = every
            self._rate_was_set = True
            module._set_ddp_runtime_logging_sample_rate(every)


def sample_exposed_communication(module: Any) -> None:
    """Watch every DistributedDataParallel that is made from now on."""
    ddp_class = module.DistributedDataParallel
    construct = ddp_class.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        start_ns = monotonic_ns()
        this_rank.phase(Phase.WRAPPING)
        construct(self, *args, **kwargs)
        try:
            _watch(self, monotonic_ns() - start_ns)
        except Exception as error:
            this_rank.drop(Instrument.DDP, error)

    ddp_class.__init__ = __init__


def _watch(module: Any, duration_ns: int) -> None:
    this_rank.record_phase(Phase.WRAPPING, duration_ns)
    this_rank.phase(Phase.TRAINING if this_rank.step_count else Phase.STARTING)
    if not hasattr(getattr(module, "logger", None), "_get_ddp_logging_data"):
        this_rank.lacks(Instrument.DDP)
        return
    this_rank.ddp.append(SampledReducer(module))
