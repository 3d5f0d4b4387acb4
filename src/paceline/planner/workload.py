"""One training step, as the trace of a script or the command line describes it. `None` is unknown."""

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """What matrix products are computed in; parameters stay as they are (`autocast`) unless `Workload` says otherwise."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"


class Strategy(StrEnum):
    """How the state of the model lies on the devices: a copy on each, or a shard."""

    DDP = "ddp"
    FSDP = "fsdp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the trace or the plan took for granted. `file`, `line`: the user's line that made it necessary."""

    what: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCounts:
    """All calls of one operation in one step of one device, forward, backward and update together.

    `kind`: matmul, convolution, attention, normalization, elementwise, reduction, embedding, copy, other. `moved_bytes`: read and written.
    """

    name: str
    kind: str
    precision: Precision
    count: int
    flops: float
    moved_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One optimizer step of one device.

    Units:   bytes; counts; `flops` of the whole step (forward and backward, a multiply-add is two); seconds.
    `batch`: samples of one microbatch on one device, `microbatches` of them a step. `bucket_bytes`: DDP's buckets in the order of their
    reduction. `activation_bytes`: what is alive at the peak and grows with the batch; `peak_fixed_bytes`: alive at the peak besides
    parameters, gradients, optimizer state and activations. `loading_seconds`: of one batch in one loader process, on the tracing
    machine. `batch_bytes`: one batch as the loader hands it over. `parameter_bytes`, `gradient_bytes`: as stored, all parameters on one
    device without sharding. `checkpointed_activations`: the script recomputes them. `largest_group_bytes`: of the parameters that
    fully_shard gathers at once. `largest_tensor_bytes`: the largest of the activations. `transient_bytes`: the most that is alive at
    another moment than the peak of the activations (preparing data on the device, the update), besides parameters, gradients and
    optimizer state. `peak_bytes`: everything alive at the traced step's own peak before the update, gradients as far as backward had come.
    """

    name: str = ""
    parameter_count: int | None = None
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    gradient_tensors: int | None = None
    bucket_bytes: tuple[int, ...] = ()
    gradient_as_bucket_view: bool | None = None
    optimizer: str | None = None
    optimizer_bytes: int | None = None
    activation_bytes: int | None = None
    peak_fixed_bytes: int | None = None
    precision: Precision | None = None
    autocast: bool | None = None
    strategy: Strategy = Strategy.DDP
    batch: int | None = None
    microbatches: int = 1
    flops: float | None = None
    operations: tuple[OperationCounts, ...] = ()
    samples_per_epoch: int | None = None
    loading_seconds: float | None = None
    loader_workers: int | None = None
    batch_bytes: int | None = None
    checkpointed_activations: bool | None = None
    largest_group_bytes: int | None = None
    largest_tensor_bytes: int | None = None
    transient_bytes: int | None = None
    peak_bytes: int | None = None
    assumptions: tuple[Assumption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured step of the workload. `devices` in total, over all `hosts`. `batch`: samples of a device in that step.

    `source`: the recording, or "given". `exposed_communication_seconds`, `loading_seconds`: parts of the step, where a recording has them.
    """

    hosts: int
    devices: int
    step_seconds: float
    batch: int | None = None
    exposed_communication_seconds: float | None = None
    loading_seconds: float | None = None
    source: str = "given"
