"""Marks a rank's model and optimizer at some steps. The agents compare the marks, because replicas must be alike in them.

    {"step": 64, "optimizer": "SGD", "optimizers": 1, "settings": [{"lr": 0.01, "momentum": 0}], "held": 6, "with_gradient": 6,
     "foreign": 0, "models": 1, "forwards": 50, "buffers": 18, "unexchanged": 0, "unexchanged_names": [], "groups": 1, "exchanges": 70,
     "calls": 4, "libraries": [], "made_at": "/home/ada/train.py:31"}

A mark has counts, names and the plain numbers of an optimizer's settings. `optimizers` is 2 if there are two or more; `made_at`: the
user's line that made the first DDP model. The instrument reads no values of tensors, so nothing waits for a device.
"""

import functools
import sys
import weakref
from types import FrameType
from typing import Any

from ..instrument import Patch, RankInstrument
from ..no_compile import passed_over_by_warnings
from ..rank_recorder import RankRecorder
from ..sampling import Samplers

# After the first step, then at 16, 64, 256, ... The steps are the same on every rank.
FIRST_STEP, SECOND_STEP, TIMES = 1, 16, 4
_MOST_GROUPS = 8
_MOST_NAMES = 3
_MOST_LETTERS = 80
_PLAIN = (int, float, bool, str)
# Libraries that exchange gradients without a process group of torch's.
_LIBRARIES = ("horovod", "mpi4py", "deepspeed", "bagua", "byteps", "ray.util.collective", "torch_xla", "hivemind")


class ReplicaMarks(RankInstrument):
    """Writes a mark of the replica after some steps, and a mark of the loaders' samplers when an epoch begins (sampling.py)."""

    def begin(self) -> None:
        self.models: list[WrappedModel] = []
        self._samplers = Samplers()
        self._next_mark = FIRST_STEP
        self.call_at(FIRST_STEP)

    def patches(self) -> dict[str, Patch]:
        return {"torch.utils.data.distributed": self._watch}

    def _watch(self, distributed: Any) -> None:
        """Note where each DistributedSampler is made."""
        sampler_class, rank = distributed.DistributedSampler, self.rank
        construct = sampler_class.__init__

        @functools.wraps(construct)
        def __init__(sampler: Any, *args: Any, **kwargs: Any) -> None:
            construct(sampler, *args, **kwargs)
            try:
                self._samplers.made(sampler, rank.calls.users_line(sys._getframe(1)))
            except Exception as error:
                rank.drop("replica", error)

        sampler_class.__init__ = passed_over_by_warnings(__init__)

    def model_wrapped(self, module: Any) -> None:
        if hasattr(module, "_module_parameters"):
            self.models.append(WrappedModel(module, self.rank.calls.users_line(sys._getframe(1))))
        else:
            self.rank.lacks(self.name)

    def loader_began(self, loader: Any) -> None:
        if self.rank.ring is not None:
            self._mark_samplers(self._samplers.begins(loader, self.rank.step_count))
            if self._samplers.holds_a_mark():
                self.call_at(self.rank.step_count + 1)

    def loader_ran_out(self) -> None:
        self._mark_samplers(self._samplers.stepped(self.rank.step_count))

    def at_step(self, step: int, optimizer: Any, frame: FrameType | None) -> None:
        self._mark_samplers(self._samplers.stepped(step))
        if step >= self._next_mark:
            self._next_mark = next_mark(step)
            # What counts a step need not be an optimizer of torch.
            if hasattr(optimizer, "param_groups"):
                self._mark(optimizer, frame)
        self.call_at(self._next_mark)

    def _mark(self, optimizer: Any, frame: FrameType | None) -> None:
        """Write a mark of what this rank trains with, and note the training loop. `frame`: the frame below the step."""
        self.rank.calls.loops.step_made_at(frame)
        if self.rank.ring is not None:
            self.rank.calls.mark(self.rank.ring, "replica", facts(self.rank, self.models, optimizer))

    def _mark_samplers(self, marks: list[dict[str, Any]]) -> None:
        if self.rank.ring is not None:
            for mark in marks:
                self.rank.calls.mark(self.rank.ring, "sampler", mark)


