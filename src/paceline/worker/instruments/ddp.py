"""Samples the exposed communication of DistributedDataParallel from the timers that DDP's reducer keeps.

DDP exchanges its buckets in C++, where no Python patch sees them. DDP's logger times selected iterations: when the gradients of the last
bucket were ready, and when the last bucket had been exchanged. The difference is the time by which the exchange delayed the step. Logging
and reading one iteration costs time in proportion to the number of parameters. So every n-th iteration is logged and read (n from 50 to
DDP's own 100, see `sample_every`), and its value is used for the steps until the next sample.

Accuracy: for a logged iteration the value is exact on a CPU backend, and as exact as CUDA events on a device. The total is an estimate
from samples, good for a run whose steps are similar. The communication of one single step is unknown. The value does not include the
broadcasts of buffers in the forward pass. On a device, DDP's own sampling rate stays, because logging makes the CPU wait for the device.
"""

import functools
import weakref
from time import monotonic_ns
from typing import Any

from ...recording.ring import Basis, RankPhase
from .. import our_groups
from ..instrument import Patch, RankInstrument
from ..no_compile import passed_over_by_warnings
from ..rank_recorder import RankRecorder

DDP_SAMPLES_EVERY = 100
# DDP logs each of its first ten iterations by default, and these include warm-up.
FIRST_READ_AFTER_STEPS = 3
_BUILT_IN_HOOK = "BuiltinCommHookType."


class ExposedCommunication(RankInstrument):
    """Watches every DistributedDataParallel that is constructed, and samples all of them at the same step."""

    def begin(self) -> None:
        self.reducers: list[SampledReducer] = []

    def patches(self) -> dict[str, Patch]:
        return {"torch.nn.parallel.distributed": self._watch}

    def model_wrapped(self, module: Any) -> None:
        if not hasattr(getattr(module, "logger", None), "_get_ddp_logging_data"):
            # Its exchange is not even sampled.
            self.rank.samples_ddp = True
            self.rank.lacks(self.name)
            return
        self.reducers.append(SampledReducer(module, self.rank))
        self._say_sampled()
        self.call_at(self.rank.step_count + FIRST_READ_AFTER_STEPS)

    def reducer_renewed(self, module: Any) -> None:
        for reducer in self.reducers:
            reducer.begin_anew(module, self.rank)

    def at_step(self, step: int, optimizer: Any, frame: Any) -> None:
        # Set this first: if this instrument is dropped below, no old sample stays in use.
        self.rank.held_ns = 0
        self.reducers = [reducer for reducer in self.reducers if reducer.is_alive()]
        self.rank.held_ns = sum([reducer.exposed_ns(self.rank) for reducer in self.reducers])
        self._say_sampled()
        if self.reducers:
            self.call_at(step + min(reducer.every for reducer in self.reducers))

    def _say_sampled(self) -> None:
        if self.rank.samples_ddp != bool(self.reducers):
            self.rank.samples_ddp = bool(self.reducers)
            self.rank.publish_state()

    def _watch(self, parallel: Any) -> None:
        ddp_class, rank = parallel.DistributedDataParallel, self.rank
        construct = ddp_class.__init__

        @functools.wraps(construct)
        def __init__(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            start_ns = monotonic_ns()
            rank.phase(RankPhase.WRAPPING)
            construct(wrapper, *args, **kwargs)
            try:
                rank.record_phase(RankPhase.WRAPPING, monotonic_ns() - start_ns)
                rank.phase(RankPhase.TRAINING if rank.step_count else RankPhase.STARTING)
                rank.registry.tell("model_wrapped", wrapper)
            except Exception as error:
                rank.drop("ddp", error)

        ddp_class.__init__ = passed_over_by_warnings(__init__)


class SampledReducer:
    """Reads the timers of one DDP module on request."""

    def __init__(self, module: Any, rank: RankRecorder) -> None:
        self._module = weakref.ref(module)
        self.every = sample_every(module)
        if self.every != DDP_SAMPLES_EVERY:
            module._set_ddp_runtime_logging_sample_rate(self.every)
        self._last_step = rank.step_count
        self._iteration = 0
        self._held_ns = 0

    def is_alive(self) -> bool:
        """Whether the module still exists."""
        return self._module() is not None

    def begin_anew(self, module: Any, rank: RankRecorder) -> None:
        """`module` has a new reducer, whose timers count from 0 again. Nothing happens if this sampler reads another module."""
        if self._module() is module:
            if self.every != DDP_SAMPLES_EVERY:
                module._set_ddp_runtime_logging_sample_rate(self.every)
            self._iteration, self._last_step = 0, rank.step_count

    def exposed_ns(self, rank: RankRecorder) -> int:
        """Exposed communication of one step, from the latest logged iteration; 0 if the module no longer exists."""
        module = self._module()
        if module is None:
            return 0
        logged = module.logger._get_ddp_logging_data()
        times = logged.ints_map
        iteration = times.get("iteration", 0)
        if iteration > self._iteration:
            hook = logged.strs_map.get("comm_hook", _BUILT_IN_HOOK)
            in_python = not hook.startswith(_BUILT_IN_HOOK) or our_groups.is_ours(type(module.process_group))
            by_hand = getattr(module, "require_manual_backward_finalization", False)
            self._take(rank, times, iteration, in_python=in_python, finalized_by_hand=by_hand)
        elif rank.step_count - self._last_step > 2 * self.every:
            # This module no longer trains, so its last sample no longer holds.
            self._held_ns = 0
        return self._held_ns

    def _take(
        self, rank: RankRecorder, times: dict[str, int], iteration: int, *, in_python: bool, finalized_by_hand: bool
    ) -> None:
        iterations = iteration - self._iteration
        # The first reading may come from a script that ran iterations before its first step.
        steps = rank.step_count - self._last_step
        per_step = iterations / steps if self._iteration and steps else 1.0
        exposed_ns = times.get("backward_comm_time_end", 0) - times.get("backward_compute_time_end", 0)
        if finalized_by_hand:
            # Timed where the script waits for it: see waits.py.
            exposed_ns = 0
        self._held_ns = int(max(0, exposed_ns) * per_step)
        if "num_buckets_reduced" not in times:
            # torch 2.6 does not count buckets, so this rank's collectives cannot be counted from what Python sees.
            rank.lacks("collectives")
        if not in_python:
            # A hook or a process group in Python counts its collectives one by one.
            rank.collective_count += iterations * times.get("num_buckets_reduced", 0)
            rank.collective_bytes += iterations * times.get("total_parameter_size_bytes", 0)
        self._iteration = iteration
        self._last_step = rank.step_count
        rank.rests_on(Basis.DDP_SAMPLED)


def sample_every(module: Any) -> int:
    """The number of iterations between two samples of a module: small if a sample is cheap, DDP's own rate if a sample is expensive."""
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return DDP_SAMPLES_EVERY
    return min(max(len(parameters), 50), DDP_SAMPLES_EVERY)
