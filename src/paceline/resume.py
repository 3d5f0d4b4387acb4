"""For scripts that say themselves what goes on after a restart. Without `paceline run --resume auto` all of this does nothing.

for epoch in steps(range(epochs)):
    for x, y in steps(loader):
        ...
"""

import builtins
import sys
import types
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")

__all__ = ["extra", "state", "steps"]


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


def state(**values: Any) -> types.SimpleNamespace:
    """A namespace with these attributes, for values that go on after a restart: `s = state(best=0.0)`, then `s.best`."""
    made = types.SimpleNamespace(**values)
    extra(made)
    return made


def extra(*things: Any) -> None:
    """Name objects that are to go on after a restart and that no variable of the script leads to.

    An object is kept by its `state_dict` and `load_state_dict` if it has them, else by its attributes if its class is the user's own.
    """
    named = getattr(builtins, "__paceline_extra__", None)
    if named is not None:
        named.extend(things)
