"""One training step, as the trace of a script or the command line describes it. `None` is unknown."""

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """Precision of matrix products; parameters stay as they are (`autocast`) unless `Workload` says otherwise."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"


class Strategy(StrEnum):
    """How the devices hold the state of the model: a copy on each, or a shard."""

    DDP = "ddp"
    FSDP = "fsdp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the trace or the plan assumed."""

    what: str
    """The assumption."""
    file: str | None = None
    """File of the line that made it necessary."""
    line: int | None = None
    """That line of the user's script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCounts:
    """All calls of one operation in one step of one device: forward, backward and update together."""

    name: str
    """Name of the operation."""
    kind: str
    """matmul, convolution, attention, normalization, elementwise, reduction, embedding, copy or other."""
    precision: Precision
    """What it is computed in."""
    count: int
    """Number of calls."""
    flops: float
    """Floating-point operations."""
    moved_bytes: float
    """Bytes read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One optimizer step of one device.

    Units:   bytes; counts; `flops` of the whole step; seconds
    """

    name: str = ""
    """How people call it."""
    parameter_count: int | None = None
    """Numbers in all parameters."""
    parameter_bytes: int | None = None
    """As stored, all parameters on one device without sharding."""
    gradient_bytes: int | None = None
    """As stored, all gradients on one device without sharding."""
    gradient_tensors: int | None = None
    """Parameters that have a gradient."""
    bucket_bytes: tuple[int, ...] = ()
    """DDP's buckets in the order of their reduction."""
    gradient_as_bucket_view: bool | None = None
    """Gradients are views of DDP's buckets and take no memory of their own."""
    lazy_bucket_allocation: bool | None = None
    """DDP's buckets are there only during the backward pass (torch 2.15)."""
    optimizer: str | None = None
    """Class of the optimizer."""
    optimizer_bytes: int | None = None
    """Its state, on one device without sharding."""
    activation_bytes: int | None = None
    """What is alive at the peak and grows with the batch."""
    peak_fixed_bytes: int | None = None
    """Alive at the peak besides parameters, gradients, optimizer state and activations."""
    precision: Precision | None = None
    """What products are computed in."""
    autocast: bool | None = None
    """The script uses torch.autocast."""
    strategy: Strategy = Strategy.DDP
    """How ranks share the model."""
    batch: int | None = None
    """Samples of one microbatch on one device."""
    microbatches: int = 1
    """Microbatches of one step."""
    flops: float | None = None
    """Of the whole step, forward and backward; a multiply-add is two."""
    operations: tuple[OperationCounts, ...] = ()
    """Counts of the operators of a step."""
    samples_per_epoch: int | None = None
    """Samples of the whole data set."""
    loading_seconds: float | None = None
    """Of one batch in one loader process, on the tracing machine."""
    loader_workers: int | None = None
    """Loader processes of one rank."""
    batch_bytes: int | None = None
    """One batch as the loader hands it over."""
    checkpointed_activations: bool | None = None
    """The script recomputes activations."""
    largest_group_bytes: int | None = None
    """Of the parameters that fully_shard gathers at once."""
    largest_tensor_bytes: int | None = None
    """The largest of the activations."""
    transient_bytes: int | None = None
    """The most that is alive at another moment than the peak, besides parameters, gradients and optimizer state."""
    peak_bytes: int | None = None
    """Everything alive at the traced step's own peak before the update, gradients as far as backward had come."""
    assumptions: tuple[Assumption, ...] = ()
    """What was taken for granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured step of the workload."""

    hosts: int
    """Hosts of the measured step."""
    devices: int
    """Devices of all hosts together."""
    step_seconds: float
    """Duration of the step."""
    batch: int | None = None
    """Samples of a device in that step."""
    exposed_communication_seconds: float | None = None
    """Part of the step, where a recording has it."""
    loading_seconds: float | None = None
    """Part of the step, where a recording has it."""
    source: str = "given"
    """The recording, or "given"."""
