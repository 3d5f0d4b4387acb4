"""The terminal output of a running job: events as they happen, and a status line below the user's own output."""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.cli.corrected_command import corrected
from paceline.cli.job.options import VERB
from paceline.cli.terminal import ascii_only, columns, use_color
from paceline.facts import RankRecord
from paceline.recording.segments import from_progress
from paceline.terminal_text import visible
from paceline.views.live import doing, event_text
from paceline.views.pace import pace
from paceline.views.status import live_line, plain_line

PLAIN_INTERVAL_SECONDS = 30.0
_ERASE_LINE = b"\r\x1b[2K"


class RunTerminal:
    """A Reporter (launch/run.py) on stderr. `mode`: auto, plain or off; `quiet`: only failures; `command`: what the user typed."""

    def __init__(
        self, *, mode: str, color: str, environ: Mapping[str, str], quiet: bool = False, command: Sequence[str] = ()
    ) -> None:
        self._live = mode == "auto" and sys.stderr.isatty() and environ.get("TERM") != "dumb" and not quiet
        self._lines = mode != "off" and not self._live and not quiet
        self._color = use_color(color, sys.stderr, environ)
        self._quiet = quiet
        self._command = tuple(command)
        self._ascii = ascii_only(sys.stderr)
        self._say: Callable[[int, str], None] = lambda fd, text: None
        self._began = time.monotonic()
        self._last_plain = self._began
        self._doing = "starting"
        self._wanted: int | None = None
        self._before: list[RankRecord] = []
        self._line = b""
        self._painted = threading.Lock()

    def attach(self, say: Callable[[int, str], None]) -> None:
        self._say = say

    def event(self, event: Mapping[str, Any]) -> None:
        """Print the event if the user must see it at once."""
        self._doing = doing(event) or self._doing
        if event.get("event") == "attempt_started":
            self._wanted = event.get("world_size")
            self._before = []
        if event.get("event") == "run_finished":
            self._set_line(b"")
            self._say(2, "")
        if self._quiet and event.get("event") not in ("host_lost", "refused"):
            return
        if event.get("event") == "refused" and self._command[:2] == ("paceline", "run"):
            event = {**event, "next": corrected(str(event.get("next")), self._command[2:], VERB)}
        text = event_text(event, color=self._color)
        if text is not None:
            self._say(2, text + "\n")

    def progress(self, progress: Mapping[str, Mapping[str, Any]]) -> None:
        """Update the status line, or print one line every 30 s. The launcher calls this once a second."""
        found = [from_progress(record, host) for host, ranks in progress.items() for record in ranks.values()]
        now = [record for record in found if record is not None]
        newest = pace(now, self._before, ranks_wanted=self._wanted)
        elapsed = time.monotonic() - self._began
        if self._live:
            line = live_line(newest, elapsed, doing=self._doing, width=columns(sys.stderr) - 1, ascii_only=self._ascii)
            self._set_line(visible(line).encode(errors="replace"))
            self._say(2, "")
        elif self._lines and time.monotonic() - self._last_plain >= PLAIN_INTERVAL_SECONDS:
            self._last_plain = time.monotonic()
            self._say(
                2, plain_line(newest, time.time_ns(), doing="" if newest.step is not None else self._doing) + "\n"
            )
        if not self._live or elapsed % 5 < 1:
            self._before = now

    def erase(self) -> bytes:
        return _ERASE_LINE if self._live else b""

    def repaint(self) -> bytes:
        with self._painted:
            return self._line

    def _set_line(self, line: bytes) -> None:
        with self._painted:
            self._line = line
