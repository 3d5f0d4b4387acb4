"""Whether a dataset changes while a worker of a loader reads it. New workers after a restart have the dataset as the script makes it."""

from __future__ import annotations

import marshal
import time
from typing import Any

from .kinds import Context
from .object_graph import Capture

_BATCHES = 3
_MOST_SECONDS = 0.05


class DatasetWatch:
    """Compares the attributes of a worker's dataset before and after its first batches."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._left = _BATCHES
        self._before: dict[str, bytes] = {}

    def begin(self) -> None:
        """A batch is about to be read."""
        if not self._left:
            return
        began = time.monotonic()
        self._before = self._attributes()
        # A dataset of a million parts is looked at once at most.
        if time.monotonic() - began > _MOST_SECONDS:
            self._left = 0

    def changed(self) -> str | None:
        """The attribute that the batch has changed; None: there is none, or nobody looks any more."""
        if not self._left:
            return None
        self._left -= 1
        now = self._attributes()
        return next((name for name in now if self._before.get(name) != now[name]), None)

    def _attributes(self) -> dict[str, bytes]:
        return {name: _plain(name, value) for name, value in getattr(self._dataset, "__dict__", {}).items()}


def _plain(name: str, value: Any) -> bytes:
    capture = Capture(Context(None))
    capture.place = name
    try:
        found = capture.value(value)
    except Exception as error:
        # Attributes of the user may be of any kind; one that cannot be kept is compared by its message.
        return str(error).encode()
    return marshal.dumps((found, capture.nodes, [tensor._version for tensor in capture.tensors]))
