"""What waiting for a run prints in a program, a terminal or a notebook."""

import sys
import time
from collections.abc import Callable

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

    def __init__(self, recording: Callable[[], RunDirectory], launcher_text: Callable[[], str]) -> None:
        self._recording = recording
        self._launcher_text = launcher_text
        self._began = time.monotonic()
        self._files: dict[LogName, LogFile] = {}
        self._painted = 0.0
        self._has_line = False
        # A notebook's output is no terminal, and shows a line that is painted over as one does.
        self._paints = sys.stdout.isatty() or "ipykernel" in sys.modules

    def go_on(self) -> None:
        self._print([self._launcher_text(), *self._new_lines()])
        if self._paints and time.monotonic() - self._painted >= _LINE_SECONDS:
            self._painted = time.monotonic()
            self._paint()

    def finish(self) -> None:
        """The last lines, also those without an end, then the summary."""
        lines = self._new_lines()
        rest = [self._line(name, rest) for name, file in self._files.items() if (rest := file.rest())]
        self._print([*lines, *rest, self._launcher_text()])

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
        line = live_line(pace(found.ranks, ended=False), time.monotonic() - self._began, width=WIDTH)
        sys.stdout.write("\r" + line.ljust(WIDTH))
        sys.stdout.flush()
        self._has_line = True
