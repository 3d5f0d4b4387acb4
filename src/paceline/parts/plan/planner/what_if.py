"""A workload with one change, to compute the effect of the change."""

import math
from dataclasses import replace

from paceline.errors import UsageError
from paceline.parts.plan.planner.collective import FIRST_BUCKET_BYTES, bucket_sizes
from paceline.parts.plan.planner.memory import HALVED_AT_LEAST, HALVED_AT_MOST
from paceline.parts.plan.planner.workload import Precision, Strategy, Workload

# Kinds of operations that run in the autocast precision. Source: torch docs, "Automatic Mixed Precision package", op-specific behaviour.
_AUTOCAST_KINDS = frozenset({"matmul", "convolution", "attention"})
_HALF = frozenset({Precision.BF16, Precision.FP16})


def with_batch(workload: Workload, batch: int) -> Workload:
    """This number of samples in a microbatch: everything that depends on them grows in proportion.

    Raises:  ValueError: the workload's own batch is unknown
    """
    if workload.batch is None:
        raise ValueError("a batch that is unknown cannot be changed")
    ratio = batch / workload.batch
    return replace(
        _computing(workload, ratio),
        batch=batch,
        activation_bytes=_scaled(workload.activation_bytes, ratio),
        batch_bytes=_scaled(workload.batch_bytes, ratio),
        loading_seconds=None if workload.loading_seconds is None else workload.loading_seconds * ratio,
    )


def with_precision(workload: Workload, precision: Precision) -> Workload:
    """The same step with its products in another precision: they move half or twice the bytes, activations err to the side of more.

    Parameters stay as they are stored.
    """
    before, half = workload.precision, precision in _HALF
    same_width = before is None or (before in _HALF) is half
    moved = 1.0 if same_width else 0.5 if half else 2.0
    kept = (
        1.0
        if same_width or (half and workload.checkpointed_activations)
        else HALVED_AT_LEAST
        if half
        else 1 / HALVED_AT_MOST
    )
    replaced = {before} if before in _HALF else {Precision.FP32, Precision.TF32}
    return replace(
        workload,
        precision=precision,
        autocast=workload.autocast if same_width else half,
        activation_bytes=_scaled(workload.activation_bytes, kept),
        operations=tuple(
            replace(operation, precision=precision, moved_bytes=operation.moved_bytes * moved)
            if operation.kind in _AUTOCAST_KINDS and operation.precision in replaced
            else operation
            for operation in workload.operations
        ),
    )


def with_buckets(workload: Workload, cap_bytes: int) -> Workload:
    """DDP's buckets under a `bucket_cap_mb`, as if a tensor could be cut anywhere; the first is small only where none is given.

    Holds:   the buckets add up to the gradients, and none is above the cap
    Raises:  UsageError U03: a cap below DDP's own first bucket
    Source:  torch 2.13 torch/nn/parallel/distributed.py, `first_bucket_bytes_cap`
    """
    if cap_bytes < FIRST_BUCKET_BYTES:
        raise UsageError(
            "U03",
            "buckets that hold next to nothing",
            saw=f"{cap_bytes} bytes a bucket",
            next="--bucket-mib 1",
        )
    if workload.gradient_bytes is None:
        return workload
    sizes = bucket_sizes(workload.gradient_bytes, cap_bytes=cap_bytes, first_bytes=cap_bytes)
    return replace(workload, bucket_bytes=tuple(map(round, sizes)))


def with_microbatches(workload: Workload, microbatches: int) -> Workload:
    """This number of microbatches before the gradients are exchanged; the step's operations grow with them."""
    ratio = microbatches / workload.microbatches
    more = _computing(workload, ratio)
    operations = tuple(replace(one, count=math.ceil(one.count * ratio)) for one in more.operations)
    return replace(more, operations=operations, microbatches=microbatches)


def sharded(workload: Workload) -> Workload:
    """Parameters, gradients and optimizer state in shards instead of a copy on each device."""
    return replace(workload, strategy=Strategy.FSDP, bucket_bytes=())


def _computing(workload: Workload, ratio: float) -> Workload:
    return replace(
        workload,
        flops=None if workload.flops is None else workload.flops * ratio,
        operations=tuple(
            replace(operation, flops=operation.flops * ratio, moved_bytes=operation.moved_bytes * ratio)
            for operation in workload.operations
        ),
    )


def _scaled(value: int | None, ratio: float) -> int | None:
    return None if value is None else math.ceil(value * ratio)
