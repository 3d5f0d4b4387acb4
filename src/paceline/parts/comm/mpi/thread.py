"""The one thread of this process that calls MPI.

Every exchange is a set of non-blocking requests. They begin in the order of the calls and are polled until they end. So exchanges
of different groups may begin in different orders on different ranks, as torch allows, and each wait has its end. MPI has no wait that
sleeps: the thread looks without pause at first, then sleeps a twentieth of the time that the exchange has taken so far.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch._C._distributed_c10d import Work

SPIN_SECONDS = 200e-6
LONGEST_PAUSE_SECONDS = 200e-6

# An exchange that lasts longer than the first looks every so often whether a rank has left the group; then it has a little time left to
# end by what that rank had still contributed.
LOOK_AFTER_SECONDS = 1.0
LOOK_EVERY_SECONDS = 0.5
AFTER_A_DEPARTURE_SECONDS = 3.0

Start = Callable[[], list[Any]]
Over = Callable[[BaseException | None], None]
Departed = Callable[[], str]


class MpiTimeout(RuntimeError):
    """An exchange did not end in time. Its buffers still belong to MPI."""


class _Operation:
    def __init__(
        self,
        start: Start,
        over: Over,
        seconds: float,
        statuses: list[Any] | None,
        departed: Departed,
        after: Sequence[Work],
    ) -> None:
        self.start = start
        self.over = over
        self.statuses = statuses
        self.requests: list[Any] = []
        self.deadline = time.monotonic() + seconds
        self.why = f"not over after {seconds:g} s"
        self._departed = departed
        self._after = list(after)
        self._look_at = time.monotonic() + LOOK_AFTER_SECONDS

    def is_over(self, mpi: Any) -> bool:
        """
        Raises:  mpi4py.MPI.Exception
        """
        if not mpi.Request.Testall(self.requests, self.statuses):
            return False
        self._after = [work for work in self._after if not work.is_completed()]
        return not self._after

    def look(self, now: float) -> None:
        """Shorten the wait if a rank has left."""
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_SECONDS
            if (words := self._departed()) and now + AFTER_A_DEPARTURE_SECONDS < self.deadline:
                self.deadline = now + AFTER_A_DEPARTURE_SECONDS
                self.why = words

    def told(self, error: BaseException, mpi: Any) -> BaseException:
        """The error itself, if MPI only says that a status has it, such as for a message that is longer than its tensor."""
        codes = [code for status in self.statuses or () if (code := status.Get_error()) != mpi.SUCCESS]
        return mpi.Exception(codes[0]) if codes else error

    def withdraw(self) -> None:
        """Cancel a receive that no caller waits for, so that it does not take the message of a later one. A send cannot be cancelled."""
        if self.statuses is not None:
            for request in self.requests:
                request.Cancel()


def _nobody() -> str:
    return ""


class MpiThread:
    """Begins requests, and reports when they have ended. `mpi`: the module mpi4py.MPI."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._inbox: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._under_way: list[_Operation] = []
        # Requests that were not over in time: MPI may still write to their buffers, so these stay.
        self.given_up: list[_Operation] = []
        self._stopping = False
        self._progress_at = 0.0
        self._thread = threading.Thread(target=self._work, name="paceline mpi", daemon=True)
        self._thread.start()

    def submit(
        self,
        start: Start,
        over: Over,
        seconds: float,
        statuses: list[Any] | None = None,
        departed: Departed = _nobody,
        after: Sequence[Work] = (),
    ) -> None:
        """Call `start` in the thread, and `over` there once all requests that it returned have ended: with None, or with the error.

        An exchange that has not ended after `seconds` fails with MpiTimeout. `statuses`: of receives, one for each request, for
        MPI to fill in.
        `after`: it does not end before these. `departed`: returns which rank of the group has left it, if any.
        """
        self._inbox.put(_Operation(start, over, seconds, statuses, departed, after))

    def finish(self, start: Start, seconds: float) -> None:
        """Like `submit`, but wait for the end here.

        Raises:  MpiTimeout; whatever `start` or MPI raised
        """
        done = threading.Event()
        errors: list[BaseException] = []

        def over(error: BaseException | None) -> None:
            if error is not None:
                errors.append(error)
            done.set()

        self.submit(start, over, seconds)
        # `start` itself may block in MPI where no request exists for what it does.
        if not done.wait(seconds + 1.0):
            raise MpiTimeout(f"MPI did not return within {seconds:g} s")
        if errors:
            raise errors[0]

    def stop(self) -> bool:
        """Wait until the running exchanges end, at most until their time limits. Returns whether all of them ended in time."""
        began = time.monotonic()
        self._inbox.put(None)
        while self._thread.is_alive():
            self._thread.join(0.05)
            latest = max((operation.deadline for operation in self._under_way), default=began)
            # The thread may stand in a call of MPI that has no end.
            if time.monotonic() > latest + 1.0:
                return False
        return not self.given_up

    def _work(self) -> None:
        while self._under_way or not self._stopping:
            self._take()
            if self._under_way and not self._advance():
                self._pause()
        # An operation that has completed meanwhile does not need MPI_Abort.
        self.given_up = [operation for operation in self.given_up if not self._mpi.Request.Testall(operation.requests)]

    def _take(self) -> None:
        """Begin the queued exchanges; sleep while there is none to poll."""
        while True:
            try:
                operation = self._inbox.get(block=not self._under_way and not self._stopping)
            except queue.Empty:
                return
            if operation is None:
                self._stopping = True
                continue
            self._begin(operation)

    def _begin(self, operation: _Operation) -> None:
        try:
            operation.requests = operation.start()
        except BaseException as error:
            operation.over(error)
            return
        self._under_way.append(operation)
        self._progress_at = time.monotonic()

    def _advance(self) -> bool:
        """Poll all running exchanges once. Returns whether any has ended."""
        left = []
        now = time.monotonic()
        for operation in self._under_way:
            try:
                is_over = operation.is_over(self._mpi)
            except BaseException as error:
                operation.over(operation.told(error, self._mpi))
                continue
            if is_over:
                operation.over(None)
            elif now < operation.deadline:
                operation.look(now)
                left.append(operation)
            else:
                operation.withdraw()
                self.given_up.append(operation)
                operation.over(MpiTimeout(operation.why))
        ended = len(left) < len(self._under_way)
        self._under_way = left
        if ended:
            self._progress_at = now
        return ended

    def _pause(self) -> None:
        waited = time.monotonic() - self._progress_at
        if waited > SPIN_SECONDS:
            time.sleep(min(waited / 20, LONGEST_PAUSE_SECONDS))
