"""Holds the ranks' store: `python -I store_holder.py DESCRIPTOR DIRECTORY`, with the directory in which torch is.

The store outlives every rank of an attempt, as that of torchrun's agent does.
The server is torch's own, of the ranks' torch. Only torch's C library is loaded, which takes a quarter of what `import torch` takes; where
that does not do, torch is imported.

The descriptor is a socket that keeps the bounds of messages. A request is {"port": N}: from then on the store of a new attempt is
served there, and that of the attempt before is gone. The answer is {} or {"failed": reason}. The end of the connection ends this program.
"""

import datetime
import importlib
import importlib.util
import json
import os
import socket
import sys
import types
from typing import Any

_MOST_BYTES = 4096
# Nobody waits in this process: only the server of the store is used.
_TIMEOUT = datetime.timedelta(seconds=60)


def main() -> None:
    """Serve a store for each request of the agent."""
    if sys.argv[2] not in sys.path:
        sys.path.append(sys.argv[2])
    connection = socket.socket(fileno=int(sys.argv[1]))
    store, store_class = None, None
    while request := connection.recv(_MOST_BYTES):
        try:
            store_class = store_class or load_store_class()
            # The port may be that of the store before.
            del store
            store = store_class("127.0.0.1", json.loads(request)["port"], None, True, _TIMEOUT, False)
            answer = {}
        except Exception as error:
            store, answer = None, {"failed": f"{type(error).__name__}: {error}"[:1000]}
        connection.send(json.dumps(answer).encode())
    # The threads of the store need no farewell.
    os._exit(0)


def load_store_class() -> Any:
    """torch's TCPStore.

    Raises:  ImportError: there is no torch
    """
    before = set(sys.modules)
    try:
        _load_c_library()
        return importlib.import_module("torch._C._distributed_c10d").TCPStore
    except Exception:
        # This torch, or this build of it, needs what its Python code does first.
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "torch":
                del sys.modules[name]
        importlib.import_module("torch.distributed")
        return importlib.import_module("torch._C._distributed_c10d").TCPStore


def _load_c_library() -> None:
    """Load torch._C with its part for distributed training, below packages without code."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("no module named torch")
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.__path__, torch.__file__, torch.__spec__ = list(spec.submodule_search_locations), spec.origin, spec
    torch.distributed = sys.modules["torch.distributed"] = types.ModuleType("torch.distributed")
    importlib.import_module("torch._C")._c10d_init()


if __name__ == "__main__":
    main()
