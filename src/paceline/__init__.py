"""paceline: data-parallel training that keeps its pace and says why when it does not.

Importing this package loads nothing else: the verbs are in `paceline.cli`, those for Python in `paceline.api`, and the code inside a rank
is in `paceline.worker`.
"""

import builtins

# A type checker takes the name for typing's. typing itself is a slow import, and nothing catches Ctrl-C before `main` runs.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from paceline.api import run, run_function, runs

__all__ = ["__version__", "run", "run_function", "runs", "step"]

__version__ = "0.1.0"


def step() -> None:
    """Say that a step has ended, in a loop that paceline cannot see into, such as one written by hand in JAX. Outside of a job: nothing.

    Steps of an optimizer of torch, of TensorFlow or of Keras that take turns with these calls are not counted again.
    """
    count = getattr(builtins, "__paceline_step__", None)
    if count is not None:
        count()


def __getattr__(name: str) -> "Any":
    """The functions of `paceline.api`, which is imported when the first of them is asked for."""
    if name not in ("run", "run_function", "runs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.api"), name)
