"""Calls the instruments that receive an event of this rank. An instrument that raises is removed, and its failure is noted once."""

from collections.abc import Callable, Mapping
from typing import Any


class Registry:
    """The methods to call at each event, by the names of their instruments. An event that no instrument receives costs one look-up."""

    __slots__ = ("_drop", "_heard")

    def __init__(self, drop: Callable[[str, BaseException], None]) -> None:
        self._drop = drop
        # This is replaced and never changed in place: another thread may be iterating over it.
        self._heard: dict[str, dict[str, Callable[..., None]]] = {}

    def add(self, name: str, methods: Mapping[str, Callable[..., None]]) -> None:
        """Add an instrument. `methods`: event -> the method to call."""
        for event, method in methods.items():
            self._heard[event] = self._heard.get(event, {}) | {name: method}

    def remove(self, name: str) -> None:
        """Remove an instrument, if it is there."""
        self._heard = {
            event: {other: method for other, method in heard.items() if other != name}
            for event, heard in self._heard.items()
        }

    def tell(self, event: str, *arguments: Any) -> None:
        """Call every instrument that receives this event.

        Raises:  an exception that a signal handler raised meanwhile; never an exception of an instrument
        """
        for name in self._heard.get(event, ()):
            self.tell_one(name, event, *arguments)

    def tell_one(self, name: str, event: str, *arguments: Any) -> None:
        """Call one instrument only; nothing happens if the instrument does not receive this event, or was removed."""
        method = self._heard.get(event, {}).get(name)
        if method is None:
            return
        try:
            method(*arguments)
        except Exception as error:
            self._drop(name, error)
