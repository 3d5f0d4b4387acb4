"""What was chosen for the model that is being made before the ranks were killed."""

from collections.abc import Callable
from typing import Any


def _nothing() -> dict[str, Any] | None:
    return None


of_model: Callable[[], dict[str, Any] | None] = _nothing
"""None: nothing was chosen. Whoever keeps the state of ranks has its own function here."""
