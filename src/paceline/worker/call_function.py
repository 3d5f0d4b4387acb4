"""Calls a function in a rank, for `paceline.run_function`: `python -m paceline.worker.call_function FILE`.

FILE says where the function is and has its arguments. What it returns is left beside FILE for the process that asked.
"""

import importlib
import os
import pickle
import runpy
import sys
import types
from pathlib import Path
from typing import Any


def call(path: Path) -> None:
    """Import, call, and leave the result."""
    with path.open("rb") as file:
        document = pickle.load(file)
    sys.path[:] = list(dict.fromkeys([*document["path"], *sys.path]))
    if document["main"] is not None:
        _become_main(document["main"])
    module, name, arguments = pickle.loads(document["call"])
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    result = function(*pickle.loads(arguments))
    draft = path.with_name(f".result_{os.environ['RANK']}.draft")
    draft.write_bytes(pickle.dumps(result))
    draft.replace(path.with_name(f"result_{os.environ['RANK']}.pickle"))


def _become_main(file: str) -> None:
    """Define what a script defines, without what it does only as the program, as multiprocessing does for its children."""
    main = types.ModuleType("__mp_main__")
    main.__dict__.update(runpy.run_path(file, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main


if __name__ == "__main__":
    call(Path(sys.argv[1]))
