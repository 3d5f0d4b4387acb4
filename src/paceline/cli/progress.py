"""Shows on stderr how far work is that lasts over a second: one repainted line on a terminal, a few plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import environ as process_environ
from types import TracebackType
from typing import TextIO

from paceline.cli.terminal import room
from paceline.terminal_text import own_code
from paceline.views.progress import RecentRate, finished_text, progress_text
from paceline.views.table import crop

# Work that ends before this time shows nothing.
FIRST_SECONDS = 1.0
PAINT_SECONDS = 0.25
LINE_SECONDS = 30.0
# To the first column; from the cursor to the end of the line.
_HOME, _TO_LINE_END = own_code("[G"), own_code("[K")


class ProgressLine:
    """Use it as `with ProgressLine("packing code", total, BYTES) as progress:`, and call `at` or `add` as the work goes on.

    `label`: what is done, as a participle. `unit`: BYTES or a plural. `shown`: False shows nothing, as under --json.
    `waits_for`: what the work waits for when nothing moves. `clock`: seconds.
    """

    def __init__(
        self,
        label: str,
        total: float | None = None,
        unit: str = "",
        *,
        shown: bool = True,
        waits_for: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = process_environ,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown, self._waits_for, self._clock = shown, waits_for, clock
        self._paints = self._stream.isatty() and environ.get("TERM") != "dumb"
        self._label, self._total, self._unit, self._done = label, total, unit, 0.0
        self._began = clock()
        self._rate = RecentRate(self._began)
        self._is_painted = False
        self._last_line: float | None = None
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="paceline-progress", daemon=True)

    def __enter__(self) -> "ProgressLine":
        if self._shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._erase()
            if kind is None and self._last_line is not None:
                seconds = self._clock() - self._began
                self._line(finished_text(self._label, self._done, self._total, seconds, self._unit))

    def at(self, done: float, total: float | None = None) -> None:
        """Note how far the work is. `total`: a total that was not known before."""
        with self._lock:
            if total is not None and self._total is None:
                # What came before, such as the start of the ranks, is no part of the speed.
                self._rate = RecentRate(self._clock(), done)
            self._done = done
            self._total = self._total if total is None else total

    def add(self, amount: float = 1.0) -> None:
        """Note further work that is done."""
        with self._lock:
            self._done += amount

    def now(self, label: str) -> None:
        """Name what is done from here on."""
        with self._lock:
            self._label = label

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Other lines may be written to the terminal here; the painted line comes back after them."""
        with self._lock:
            self._erase()
            yield

    def look(self) -> None:
        """Paint the line, or write one if it is time. The thread calls this."""
        with self._lock:
            now = self._clock()
            self._rate.at(now, self._done)
            seconds = now - self._began
            if self._ended.is_set() or seconds < FIRST_SECONDS:
                return
            due = self._last_line is None or now - self._last_line >= LINE_SECONDS
            if not self._paints and not due:
                return
            text = progress_text(
                self._label,
                self._done,
                self._total,
                seconds,
                self._unit,
                per_second=self._rate.per_second,
                still_seconds=self._rate.still_seconds(now) if self._total or self._waits_for else 0.0,
                waits_for=self._waits_for,
            )
            if self._paints:
                self._write(f"{_HOME}{crop(text, (room(self._stream) or 80) - 1)}{_TO_LINE_END}")
                self._is_painted = True
            else:
                self._line(text)
                self._last_line = now

    def _look_on(self) -> None:
        wait = FIRST_SECONDS
        while not self._ended.wait(wait):
            self.look()
            wait = PAINT_SECONDS

    def _line(self, text: str) -> None:
        self._write(f"paceline  {text}\n")

    def _erase(self) -> None:
        if self._is_painted:
            self._write(_HOME + _TO_LINE_END)
            self._is_painted = False

    def _write(self, text: str) -> None:
        # Nobody may read stderr any more (`2>&1 | head`); the work goes on.
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
