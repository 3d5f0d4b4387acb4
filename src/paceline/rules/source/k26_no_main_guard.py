"""K26: a script that starts loader workers wherever it is imported, and whose workers import it."""

import ast
import re
import sys
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, constant_text, grammar_of, script_of

PAGE = """\
Loader workers of a script without a main guard

What it means: A DataLoader of the script has workers that are no forks of the rank: the script sets the start method spawn or forkserver,
  or sets none and runs on Python 3.14 or newer, where forkserver is the default. Such a worker imports the script before its first
  batch. The script has no `if __name__ == "__main__":`, so the worker begins the training as well, and is refused.
Why it matters: The job fails at its first batch, with ConnectionResetError in the rank. The same script runs on Python 3.13.
What to do: Put what the script does below `if __name__ == "__main__":`. Or give the loader forks:
  `DataLoader(..., multiprocessing_context="fork")`. A number of workers that is no number in the text is not reported.
Source: Python's multiprocessing, "Safe importing of main module"; What's new in Python 3.14, multiprocessing.
"""

_LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_SET = ("multiprocessing.set_start_method", "torch.multiprocessing.set_start_method")
_GUARD = re.compile(r"__name__\s*[=!]=|[=!]=\s*__name__")
_IMPORT_THE_SCRIPT = ("spawn", "forkserver")


def find(before: BeforeRun) -> Iterator[Finding]:
    """The first such loader."""
    script = script_of(before)
    by_default = _start_method(before, script)
    for call in script.calls(*_LOADER):
        workers, context = argument(call, "num_workers", 5), argument(call, "multiprocessing_context", 11)
        method = by_default if context is None else constant_text(context)
        imports_script = isinstance(workers, ast.Constant) and workers.value and method in _IMPORT_THE_SCRIPT
        # The entry point, which is one of these where another file makes the loader.
        if imports_script and not any(map(_GUARD.search, before.texts)):
            yield script.finding(
                call,
                "K26",
                f"each worker of this loader imports the script ({method}), which has no main guard",
                next='put what the script does below if __name__ == "__main__":, or multiprocessing_context="fork"',
            )
            return


def _start_method(before: BeforeRun, script: Script) -> str | None:
    """The start method of loaders that name none; None: it is not certain."""
    chosen = {argument(call, "method", 0) for call in script.calls(*_SET)}
    if chosen:
        methods = {None if method is None else constant_text(method) for method in chosen}
        return methods.pop() if len(methods) == 1 else None
    if any("start_method" in text for text in before.texts):
        return None
    return default_start_method(grammar_of(before) or sys.version_info[:2])


def default_start_method(python: tuple[int, ...]) -> str:
    """How a Python of this version starts processes on Linux unless it is told.

    Holds:   default_start_method((3, 13)) == "fork"
    Source:  What's new in Python 3.14, multiprocessing
    """
    return "forkserver" if python >= (3, 14) else "fork"


RULE = Rule(code="K26", page=PAGE, find=find)
