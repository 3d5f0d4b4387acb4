"""Whether a step fits into a device, and the largest batch that still does."""

from dataclasses import dataclass, replace

from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Fit, Formula, Memory
from paceline.parts.plan.planner.workload import Precision, Strategy, Workload

GIB = 1024**3

# What is counted over what the device has: up to here no row of bench/data/memory.csv ran out, from there on nothing is promised. The
# rest of the device goes to the caching allocator's unused reserve, to cuDNN's workspaces and to fragments: nvidia-smi showed 1.2 times
# what was counted in the median, and one run that ran out had 2.99 of 15.78 GiB in fragments. Source: docs/accuracy.md, "Memory".
FITS_FRACTION = 0.80
GREY_FRACTION = 0.95
# The context of a CUDA process with its libraries, which no trace sees: capacity less what torch had reserved and what was free, in the
# messages of runs that ran out (0.80, 0.83 and 0.83 GiB). Source: lambdal/deeplearning-benchmark, pytorch/results, p3.2xlarge and
# 2080SuperMaxQ, PyTorch_transformerxlbase_FP32 and _FP16, PyTorch_ncf_FP32.
CONTEXT_BYTES = int(0.83 * GIB)
# What activations shrink to from fp32 under autocast, where only one of the two was traced. They differ, because each errs to the side of
# more memory: outputs of matrix products halve, softmax, losses and logits over a vocabulary may not. With recomputation hardly anything
# but logits is kept: then nothing is taken off. Source: bench/workloads/traced.json, 0.50 to 0.81, with recomputation 0.99 to 1.00.
HALVED_AT_LEAST = 0.81
HALVED_AT_MOST = 0.50
# A freed block that was cut for something smaller cannot hold the largest tensor again, so the allocator may hold room for one more.
# Source: torch c10/cuda/CUDACachingAllocator.cpp, blocks of one segment; docs/accuracy.md, "Memory", Transformer-XL.
SPARE_TENSORS = 1
# The update keeps one more value for each parameter while it runs: torch.optim, "foreach uses ~ sizeof(params) more peak memory".
UPDATE_VALUES = 1
# Adam keeps two values for each parameter; the most that a common optimizer keeps.
ADAM_VALUES = 2
# fully_shard gathers the next group while it computes with this one.
GROUPS_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class _State:
    """Bytes of one device that do not depend on the batch, and bytes per sample."""

    parameters: int
    """Parameters."""
    gradients: int
    """Gradients."""
    buckets: int
    """DDP's buckets."""
    optimizer: int
    """Optimizer state."""
    resident: int
    """Alive beside the activations."""
    transient: int
    """Alive at another moment than the activations: see `Workload`."""
    sample: float | None
    """Bytes per sample; None: not known."""
    spare: float
    """Reserve per sample."""
    assumed: tuple[str, ...]
    """What was assumed."""
    unknown_groups: int = 0
    """Most that unknown groups of parameters may need: the whole model gathered, with its gradients."""

    @property
    def kept(self) -> int:
        """Bytes that are in use at every moment."""
        return self.parameters + self.gradients + self.buckets + self.optimizer + CONTEXT_BYTES

    def other(self, activations: int) -> int:
        """Needs of the worse of the two moments besides these activations."""
        return CONTEXT_BYTES + max(self.resident, self.transient - activations)

    def largest_batch(self, room: float) -> int | None:
        """Most samples that fit into `room` bytes at both moments."""
        if self.sample is None or self.sample + self.spare <= 0:
            return None
        room -= self.unknown_groups
        first = (room - self.kept - self.resident) / (self.sample + self.spare)
        left = room - self.kept - self.transient
        second = 0.0 if left < 0 else left / self.spare if self.spare else first
        return max(0, int(min(first, second)))


def memory(
    workload: Workload,
    *,
    capacity_bytes: int | None,
    strategy: Strategy | None = None,
    devices: int = 1,
    precision: Precision | None = None,
    batch: int | None = None,
    formulas: list[Formula] | None = None,
) -> Memory:
    """The verdict for one device of `devices` equal ones, all ranks of one job.

    `strategy`, `precision`, `batch` None: as traced. Gradients count in full beside the activations, which is exact under DDP and with
    accumulation, and at most the gradients too much on one device. Sharding divides parameters, gradients and optimizer state.

    Units:   bytes; `batch`: samples of one microbatch of one device
    Holds:   a larger capacity never turns "fits" into another verdict; more devices never need more per device under FSDP
    Raises:  UsageError U03: a batch, a device count or a capacity below 1
    """
    _sound(capacity_bytes, devices, batch)
    state = _state(workload, strategy or workload.strategy, devices, precision)
    if isinstance(state, str):
        return Memory(verdict=Fit.NOT_JUDGED, capacity_bytes=capacity_bytes, missing=state)
    samples = batch or workload.batch
    if capacity_bytes is None:
        return replace(_need(state, samples), missing="the memory of the device")
    if state.sample is None or samples is None:
        return _without_activations(state, capacity_bytes)
    need = _need(state, samples)
    fit, missing = _fit(state, need.need_bytes or 0, samples, capacity_bytes)
    if formulas is not None:
        formulas.append(_formula(need, state, samples, capacity_bytes))
    largest = state.largest_batch(FITS_FRACTION * capacity_bytes)
    return replace(need, verdict=fit, capacity_bytes=capacity_bytes, largest_batch=largest, missing=missing)


