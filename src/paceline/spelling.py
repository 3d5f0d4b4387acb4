"""Words of messages: plurals, options with their values, the known names most similar to a misspelt one. Standard library only."""

from collections.abc import Iterable


def plural(number: float | None, noun: str) -> str:
    """The noun after a number: "rank" after 1, "ranks" after any other number and after an unknown number."""
    return noun if number == 1 else f"{noun}s"


def as_typed(option: str, value: object) -> str:
    """An option with its value. A key of --set has `=` between them."""
    return f"{option}={value}" if option.startswith("--set ") else f"{option} {value}"


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The name that was most likely meant; None if no name is similar enough (1.0: equal)."""
    return next(iter(most_alike(name, known, 1, likeness)), None)


def most_alike(name: str, known: Iterable[str], most: int, likeness: float) -> list[str]:
    """At most `most` of the known names, the most similar name first."""
    # Only a misspelt name needs this import, and commands start faster without it.
    import difflib

    return difflib.get_close_matches(name, list(known), n=most, cutoff=likeness)
