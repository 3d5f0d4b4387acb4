"""Which instrument hears of which event in this rank. An instrument that raises is taken out, and its failure is noted once."""

from collections.abc import Callable, Mapping
from typing import Any


class Registry:
    """The methods that are called at each event, by the names of their instruments. An event that nobody hears of costs one look-up."""

    __slots__ = ("_drop", "_heard")

    def __init__(self, drop: Callable[[str, BaseException], None]) -> None:
        self._drop = drop
        # Replaced and never changed: another thread may be on its way through.
        self._heard: dict[str, dict[str, Callable[..., None]]] = {}

    def add(self, name: str, methods: Mapping[str, Callable[..., None]]) -> None:
        """Enter an instrument. `methods`: event -> what is called at it."""
        for event, method in methods.items():
            self._heard[event] = self._heard.get(event, {}) | {name: method}

    def remove(self, name: str) -> None:
        """Call an instrument no more; nothing where it is not there."""
        self._heard = {
            event: {other: method for other, method in heard.items() if other != name}
            for event, heard in self._heard.items()
        }

    def tell(self, event: str, *arguments: Any) -> None:
        """Tell everybody who hears of this event.

        Raises:  what a handler of a signal raised meanwhile; never what an instrument raised
        """
        for name in self._heard.get(event, ()):
            self.tell_one(name, event, *arguments)

    def tell_one(self, name: str, event: str, *arguments: Any) -> None:
        """The same for one instrument; nothing where it does not hear of this event, or was taken out."""
        method = self._heard.get(event, {}).get(name)
        if method is None:
            return
        try:
            method(*arguments)
        except Exception as error:
            self._drop(name, error)
