"""What waiting for a run prints in a program, a terminal or a notebook."""

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from paceline.errors import NotEnoughEvidence, UsageError
from paceline.recording.evidence import evidence
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, LogFile, LogName, log_files
from paceline.views.logs import log_line
from paceline.views.pace import pace
from paceline.views.status import live_line

WIDTH = 100
_LINE_SECONDS = 1.0


class WaitOutput:
    """Output of `wait`: the ranks' lines and the launcher's on the way, and one line about the progress that is painted over."""

    def __init__(
        self,
        recording: Callable[[], RunDirectory],
        launcher_text: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recording = recording
        self._launcher_text = launcher_text
        self._clock = clock
        self._began = clock()
        self._files: dict[LogName, LogFile] = {}
        self._painted = 0.0
        self._has_line = False
        # A notebook keeps all that is printed: there the line is one output that is changed.
        self._in_notebook = "ipykernel" in sys.modules
        self._handle: Any = None

    def go_on(self) -> None:
        self._print([self._launcher_text(), *self._new_lines()])
        if (self._in_notebook or sys.stdout.isatty()) and self._clock() - self._painted >= _LINE_SECONDS:
            self._painted = self._clock()
            self._paint()

    def finish(self) -> None:
        """The last lines, also those without an end, then the summary."""
        lines = self._new_lines()
        rest = [self._line(name, rest) for name, file in self._files.items() if (rest := file.rest())]
        self._print([*lines, *rest, self._launcher_text()])
        if self._handle is not None:
            self._show("")

    def _new_lines(self) -> list[str]:
        for file in log_files((self._recording(),), LogChoice()):
            self._files.setdefault(file.name, file)
        return [self._line(name, text) for name, file in self._files.items() for text in file.lines()]

    def _line(self, name: LogName, text: bytes) -> str:
        several = len({other.host for other in self._files}) > 1
        return log_line(name.host if several else None, name.rank, text).decode(errors="replace")

    def _print(self, texts: list[str]) -> None:
        text = "".join(texts)
        if not text:
            return
        if self._has_line:
            sys.stdout.write("\r" + " " * WIDTH + "\r")
            self._has_line = False
        sys.stdout.write(text)
        sys.stdout.flush()

    def _paint(self) -> None:
        try:
            found = evidence(self._recording().path, recent=True)
        except (OSError, UsageError, NotEnoughEvidence):
            return
        line = live_line(pace(found.ranks, ended=False), self._clock() - self._began, width=WIDTH)
        if self._in_notebook:
            self._show(line)
            return
        sys.stdout.write("\r" + line.ljust(WIDTH))
        sys.stdout.flush()
        self._has_line = True

    def _show(self, line: str) -> None:
        """Source: IPython, IPython.display.display, display_id"""
        if self._handle is None:
            self._handle = importlib.import_module("IPython.display").display(
                {"text/plain": line}, raw=True, display_id=True
            )
        else:
            self._handle.update({"text/plain": line}, raw=True)
