"""Puts something of ours in the place of something of torch's."""

from typing import Any


def replace(owner: Any, **things: Any) -> None:
    """`owner.name = thing` for each. `owner`: a module or a class, for the rest of this process.

    Holds:   what has bound the old thing to a name of its own keeps it, so this runs before the script's first import
    """
    for name, thing in things.items():
        setattr(owner, name, thing)
