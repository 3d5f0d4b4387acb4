"""A function as a job: what the ranks need to find and call it, and what they returned."""

import importlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import NotEnoughEvidence, UsageError
from paceline.recording.owner import require_own
from paceline.recording.runs import make_run_directory

PROGRAM = "paceline.worker.call_function"
_CALL = "function.pickle"
_RESULT = "result_{}.pickle"


def write_call(function: Callable[..., Any], arguments: Sequence[Any], directory: Path) -> Path:
    """Write the call into the directory of a run that will be.

    Raises:  UsageError U28: a rank could not find the function, or an argument cannot be pickled
    """
    main = _require_importable(function)
    try:
        content = pickle.dumps((function.__module__, function.__qualname__, pickle.dumps(tuple(arguments))))
    except Exception as error:  # pickle raises what the objects raise
        raise UsageError(
            "U28",
            f"the arguments of {function.__qualname__} cannot be pickled",
            saw=f"{type(error).__name__}: {error}",
            next="give names of files, numbers and texts, and open what they name in the function",
        ) from error
    directory.parent.mkdir(parents=True, exist_ok=True)
    make_run_directory(directory)
    path = directory / _CALL
    with open(path, "xb", opener=_private) as file:
        pickle.dump({"path": [entry or str(Path.cwd()) for entry in sys.path], "main": main, "call": content}, file)
    return path


def results_of(directory: Path) -> dict[int, Any]:
    """Rank -> the value that the function returned there.

    Raises:  NotEnoughEvidence U20: no rank has returned
             UsageError U25: another user could have written one of them, and a pickle can do anything
    """
    found = {}
    paths = list(directory.glob(_RESULT.format("*")))
    if paths:
        require_own(directory, *paths, verb="python")
    for path in paths:
        found[int(path.stem.removeprefix("result_"))] = pickle.loads(path.read_bytes())
    if not found:
        raise NotEnoughEvidence(
            "U20",
            f"no rank of {directory.name} has returned from a function",
            saw=f"no result below {directory}",
            next=f"paceline why {directory.name}",
        )
    return dict(sorted(found.items()))


def _require_importable(function: Callable[..., Any]) -> str | None:
    """Refuse what a rank could not find by module and name. Returns the file of __main__ if the function is defined there.

    Raises:  UsageError U28
    """
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "")
    if not name or "<" in name:
        raise _refused(
            repr(function), "it has no name of its own at the top of a module", "def it at the top of a module"
        )
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            raise _refused(
                name,
                "it is defined in a notebook or a prompt, which the ranks do not have",
                "%%writefile train_function.py, and import it",
            )
        return str(Path(file).absolute())
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise _refused(
            name, f"{module}.{name} is another object", "give the function itself, without a decorator that replaces it"
        )
    return None


def _refused(name: str, saw: str, next_step: str) -> UsageError:
    return UsageError("U28", f"the ranks cannot find the function {name}", saw=saw, next=next_step)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
