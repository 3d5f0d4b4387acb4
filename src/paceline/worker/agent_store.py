"""Keeps torch to the store that the agent holds where it is meant, and lets a rank serve its own anywhere else.

TORCHELASTIC_USE_AGENT_STORE says that nobody has to serve a store. Scripts that set an address of their own, as many examples do, wait
for ever under torchrun for a store that nobody serves; torch 2.15 looks at the address, but not where it is set in the environment.
"""

import _socket
import os
import threading
import time
from contextlib import closing
from typing import Any

_VARIABLE = "TORCHELASTIC_USE_AGENT_STORE"
# The holder needs a part of the time that a rank takes before it asks. It may be swapped out.
_MOST_SECONDS = 60.0
_LOOK_SECONDS = 0.02


# Stores that this rank serves, because the agent could not have them held.
_served: list[Any] = []


def let_ranks_serve_their_own(rendezvous: Any) -> None:
    """Heed the variable for the agent's port alone. `rendezvous`: the module torch.distributed.rendezvous."""
    uses, create = rendezvous._torchelastic_use_agent_store, rendezvous._create_c10d_store
    call = threading.local()

    def is_of_agent() -> bool:
        # Asked at each call: a rank may be a fork of a process that had no rank's environment.
        port_of_agent = os.environ.get("PACELINE_STORE_PORT")
        return getattr(call, "port", port_of_agent) == port_of_agent

    def _torchelastic_use_agent_store() -> bool:
        return is_of_agent() and uses()

    def _create_c10d_store(hostname: str, port: int, rank: int, *args: Any, **kwargs: Any) -> Any:
        call.port = str(port)
        # With it, torch's C++ takes a port that somebody else holds for the agent's, and waits there.
        told = os.environ.pop(_VARIABLE, None) if not is_of_agent() else None
        try:
            if rank == 0 and _torchelastic_use_agent_store() and not _is_held(port):
                _served.append(_server(port))
            return create(hostname, port, rank, *args, **kwargs)
        finally:
            del call.port
            if told is not None:
                os.environ[_VARIABLE] = told

    rendezvous._torchelastic_use_agent_store = _torchelastic_use_agent_store
    rendezvous._create_c10d_store = _create_c10d_store


def _is_held(port: int) -> bool:
    """Wait until the store is there. False: the agent says that nobody holds it, or it does not come."""
    not_held = os.path.join(os.environ.get("PACELINE_SOCKET_DIR", ""), "store.not_held")
    ends_at = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < ends_at and not os.path.exists(not_held):
        with closing(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)) as socket:
            if socket.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(_LOOK_SECONDS)
    return False


def _server(port: int) -> Any:
    from torch._C._distributed_c10d import TCPStore

    return TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
