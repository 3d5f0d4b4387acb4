"""Host names of a run whose hosts share this machine and have no private /etc/hosts: PACELINE_ADDRESSES maps a name to an address."""

import functools
import json
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any


@functools.cache
def _table() -> dict[str, str]:
    try:
        table = json.loads(os.environ.get("PACELINE_ADDRESSES") or "{}")
        return {str(name): str(address) for name, address in table.items()}
    except (ValueError, AttributeError):
        return {}


def translated(name: Any) -> Any:
    """The address of a host of this run; any other name is returned unchanged.

    Holds:   translated("example.org") == "example.org"
    """
    if isinstance(name, bytes):
        return translated(name.decode("ascii", "replace")).encode() if name else name
    return _table().get(name, name) if isinstance(name, str) else name


def patch_socket(socket: ModuleType) -> None:
    """Make Python's name look-ups resolve the hosts of the run. `socket.connect` with a name resolves in C and is not affected."""
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, _translating(getattr(socket, name)))


def patch_store(c10d: Any) -> None:
    """Make torch's TCPStore, and so `env://` and `tcp://`, resolve the hosts of the run: TCPStore resolves names in C++."""
    if not _table():
        return
    construct = c10d.TCPStore.__init__

    def __init__(self: Any, host_name: str, *args: Any, **kwargs: Any) -> None:
        construct(self, translated(host_name), *args, **kwargs)

    c10d.TCPStore.__init__ = __init__


def _translating(look_up: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(look_up)
    def translate(host: Any, *args: Any, **kwargs: Any) -> Any:
        return look_up(translated(host), *args, **kwargs)

    return translate
