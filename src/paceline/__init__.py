"""paceline: data-parallel training that keeps its pace and says why when it does not.

Importing this package loads nothing else: the verbs are in `paceline.cli`, those for Python in `paceline.api`, and the code inside a rank
is in `paceline.worker`.
"""

# A type checker takes the name for typing's. typing itself is a slow import, and nothing catches Ctrl-C before `main` runs.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from paceline.api import run, run_function, runs

__all__ = ["__version__", "run", "run_function", "runs"]

__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    """The functions of `paceline.api`, which is imported when the first of them is asked for."""
    if name not in ("run", "run_function", "runs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.api"), name)
