"""Kinds of objects of other libraries: those with a state_dict are kept by it, others are left as the script makes them again.

An object that is left must not change while the script trains, or the script would go on with another one. So its plain attributes and its
tensors are compared from step to step. Some objects change and decide on nothing: progress bars, writers, loggers.
"""

from __future__ import annotations

import weakref
from typing import Any

from .object_graph import LEFT, MISSING, PLAIN_TYPES, CannotKeep, CannotPutBack, Capture, ObjectKind, Restore
from .tensors import is_dense, sampled_checksum

_DECIDE_NOTHING = (
    "_io", "_thread", "_weakref", "_contextvars", "_queue", "asyncio", "concurrent", "ctypes", "io", "logging", "mmap", "multiprocessing",
    "queue", "re", "select", "selectors", "socket", "ssl", "subprocess", "tempfile", "threading", "weakref", "contextlib", "time",
    "torch.autograd", "torch.cuda", "torch.distributed", "torch._C", "torch.profiler", "torch.utils.tensorboard", "torch._dynamo",
    "tensorboard", "tensorboardX", "tqdm", "wandb", "mlflow", "rich", "clearml", "comet_ml", "neptune", "aim", "matplotlib", "PIL",
    "pandas", "pyarrow", "prometheus_client", "psutil",
)  # fmt: skip

# Their threads hold what the script has given them, which would be lost with the process.
_WRITERS = ("torch.utils.tensorboard", "tensorboardX")


class StatefulKind(ObjectKind):
    """An object with state_dict and load_state_dict. Payload: the state_dict."""

    code = "stateful"

    def keep(self, capture: Capture, thing: Any) -> Any:
        try:
            state = thing.state_dict()
        except AttributeError as error:
            raise CannotKeep(f"`{capture.place}` ({type(thing).__qualname__}) has no state_dict: {error}") from None
        # Its tensors may be new at each call, and then no version tells whether they have changed.
        with capture.context.of_training():
            return [capture.value(state)]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if live is MISSING:
            raise CannotPutBack(f"the script has not made `{restore.place}` again")
        restore.bind(number, live)
        restore.states.append((live, restore.thing(payload[0])))
        return live


class LibraryKind(ObjectKind):
    """Any other object of a library. It is left alone; a writer of events writes out what it holds."""

    code = "library"

    def keep(self, capture: Capture, thing: Any) -> Any:
        if not type(thing).__module__.startswith(_DECIDE_NOTHING):
            capture.context.libraries.compare(thing, capture.place)
        if type(thing).__name__ == "SummaryWriter" and type(thing).__module__.startswith(_WRITERS):
            thing.flush()
        return LEFT

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        raise NotImplementedError


class LibraryObjects:
    """Objects of libraries that are left alone, and their plain attributes and checksums of their tensors when they were first seen."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[Any, dict[str, Any]]] = {}

    def compare(self, thing: Any, place: str) -> None:
        """Remember an object, or see whether it has changed.

        Raises:  CannotKeep: it has
        """
        attributes = getattr(thing, "__dict__", None)
        if attributes is None:
            return
        plain = {
            name: sampled_checksum(value) if is_dense(value) else value
            for name, value in attributes.items()
            if type(value) in PLAIN_TYPES or is_dense(value)
        }
        known = self._first.get(id(thing))
        if known is None or known[0]() is not thing:
            try:
                self._first[id(thing)] = (weakref.ref(thing), plain)
            except TypeError:
                pass
        elif known[1] != plain:
            changed = next(name for name in plain.keys() | known[1].keys() if plain.get(name) != known[1].get(name))
            raise CannotKeep(
                f"`{place}` ({type(thing).__module__}.{type(thing).__qualname__}) changes: its `{changed}`"
            )
