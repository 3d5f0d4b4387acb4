"""The strategies for a group whose backend works on the device itself, NCCL (preview: docs/exchange.md says on what it was tested).

The stream orders NCCL's collectives, so no thread is needed: each bucket is exchanged on a stream beside backward's stream, over the
group's own communicator, in the order of buckets. `ring` and `hierarchical` are both NCCL's all-reduce, because NCCL itself handles
the inside of hosts. `direct` and `parameter_server` are two all-to-alls, and so are `bf16` and `int8` with any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
import torch.distributed as dist

from ....backend_names import is_nccl
from .codec import Codec, ErrorFeedback
from .flat_buffer import FlatBuffer
from .shards import divide_first, equal_shares, whole_tensors


def is_on_device(group: dist.ProcessGroup, device: torch.device) -> bool:
    """Whether the group's backend for this device takes its tensors without a copy through the host.

    Holds:   False for every CPU device
    """
    if device.type == "cpu":
        return False
    try:
        return is_nccl(group._get_backend(device).name())
    except RuntimeError:
        return False


def average(
    flat_buffer: FlatBuffer,
    group: dist.ProcessGroup,
    strategy: str,
    codec: Codec,
    errors: ErrorFeedback,
    settings: Mapping[str, int],
) -> int:
    """Compute the average in place, on the current stream. Returns the bytes that this rank sent.

    Holds:   what the strategy's own file states, except for `ring` with a lossy codec, which uses two hops
    """
    size, numel = group.size(), flat_buffer.flat.numel()
    scale = divide_first(flat_buffer.flat, size, codec)
    if codec.is_exact and strategy in ("ring", "hierarchical"):
        dist.all_reduce(flat_buffer.flat, group=group)
        flat_buffer.flat.mul_(scale)
        return 2 * flat_buffer.flat.nbytes * (size - 1) // size
    if strategy == "parameter_server":
        bounds = whole_tensors(flat_buffer.lengths, size)
    else:
        bounds = equal_shares(numel, size, codec.align)
    return _two_hops(flat_buffer, group, bounds, codec, errors, scale)


def _two_hops(
    flat_buffer: FlatBuffer,
    group: dist.ProcessGroup,
    bounds: list[int],
    codec: Codec,
    errors: ErrorFeedback,
    scale: float,
) -> int:
    flat, rank, size = flat_buffer.flat, group.rank(), group.size()
    spans = list(pairwise(bounds))
    kept = errors.of((flat_buffer.key, "device"), flat.numel(), flat.device) if codec.has_feedback else None
    messages = [
        codec.write(flat[start:end], None if kept is None else kept[start:end]).view(torch.uint8)
        if end > start
        else flat.new_empty(0, dtype=torch.uint8)
        for start, end in spans
    ]
    sizes = [message.numel() for message in messages]
    start, end = spans[rank]
    incoming = flat.new_empty(size * sizes[rank], dtype=torch.uint8)
    dist.all_to_all_single(incoming, torch.cat(messages), [sizes[rank]] * size, sizes, group=group)
    answer = flat.new_empty(0, dtype=torch.uint8)
    if end > start:
        parts = [codec.read(part, end - start, flat.dtype) for part in incoming.split(sizes[rank])]
        # The order is that of the ranks; 16-bit floats are summed in 32 bits.
        total = parts[0].to(torch.float32 if flat.dtype.itemsize < 4 else parts[0].dtype, copy=True)
        for part in parts[1:]:
            total.add_(part)
        total = total.mul_(scale).to(flat.dtype if codec.is_exact else torch.float32)
        answer = codec.write(total, None if kept is None else kept[start:end]).view(torch.uint8)
    answers = flat.new_empty(sum(sizes), dtype=torch.uint8)
    dist.all_to_all_single(answers, answer.repeat(size), sizes, [sizes[rank]] * size, group=group)
    for (start, end), message in zip(spans, answers.split(sizes), strict=True):
        if end > start:
            flat[start:end].copy_(codec.read(message, end - start, flat.dtype))
    return sum(sizes) - sizes[rank] + sizes[rank] * (size - 1)