class WrappedModel:
    """One DistributedDataParallel, and the parameters that required a gradient when it was constructed: it exchanges these only.

    `buffers`: the number of elements in the buffers that it broadcasts to every rank of the job. `made_at`: the user's line.
    """

    __slots__ = ("_asked", "buffers", "made_at", "wrapper")

    def __init__(self, wrapper: Any, made_at: str = "") -> None:
        self.made_at = made_at
        self.wrapper = weakref.ref(wrapper)
        self.buffers = _broadcast_elements(wrapper)
        self._asked = [parameter.requires_grad for parameter in wrapper._module_parameters]

    def exchanged(self, wrapper: Any) -> set[int]:
        """The ids of the parameters that `wrapper` exchanges. `wrapper` keeps these parameters alive."""
        pairs = zip(wrapper._module_parameters, self._asked, strict=False)
        return {id(parameter) for parameter, asked in pairs if asked}


def next_mark(step: int) -> int:
    """The first step after `step` at which a mark is due.

    Holds:   next_mark(1) == 16; next_mark(16) == 64; next_mark(0) == 1
    """
    due = SECOND_STEP
    while due <= step:
        due *= TIMES
    return due if step else FIRST_STEP


def facts(rank: RankRecorder, models: list[WrappedModel], optimizer: Any) -> dict[str, Any]:
    """The content of a mark; see the top of this file. Values that do not apply, or that cannot be read, are left out."""
    groups = optimizer.param_groups
    held = [parameter for group in groups for parameter in group["params"]]
    found = {
        "step": rank.step_count,
        "optimizer": type(optimizer).__name__,
        "settings": [settings_of(group) for group in groups[:_MOST_GROUPS]],
        "held": len(held),
        "with_gradient": sum(parameter.grad is not None for parameter in held),
        "optimizers": 2 if rank.has_several_optimizers else 1,
        "calls": rank.collective_count,
        **_of_groups(),
        "libraries": [name for name in _LIBRARIES if name in sys.modules],
        **_of_models(models, held),
    }
    return {name: value for name, value in found.items() if value is not None}


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    """The plain numbers and strings of a parameter group. Tensor settings are left out: reading them may wait for a device."""
    return {
        str(name)[:_MOST_LETTERS]: value[:_MOST_LETTERS] if isinstance(value, str) else value
        for name, value in group.items()
        if name != "params" and (isinstance(value, _PLAIN) or _are_plain(value))
    }


def _are_plain(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) <= _MOST_GROUPS and all(isinstance(v, _PLAIN) for v in value)


def _of_models(models: list[WrappedModel], held: list[Any]) -> dict[str, Any]:
    """The facts about the rank's DistributedDataParallel models; empty if there are none."""
    alive = [(model, wrapper) for model in models if (wrapper := model.wrapper()) is not None]
    if not alive:
        return {"models": 0}
    owned: set[int] = set()
    unexchanged: list[str] = []
    forwards: int | None = 0
    for model, wrapper in alive:
        exchanged = model.exchanged(wrapper)
        for name, parameter in _named_parameters(wrapper.module):
            owned.add(id(parameter))
            left_out = parameter.requires_grad and id(parameter) not in exchanged
            if left_out and parameter.grad is not None and name not in wrapper.parameters_to_ignore:
                unexchanged.append(name[:_MOST_LETTERS])
        counted = _forwards(wrapper)
        forwards = None if forwards is None or counted is None else forwards + counted
    return {
        "models": len(alive),
        "made_at": alive[0][0].made_at or None,
        "forwards": forwards,
        "buffers": sum(model.buffers for model, _ in alive),
        "foreign": sum(id(parameter) not in owned for parameter in held),
        "unexchanged": len(unexchanged),
        "unexchanged_names": unexchanged[:_MOST_NAMES],
    }


def _named_parameters(module: Any) -> Any:
    # A model may define its own `named_parameters`.
    return sys.modules["torch.nn"].Module.named_parameters(module)


def _broadcast_elements(wrapper: Any) -> int:
    if not wrapper.broadcast_buffers:
        return 0
    everybody = sys.modules["torch.distributed"].get_world_size() == wrapper.process_group.size()
    return sum(buffer.numel() for buffer in wrapper.modules_buffers) if everybody else 0


def _forwards(wrapper: Any) -> int | None:
    """The number of forward passes that DDP has logged, which is 0 only if DDP was never called; None if this torch does not tell."""
    logger = getattr(wrapper, "logger", None)
    if not hasattr(logger, "_get_ddp_logging_data"):
        return None
    return int(logger._get_ddp_logging_data().ints_map.get("iteration", 0))


def _of_groups() -> dict[str, int]:
    """The number of process groups, and the collectives of all groups so far, whoever issued them, if every group counts them."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    groups = tuple(c10d._world.pg_map) if c10d is not None else ()
    found = {"groups": len(groups)}
    try:
        found["exchanges"] = sum(int(group._get_sequence_number_for_group()) for group in groups)
    except (RuntimeError, AttributeError):
        # This backend has no such number.
        pass
    return found
