"""Saves the ranks' state for an agent, in a separate process: `python -P -m paceline.parts.resume.agent.saver_process`.

The first line of stdin is the order (`SaverOrder`), and each further line asks for one thing. Answers go to stdout. All are lines of JSON.
The end of stdin means that the agent has died: the newest step is saved once more. This process loads a store's library and may wait
for a disk or a network. Neither an agent nor a rank must ever do that.
"""

import os
import queue
import signal
import sys
import threading
import time
from typing import Literal

import msgspec

from paceline.errors import PacelineError
from paceline.parts.resume.agent.save_newest_step import SavedStep, StateSaving
from paceline.parts.resume.recording.saved_state import JobFacts
from paceline.parts.resume.state_store import state_store
from paceline.priority import lower_priority
from paceline.storage.errors import as_ours
from paceline.storage.urls import shown

# Saving takes at most a tenth of the time, and does not wear out a disk with a state that is small.
_SHARE_OF_TIME = 0.1
PAUSE_SECONDS = 5.0
# A platform copies each save to a store, while the job trains.
COPIED_PAUSE_SECONDS = 60.0
_LAST_SAVE_SECONDS = 120.0
SILENT_SECONDS = 60.0
# The same while the agent waits for an answer, at the end of the job.
_SILENT_AT_END_SECONDS = 5.0
# A save must come to its end where nothing is idle too.
_LOW_PRIORITY = 10


class SaverOrder(msgspec.Struct, frozen=True):
    """What is saved where."""

    descriptors: tuple[int, ...]
    """Of the state buffers, in the order of the ranks; this process has inherited them."""
    place: str
    """A directory or a URL."""
    job: JobFacts
    """The job, for the manifest."""
    pause_seconds: float = PAUSE_SECONDS
    """Shortest time between two saves."""
    silent_seconds: float = SILENT_SECONDS
    """If a save has moved no byte for so long, the agent is told that the place does not answer."""


class SaverAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process says after a save."""

    to: str = ""
    """The request that is answered; empty: nothing was asked."""
    step: int | None = None
    """The newest step that is saved; None: none is."""
    seconds: float = 0.0
    """How long its save took."""
    size_bytes: int = 0
    """Bytes of its files."""
    failed: str = ""
    """Why a newer step could not be saved; empty: there is none."""
    other_run: str = ""
    """Id of another run that saves to the same place; empty: none is seen."""


Request = Literal["now", "save", "end"]
_GONE = "gone"


class SaverProgram:
    """Saves now and then, and when it is asked."""

    def __init__(self, order: SaverOrder) -> None:
        self.requests: queue.Queue[str] = queue.Queue()
        self.job_is_done = threading.Event()
        # The request for whose answer the agent waits.
        self.asked = ""
        self._order = order
        self._saving: StateSaving | None = None
        self._newest = SaverAnswer()
        # When a save has last moved a byte; None: no save is going on.
        self._moved: float | None = None

    def serve(self) -> None:
        """Save until the agent has left."""
        pause = 0.0
        while True:
            try:
                request = self.requests.get(timeout=pause or 0.01)
            except queue.Empty:
                request = ""
            if request == "end":
                self._tell(self._ended())
                self.asked = ""
                continue
            began = time.monotonic()
            before = self._newest.step
            answer = self._saved(request)
            if request or answer.failed or answer.step != before:
                self._tell(answer)
            if request == self.asked:
                self.asked = ""
            if request == _GONE:
                return
            pause = max(self._order.pause_seconds, (time.monotonic() - began) * (1 / _SHARE_OF_TIME - 1))

    def watch(self) -> None:
        """Tell the agent once of each save that does not move any more. A call of a store's library may never return."""
        told: tuple[float | None, str] = None, ""
        while True:
            time.sleep(min(1.0, self._order.silent_seconds / 10))
            moved, asked, most_seconds = self._moved, self.asked, self._order.silent_seconds
            if asked:
                most_seconds = min(most_seconds, _SILENT_AT_END_SECONDS)
            silent_seconds = time.monotonic() - moved if moved is not None else 0.0
            if silent_seconds < most_seconds or told == (moved, asked):
                continue
            told = moved, asked
            text = f"{shown(self._order.place)} has not answered for {silent_seconds:.0f} s"
            self._tell(msgspec.structs.replace(self._newest, to=asked, failed=text))

    def _is_over(self) -> bool:
        self._moved = time.monotonic()
        return self.job_is_done.is_set()

    def _saved(self, request: str) -> SaverAnswer:
        self._moved = time.monotonic()
        try:
            found = self._of_place().save()
        except Exception as error:
            # Whatever a store's library raises: the training goes on, and the save before is still there.
            return msgspec.structs.replace(self._newest, to=request, failed=self._reason(error))
        finally:
            self._moved = None
        if found is not None:
            self._newest = _answer(found)
        return msgspec.structs.replace(self._newest, to=request)

    def _ended(self) -> SaverAnswer:
        try:
            self._of_place().end()
        except Exception as error:
            return msgspec.structs.replace(self._newest, to="end", failed=self._reason(error))
        return SaverAnswer("end")

    def _of_place(self) -> StateSaving:
        if self._saving is None:
            self._saving = StateSaving(
                self._order.descriptors,
                state_store(self._order.place),
                self._order.job,
                is_over=self._is_over,
            )
        return self._saving

    def _reason(self, error: Exception) -> str:
        told = (
            error
            if isinstance(error, PacelineError)
            else as_ours(error, "the state could not be saved", self._order.place)
        )
        return f"{told.what} ({told.saw})"

    @staticmethod
    def _tell(answer: SaverAnswer) -> None:
        try:
            os.write(1, msgspec.json.encode(answer) + b"\n")
        except OSError:
            pass  # the agent has died: what was saved is there all the same


def _answer(found: SavedStep) -> SaverAnswer:
    return SaverAnswer(step=found.step, seconds=found.seconds, size_bytes=found.size_bytes, other_run=found.other_run)


def main() -> None:
    """Serve the agent at the other end of stdin and stdout."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        # What ends the agent comes to this process too, and then there is most to save.
        signal.signal(number, signal.SIG_IGN)
    lower_priority(_LOW_PRIORITY)
    program = SaverProgram(msgspec.json.decode(sys.stdin.readline(), type=SaverOrder))

    def read() -> None:
        for line in sys.stdin:
            request = msgspec.json.decode(line, type=str)
            if request != "now":
                program.asked = request
            if request == "end":
                program.job_is_done.set()
            program.requests.put(request)
        program.requests.put(_GONE)
        # A store that does not answer must not keep this process for ever.
        time.sleep(_LAST_SAVE_SECONDS)
        os._exit(1)

    for thread in (read, program.watch):
        threading.Thread(target=thread, daemon=True).start()
    program.serve()


if __name__ == "__main__":
    main()
