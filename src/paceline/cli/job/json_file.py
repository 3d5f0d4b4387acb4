"""The file of `--set json_file`: the answer of `paceline run` as JSON, apart from what the ranks write."""

import os
import shlex
from pathlib import Path

from paceline.atomic_write import write_whole
from paceline.errors import UsageError
from paceline.facts import Evidence
from paceline.terminal_text import write_line


def answer_file(text: str | None) -> str | None:
    """The absolute path of --set json_file.

    Raises:  UsageError U22: the file could not be written when the job has ended
    """
    if text is None:
        return None
    path = Path(text).absolute()
    if os.path.isdir(path) or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(
            "U22",
            f"--set json_file={text} cannot be written",
            saw="it is a directory" if os.path.isdir(path) else f"{path.parent} is not there, or not writable",
            next=f"ls -ld {shlex.quote(str(path.parent))}",
        )
    return str(path)


def write_answer(path: str, found: Evidence) -> None:
    """Write the answer. A disk that refuses it does not change how the run ended."""
    from paceline.views.documents import json_text
    from paceline.views.summary import summary_facts

    try:
        write_whole(Path(path), json_text(summary_facts(found)) + "\n")
    except OSError as error:
        write_line(f"paceline  --set json_file={path} could not be written: {error.strerror}")
