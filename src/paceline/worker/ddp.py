"""Exposed communication of DistributedDataParallel, from the timers that its reducer keeps anyway.

DDP exchanges its buckets in C++, where no Python patch sees it. Its logger times chosen iterations: when the gradients of the last
bucket were ready, and when the last bucket had been exchanged. The difference is what the exchange held the step up by. Logging and
reading one iteration costs time in proportion to the number of parameters, so every n-th iteration is logged and read (n from 50 to
DDP's own 100, see `sample_every`), and its value is held for the steps until the next one.

How exact: for a logged iteration, exact on a CPU backend, and as exact as CUDA events on a device. The total is an estimate from a
sample, right for a run whose steps resemble each other; the communication of one single step is not known. Not in it: broadcasts of
buffers in the forward pass. On a device DDP's own rate is left as it is, because logging makes the CPU wait for the device.
"""

import functools
import weakref
from time import monotonic_ns
from typing import Any

from ..recording.ring import Basis, Instrument, RankPhase
from .instruments import OUR_ROOM
from .no_compile import passed_over_by_warnings
from .rank_recorder import RankRecorder, this_rank
from .replica import WrappedModel

DDP_SAMPLES_EVERY = 100
# DDP itself logs each of its first ten iterations, warm-up among them.
FIRST_READ_AFTER_STEPS = 3
_BUILT_IN_HOOK = "BuiltinCommHookType."


class SampledReducer:
    """Reads one DDP module's timers when it is asked."""

    def __init__(self, module: Any, rank: RankRecorder) -> None:
        self._module = weakref.ref(module)
        self.every = sample_every(module)
        if self.every != DDP_SAMPLES_EVERY:
            module._set_ddp_runtime_logging_sample_rate(self.every)
        self._last_step = rank.step_count
        self._iteration = 0
        self._held_ns = 0

    def begin_anew(self, module: Any, rank: RankRecorder) -> None:
        """`module` has a new reducer, whose timers count from 0 again; nothing where it is another one than this."""
        if self._module() is module:
            if self.every != DDP_SAMPLES_EVERY:
                module._set_ddp_runtime_logging_sample_rate(self.every)
            self._iteration, self._last_step = 0, rank.step_count

    def exposed_ns(self, rank: RankRecorder) -> int:
        """Exposed communication of one step by the latest iteration that was logged. Never raises."""
        try:
            module = self._module()
            if module is None:
                rank.ddp.remove(self)
                return 0
            logged = module.logger._get_ddp_logging_data()
            times = logged.ints_map
            iteration = times.get("iteration", 0)
            if iteration > self._iteration:
                hook = logged.strs_map.get("comm_hook", _BUILT_IN_HOOK)
                in_python = not hook.startswith(_BUILT_IN_HOOK) or _is_in_python(module.process_group)
                self._take(rank, times, iteration, in_python=in_python)
            elif rank.step_count - self._last_step > 2 * self.every:
                # Trained no more: what it held is no longer true.
                self._held_ns = 0
        except Exception as error:
            rank.ddp.remove(self)
            rank.drop(Instrument.DDP, error)
            return 0
        return self._held_ns

    def _take(self, rank: RankRecorder, times: dict[str, int], iteration: int, in_python: bool) -> None:
        iterations = iteration - self._iteration
        # The first reading may come from a script that iterated before it stepped.
        steps = rank.step_count - self._last_step
        per_step = iterations / steps if self._iteration and steps else 1.0
        exposed_ns = times.get("backward_comm_time_end", 0) - times.get("backward_compute_time_end", 0)
        self._held_ns = int(max(0, exposed_ns) * per_step)
        if "num_buckets_reduced" not in times:
            # torch 2.6 keeps no count of buckets, so what Python sees is not the count of this rank's collectives.
            rank.lacks(Instrument.COLLECTIVES)
        if not in_python:
            # What a hook or a process group in Python issues is counted there, one by one.
            rank.collective_count += iterations * times.get("num_buckets_reduced", 0)
            rank.collective_bytes += iterations * times.get("total_parameter_size_bytes", 0)
        self._iteration = iteration
        self._last_step = rank.step_count
        rank.rests_on(Basis.DDP_SAMPLED)


def _is_in_python(group: Any) -> bool:
    """Whether a process group is one of comm's, whose methods C++ calls too."""
    return type(group).__module__.startswith(OUR_ROOM)


def sample_every(module: Any) -> int:
    """Every how many iterations a module is sampled: often where that is cheap, as DDP does it by itself where it is not."""
    parameters = list(module.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return DDP_SAMPLES_EVERY
    return min(max(len(parameters), 50), DDP_SAMPLES_EVERY)


def sample_exposed_communication(module: Any) -> None:
    """Watch every DistributedDataParallel that is made from now on."""
    ddp_class = module.DistributedDataParallel
    construct = ddp_class.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        start_ns = monotonic_ns()
        this_rank.phase(RankPhase.WRAPPING)
        construct(self, *args, **kwargs)
        try:
            _watch(self, monotonic_ns() - start_ns)
        except Exception as error:
            this_rank.drop(Instrument.DDP, error)

    ddp_class.__init__ = passed_over_by_warnings(__init__)


def _watch(module: Any, duration_ns: int) -> None:
    this_rank.record_phase(RankPhase.WRAPPING, duration_ns)
    this_rank.phase(RankPhase.TRAINING if this_rank.step_count else RankPhase.STARTING)
    if hasattr(module, "_module_parameters"):
        this_rank.models.append(WrappedModel(module))
    else:
        this_rank.lacks(Instrument.REPLICA)
    if not hasattr(getattr(module, "logger", None), "_get_ddp_logging_data"):
        this_rank.lacks(Instrument.DDP)
        return
    this_rank.ddp.append(SampledReducer(module, this_rank))
    this_rank.next_sample = this_rank.step_count + FIRST_READ_AFTER_STEPS
