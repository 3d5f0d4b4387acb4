"""One order of hosts, by number, wherever paceline may choose: algo-10 comes after algo-2."""

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"([0-9]+)")


def host_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key that compares the digits in a name as numbers.

    Holds:   host_key("algo-2") < host_key("algo-10")
    """
    pieces = _NUMBER.split(name)
    return tuple(int(piece) if index % 2 else piece for index, piece in enumerate(pieces)), name


def host_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names in numeric order, each once. Every list of hosts whose order is ours to choose comes from here."""
    return tuple(sorted(set(names), key=host_key))
