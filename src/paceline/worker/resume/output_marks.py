"""Marks in this rank's stdout and stderr where a state is kept or put back, for the agent, which takes them out again.

The agent needs them to show a line of a step that is made again only once. What the script has printed must have left this process by
then: buffered lines of a kept step would be lost with it, and no later step prints them again.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress

from ...recording.output_mark import mark_of
from ..program_start import output_pipes, pipe_of


class OutputMarks:
    """The two pipes with which this process began."""

    def __init__(self) -> None:
        self._pipes = list(output_pipes().items())

    def flush(self) -> None:
        """Let what the script has printed leave this process."""
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            # An object of the script's own may do anything at a flush.
            if type(stream) is io.TextIOWrapper:
                with suppress(OSError, ValueError):
                    stream.flush()

    def kept(self, step: int) -> None:
        """Mark that a step is kept. Never waits: where the terminal is not read the mark is left out, and lines may be shown twice."""
        for descriptor, pipe in self._pipes:
            if pipe_of(descriptor) != pipe:
                continue
            with suppress(OSError):
                # A file of its own, because not to wait is a property of the open file, which others have too.
                own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(own, mark_of(step))
                finally:
                    os.close(own)

    def put_back(self, step: int) -> None:
        """Mark that the script goes on. Waits as a print does: without this mark new lines could be taken for repeated ones."""
        for descriptor, pipe in self._pipes:
            if (there := _descriptor_of(pipe, descriptor)) is not None:
                with suppress(BrokenPipeError):
                    _write(there, mark_of(step))


def _write(descriptor: int, mark: bytes) -> None:
    while True:
        try:
            os.write(descriptor, mark)
            return
        except BlockingIOError:
            select.select([], [descriptor], [])


def _descriptor_of(pipe: int, usual: int) -> int | None:
    """A descriptor that leads to the pipe; None: this process cannot write to it any more."""
    numbers = [usual, *(int(name) for name in os.listdir("/proc/self/fd"))]
    return next((number for number in numbers if pipe_of(number) == pipe), None)
