"""Parameters of a test that the suites leave out, as they are variants of others."""

from collections.abc import Container, Iterable

import pytest


def all_but(kept: Container[object], values: Iterable[object]) -> list[object]:
    """The values as parameters of a test: those that are not among `kept` are wide. A tuple is one of several arguments."""
    return [
        value
        if value in kept
        else pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.wide)
        for value in values
    ]
