"""The plural of a noun, and the known names that a misspelt one is most like. Standard library only."""

from collections.abc import Iterable


def plural(number: float | None, noun: str) -> str:
    """The noun as it stands behind a number: "rank" behind 1, "ranks" behind any other and behind an unknown one."""
    return noun if number == 1 else f"{noun}s"


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The name that was most likely meant, None where none is so much like it (1.0: the same)."""
    return next(iter(most_alike(name, known, 1, likeness)), None)


def most_alike(name: str, known: Iterable[str], most: int, likeness: float) -> list[str]:
    """At most so many of the known names, the one that is most like this name first."""
    # Only a misspelt name needs it, and every command starts without it.
    import difflib

    return difflib.get_close_matches(name, list(known), n=most, cutoff=likeness)
