"""Replaces an attribute of torch by paceline's."""

from typing import Any


def replace(owner: Any, **things: Any) -> None:
    """`owner.name = thing` for each. `owner`: a module or a class, for the rest of this process.

    Holds:   code that bound the old thing to its own name keeps it, so this runs before the script's first import
    """
    for name, thing in things.items():
        setattr(owner, name, thing)