def _state(workload: Workload, strategy: Strategy, devices: int, precision: Precision | None) -> _State | str:
    assumed: list[str] = []
    parameters = _parameter_bytes(workload, assumed)
    if parameters is None:
        return "the size of the parameters"
    gradients = workload.gradient_bytes if workload.gradient_bytes is not None else parameters
    optimizer = workload.optimizer_bytes
    if optimizer is None:
        optimizer = ADAM_VALUES * parameters
        assumed.append("the optimizer keeps two values for each parameter, as Adam")
    sample = _sample_bytes(workload, precision, assumed)
    spare = SPARE_TENSORS * (workload.largest_tensor_bytes or 0) / workload.batch if workload.batch else 0.0
    resident = workload.peak_fixed_bytes or 0
    update = UPDATE_VALUES * parameters
    group = workload.largest_group_bytes
    if strategy is Strategy.FSDP and devices > 1:
        gathered = min(GROUPS_IN_FLIGHT * (group or 0), parameters)
        # The trace saw the update of a whole model; each device updates its shard.
        shard, transient = -(-parameters // devices), -(-max(workload.transient_bytes or 0, update) // devices)
        rest = (-(-gradients // devices), 2 * gathered, -(-optimizer // devices), resident, transient, sample, spare)
        return _State(shard, *rest, tuple(assumed), unknown_groups=2 * parameters if group is None else 0)
    # A reducer keeps its buckets for the whole run, unless the script asks that gradients are views into them, or for lazy ones.
    buckets = gradients if devices > 1 and not workload.gradient_as_bucket_view else 0
    transient = max(workload.transient_bytes or 0, update)
    if workload.lazy_bucket_allocation:
        buckets, transient = 0, max(transient, buckets)
    return _State(parameters, gradients, buckets, optimizer, resident, transient, sample, spare, tuple(assumed))


def _parameter_bytes(workload: Workload, assumed: list[str]) -> int | None:
    if workload.parameter_bytes is not None:
        return workload.parameter_bytes
    if workload.parameter_count is not None:
        assumed.append("parameters are stored as fp32")
        return workload.parameter_count * 4
    if workload.gradient_bytes is not None:
        assumed.append("parameters are as large as their gradients")
    return workload.gradient_bytes


def _sample_bytes(workload: Workload, precision: Precision | None, assumed: list[str]) -> float | None:
    if workload.activation_bytes is None or not workload.batch:
        return None
    bytes_of_one = workload.activation_bytes / workload.batch
    traced = workload.precision
    if precision is None or traced is None or _halves(precision) == _halves(traced):
        return bytes_of_one
    assumed.append(
        f"activations traced in {traced.value} were converted to {precision.value}; a trace in {precision.value} is exact"
    )
    if not _halves(precision):
        return bytes_of_one / HALVED_AT_MOST
    return bytes_of_one if workload.checkpointed_activations else bytes_of_one * HALVED_AT_LEAST


def _halves(precision: Precision) -> bool:
    return precision in (Precision.FP16, Precision.BF16)


def _need(state: _State, samples: int | None) -> Memory:
    """The need, not yet compared with a capacity. Unknown activations are left out of the parts, not shown as 0."""
    parts = {
        "parameters": state.parameters,
        "gradients": state.gradients,
        "buckets": state.buckets,
        "optimizer": state.optimizer,
    }
    if state.sample is None or samples is None:
        return Memory(verdict=Fit.NOT_JUDGED, parts_bytes={**parts, "other": state.other(0)}, assumed=state.assumed)
    activations = round(state.sample * samples)
    parts |= {"activations": activations, "other": state.other(activations)}
    return Memory(verdict=Fit.NOT_JUDGED, need_bytes=sum(parts.values()), parts_bytes=parts, assumed=state.assumed)


def _without_activations(state: _State, capacity_bytes: int) -> Memory:
    """Without activations one answer is still possible: a step that does not fit without them never fits."""
    need = replace(_need(state, None), capacity_bytes=capacity_bytes)
    least = sum((need.parts_bytes or {}).values())
    if least > GREY_FRACTION * capacity_bytes:
        return replace(need, verdict=Fit.DOES_NOT_FIT, need_bytes=least, largest_batch=0)
    return replace(need, missing="the memory of the activations of one sample, and the batch")


def _fit(state: _State, need_bytes: int, samples: int, capacity_bytes: int) -> tuple[Fit, str]:
    """The verdict by zone. If groups of parameters are unknown, "fits" needs room for the largest of them."""
    if need_bytes > GREY_FRACTION * capacity_bytes:
        return Fit.DOES_NOT_FIT, ""
    cautious = need_bytes + state.spare * samples
    if state.unknown_groups and cautious + state.unknown_groups > FITS_FRACTION * capacity_bytes:
        return Fit.GREY, "how the script groups parameters for fully_shard (a trace of it)"
    return (Fit.FITS if cautious <= FITS_FRACTION * capacity_bytes else Fit.GREY), ""


def _formula(need: Memory, state: _State, samples: int, capacity_bytes: int) -> Formula:
    values: dict[str, float | int | str | None] = {
        f"{name}_bytes": size for name, size in (need.parts_bytes or {}).items()
    }
    values |= {"sample_bytes": state.sample, "batch": samples, "spare_tensor_bytes": round(state.spare * samples)}
    values |= {"capacity_bytes": capacity_bytes, "fits_up_to": FITS_FRACTION, "grey_up_to": GREY_FRACTION}
    return Formula(
        name="memory",
        text="parameters + gradients + buckets + optimizer + activations + other, activations = batch * sample; "
        "fits when this and one more tensor of the largest size stay within fits_up_to * capacity",
        values=values,
        result=float(need.need_bytes or 0),
        unit="bytes",
        source="docs/accuracy.md, Memory",
    )


def _sound(capacity_bytes: int | None, devices: int, batch: int | None) -> None:
    for name, value in (("capacity", capacity_bytes), ("device count", devices), ("batch", batch)):
        if value is not None and value < 1:
            raise UsageError("U03", f"a {name} of {value}", saw=f"{value}", next="give a number above 0")
