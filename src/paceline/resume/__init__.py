"""For scripts that say themselves what goes on after a restart. Without `paceline run --resume auto` all of this does nothing.

for epoch in steps(range(epochs)):
    for x, y in steps(loader):
        ...
"""

import builtins
import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

__all__ = ["steps"]


def steps(source: Iterable[T]) -> Iterable[T]:
    """The items of a loop that is to go on after a restart: the training loop, and each loop around it.

    Without a state to go on from, this is `source` itself.
    """
    follow = getattr(builtins, "__paceline_loop__", None)
    if follow is None:
        return source
    frame = sys._getframe(1)
    found: Iterable[T] = follow(frame.f_lineno, source, frame)
    return found
