"""The names of a loaded module, read so that nothing is imported."""

from typing import Any


def namespace_of(module: object) -> dict[str, Any]:
    """The names of what stands in sys.modules, as the module itself has them; empty: it is no module.

    A library may leave a module there that is imported at the first look at an attribute (importlib.util.LazyLoader, wandb). It stays so.
    """
    try:
        found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return found
