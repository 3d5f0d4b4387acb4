"""The terminal of `paceline top`: keys without Enter, one write for each picture, and a terminal as it was whatever ends the program."""

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from paceline.terminal_text import own_code, visible

# To the first place; to the end of the line, of the screen; begin and end of a picture that the terminal is to show at once.
_HOME, _TO_LINE_END, _TO_SCREEN_END = own_code("[H"), own_code("[K"), own_code("[J")
_BEGIN, _END = own_code("[?2026h"), own_code("[?2026l")
_HIDE_CURSOR, _SHOW_CURSOR = own_code("[?25l"), own_code("[?25h")

# What arrows and function keys send; the arrows up and down are k and j.
_ARROWS = re.compile(r"\x1b[\[O][0-9;]*([A-Za-z~])")


class Terminal:
    """Standard input and output, both a terminal. Use it as `with open_terminal() as terminal`."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._before = termios.tcgetattr(self._in)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def enter(self) -> None:
        """Give keys without Enter and without showing them, and hide the cursor. Ctrl-C and Ctrl-Z stay signals."""
        tty.setcbreak(self._in, termios.TCSANOW)
        self._write(_HIDE_CURSOR)

    def leave(self) -> None:
        """The terminal as it was, the cursor below the picture."""
        self._write(f"{_SHOW_CURSOR}\n")
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)

    def close(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)

    def paint(self, text: str) -> None:
        """Paint a picture over the old one, in one write."""
        lines = text.replace("\n", f"{_TO_LINE_END}\n")
        self._write(f"{_BEGIN}{_HOME}{lines}{_TO_LINE_END}{_TO_SCREEN_END}{_END}")

    def keys(self, seconds: float) -> str:
        """The keys that were pressed, at the latest after this time; "" also when the window changed. Ctrl-D is "q".

        Raises:  EOFError: the terminal is gone
        """
        ready, _, _ = select.select([self._in, self._wake_read], [], [], max(seconds, 0.0))
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._in not in ready:
            return ""
        data = os.read(self._in, 1024)
        if not data:
            raise EOFError
        text = _ARROWS.sub(lambda found: {"A": "k", "B": "j"}.get(found[1], ""), data.decode(errors="ignore"))
        return text.replace("\x04", "q")

    def wake(self) -> None:
        """Let `keys` return at once."""
        with suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"\0")

    def _write(self, text: str) -> None:
        data = visible(text).encode(sys.stdout.encoding or "utf-8", errors="replace")
        sys.stdout.flush()
        while data:
            data = data[os.write(self._out, data) :]


def has_keys() -> bool:
    """Whether keys can be read and pictures painted: both ends are a terminal that can move its cursor, and it is ours."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        return False
    # A background job that changed the terminal would be stopped.
    with suppress(OSError):
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    return False


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """The terminal, as it was before whenever the block ends, SIGTERM and SIGHUP included, and while Ctrl-Z stops the program.

    Raises:  SystemExit: 128 and the number of a signal that ends the program
    """
    terminal = Terminal()

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def stop(number: int, frame: FrameType | None) -> None:
        terminal.leave()
        os.kill(os.getpid(), signal.SIGSTOP)

    def go_on(number: int, frame: FrameType | None) -> None:
        terminal.enter()
        terminal.wake()

    def changed(number: int, frame: FrameType | None) -> None:
        terminal.wake()

    handlers = {
        signal.SIGTERM: end,
        signal.SIGHUP: end,
        signal.SIGTSTP: stop,
        signal.SIGCONT: go_on,
        signal.SIGWINCH: changed,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        terminal.enter()
        yield terminal
    finally:
        terminal.leave()
        for number, handler in before.items():
            signal.signal(number, handler)
        terminal.close()
