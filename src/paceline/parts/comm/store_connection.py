"""The store through which the ranks of a group find each other."""

from __future__ import annotations

from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore


class OwnConnection:
    """A separate connection of one group to its store, made when it is first needed.

    One connection carries one request at a time, and a wait is a request: a thread that waits on the connection of the whole process would
    hold up every other thread, and two ranks whose groups open in different orders would hold each other up for good.
    """

    def __init__(self, store: Store, token: str) -> None:
        self._shared = store
        self._token = token
        self._own: Store | None = None

    @property
    def store(self) -> Store:
        """The same keys, over a connection that no other group uses."""
        if self._own is None:
            self._own = self._connect()
        return self._own

    def _connect(self) -> Store:
        shared: Any = self._shared
        if hasattr(shared, "clone"):
            own: Store = shared.clone()
            return own
        # torch < 2.8 cannot copy a store, but a second client finds the same server.
        while hasattr(shared, "underlying_store"):
            shared = shared.underlying_store
        if isinstance(shared, TCPStore):
            client = TCPStore(shared.host, shared.port, is_master=False, wait_for_workers=False)
            return PrefixStore(f"paceline/{self._token}/", client)
        return self._shared


def read_all(store: Any, names: list[str]) -> list[bytes]:
    """The values of existing keys, in one round trip if the store can do that."""
    if store.has_extended_api():
        return list(store.multi_get(names))
    return [store.get(name) for name in names]
