"""What the exchanges among the ranks of a host need of the arrays that they move: torch's tensors or numpy's arrays, flat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Array = Any
Function = Callable[..., Array]
"""function(a, b, out=c): element by element, c = op(a, b). It returns c."""


@dataclass(frozen=True)
class Arrays:
    """One kind of arrays. All of them are flat and contiguous."""

    over: Callable[[memoryview, Any, int, int], Array]
    """(mapping, dtype, offset in bytes, number of elements) -> an array over these bytes. It keeps the mapping alive."""
    part: Callable[[Array, int, int], Array]
    """(array, first element, number of elements) -> a view of these elements."""
    cut: Callable[[Array, int], Sequence[Array]]
    """(array, length) -> pieces of this length; the last piece is shorter. Without elements: one empty piece."""
    copy: Callable[[Array, Array], Any]
    """(target, source): of the same dtype and length."""
    divide: Callable[[Array, int], Any]
    """Divide all elements, in place."""
