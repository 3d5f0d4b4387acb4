"""Tensors that shared memory share it again, and tensors that did not have memory of their own.

`best = {name: value.cpu() for name, value in model.state_dict().items()}` shares the model's memory on a CPU, `copy.deepcopy` does not.
Which of the two a variable has at the kept step need not be what it has where the script begins.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

_ALIGNED = 64


class Placed(NamedTuple):
    """A tensor that has been put back, and where it was in its storage."""

    tensor: Any
    storage: int
    """Equal numbers: one storage."""
    start: int
    """Bytes from the beginning of the storage."""

    @property
    def end(self) -> int:
        """Behind its last byte, from the beginning of the storage."""
        return self.start + _bytes_spanned(self.tensor)


def put_in_place(placed: Iterable[Placed]) -> None:
    """Move tensors, as objects they stay, until they share memory as they did. Their values are put back afterwards.

    Holds:   where the script shares memory as before, no tensor moves
    """
    groups = _overlapping([one for one in placed if one.tensor.numel()])
    # A wrapper of a model knows where the parameters are.
    groups.sort(key=lambda group: not any(_is_parameter(one) for one in group))
    taken: list[tuple[int, int]] = []
    for group in groups:
        first = next((one for one in group if _is_parameter(one)), group[0])
        begin = first.tensor.data_ptr() - first.start
        low, high = group[0].start, max(one.end for one in group)
        if not _is_free(taken, begin + low, begin + high) or not _has_room(first, begin + low, begin + high):
            # Its beginning may have to lie at a multiple of the size of an element.
            lead = low % _ALIGNED
            storage = _new_storage(lead + high - low, first.tensor.device)
            begin = storage.data_ptr() + lead - low
        else:
            storage = first.tensor.untyped_storage()
        for one in group:
            if one.tensor.data_ptr() - one.start != begin:
                _move(one.tensor, storage, begin + one.start - storage.data_ptr())
        bisect.insort(taken, (begin + low, begin + high))


def fill(tensor: Any, values: Any) -> None:
    """Copy values into a tensor that may show one element in several places."""
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor, values = tensor.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    tensor.copy_(values)


def _overlapping(placed: list[Placed]) -> list[list[Placed]]:
    """Tensors in groups; those of a group shared memory. The first one of a group begins first."""
    groups: list[list[Placed]] = []
    storage, end = -1, 0
    for one in sorted(placed, key=lambda one: (one.storage, one.start)):
        if one.storage == storage and one.start < end:
            groups[-1].append(one)
            end = max(end, one.end)
        else:
            groups.append([one])
            storage, end = one.storage, one.end
    return groups


def _is_parameter(one: Placed) -> bool:
    return isinstance(one.tensor, sys.modules["torch"].nn.Parameter)


def _is_free(taken: list[tuple[int, int]], begin: int, end: int) -> bool:
    at = bisect.bisect_left(taken, (begin, begin))
    return (at == len(taken) or taken[at][0] >= end) and (at == 0 or taken[at - 1][1] <= begin)


def _has_room(one: Placed, begin: int, end: int) -> bool:
    storage = one.tensor.untyped_storage()
    return bool(storage.data_ptr() <= begin and end <= storage.data_ptr() + storage.nbytes())


def _new_storage(size: int, device: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()


def _move(tensor: Any, storage: Any, start: int) -> None:
    torch = sys.modules["torch"]
    with torch.inference_mode(False), torch.no_grad():
        moved = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        tensor.data = moved.set_(storage, start // tensor.element_size(), tensor.shape, tensor.stride())


def _bytes_spanned(tensor: Any) -> int:
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(elements * tensor.element_size())
