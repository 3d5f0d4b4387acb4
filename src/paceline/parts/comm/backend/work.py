"""The Work objects of this process group, for exchanges for which gloo's or NCCL's own Work does not suffice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from ..no_compile import uncompiled

Body = Callable[[], object]
Failure = Callable[["AsyncWork", BaseException], BaseException]
Words = Callable[[], str]


@uncompiled
class AsyncWork(Work):
    """One exchange that this process carries out itself: the Work of torch.distributed, with a Future for C++ (DDP's reducer).

    `tensors`: the result of the exchange and value of the Future, as gloo gives it. `words`: the name of the exchange in an error.
    """

    def __init__(self, words: Words, tensors: list[torch.Tensor], body: Body, ended: Callable[[], None]) -> None:
        super().__init__()
        self.words = words
        self._tensors = tensors
        self._body: Body | None = body
        self._ended = ended
        self._error: BaseException | None = None
        self._over = False
        self._latch = threading.Lock()
        self._latch.acquire()
        self._future_lock = threading.Lock()
        self._set_future: Callable[[], None] | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def run(self, failed: Failure) -> None:
        """Carry it out on this thread; an error is kept for the callers that wait, in the words of `failed`."""
        assert self._body is not None
        try:
            self._body()
        except BaseException as error:
            self._error = failed(self, error)
        self._close()

    def _close(self) -> None:
        self._body = None
        self._over = True
        self._ended()
        self._latch.release()
        with self._future_lock:
            if self._set_future is not None:
                self._set_future()

    def until_over(self) -> None:
        """Wait without raising its error."""
        self._latch.acquire()
        self._latch.release()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it has ended. `timeout` limits this wait only; the exchange has the group's timeout.

        Raises:  DistBackendError: the exchange failed, or `timeout` passed
        """
        if not self._over:
            if timeout:
                if not self._latch.acquire(timeout=timeout.total_seconds()):
                    raise dist.DistBackendError(
                        f"{self.words()}: not over after the {timeout.total_seconds():g} s of this wait"
                    )
            else:
                self._latch.acquire()
            self._latch.release()
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A Future that gets the tensors when the exchange has ended. An error reaches C++ too, as a RuntimeError with the same text."""
        with self._future_lock:
            if self._future is None:
                bare: torch.futures.Future[None] = torch.futures.Future()
                # A Future of Python hands C++ an exception as its value; what a callback raises becomes an error there.
                self._future = bare.then(self._value)
                if self._over:
                    bare.set_result(None)
                else:
                    self._set_future = lambda: bare.set_result(None)
            return self._future

    def _value(self, _: object) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors

    def is_completed(self) -> bool:
        """Over, well or with an error."""
        return self._over

    def is_success(self) -> bool:
        """Over, and without an error."""
        return self._over and self._error is None

    def exception(self) -> BaseException | None:
        """What it failed with."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors it leaves behind."""
        return self._tensors

    def synchronize(self) -> None:
        """Wait; nothing runs on a stream."""
        self.wait()


@uncompiled
class PostprocessedWork(Work):
    """An exchange of gloo with a last step, such as dividing a sum. The first caller that sees its end does the step, once."""

    def __init__(self, native: Work, finish: Body, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._native = native
        self._finish: Body | None = finish
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._tensors = tensors

    def _settle(self) -> list[torch.Tensor]:
        with self._lock:
            if self._finish is not None:
                self._finish()
                self._finish = None
        return self._tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is over and finished; the error of the native Work as it is."""
        self._native.wait(timeout) if timeout else self._native.wait()
        self._settle()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Done with the tensors when it is finished."""

        def over(future: torch.futures.Future[object]) -> list[torch.Tensor]:
            future.value()
            return self._settle()

        future: torch.futures.Future[list[torch.Tensor]] = self._native.get_future().then(over)
        return future

    def is_completed(self) -> bool:
        """Over and finished, or failed."""
        if not self._native.is_completed():
            return False
        try:
            self.wait()
        except RuntimeError as error:
            self._error = error
        return True

    def is_success(self) -> bool:
        """Over, and without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """What the native Work failed with, once it is known to be over."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors it leaves behind."""
        return self._tensors

    def synchronize(self) -> None:
        """Wait; nothing runs on a stream."""
        self.wait()


@uncompiled
class StreamWork(Work):
    """An exchange whose caller waits at once, and for which NCCL gives no Work: it is in the caller's stream.

    Source:  torch 2.11, ProcessGroupNCCL.cpp: without asyncOp, collectives return nullptr
    """

    def wait(self, timeout: timedelta | None = None) -> bool:
        """At once: what the caller does next with the tensors is in the same stream."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self) -> BaseException | None:
        """None."""
        return None

    def synchronize(self) -> None:
        """Nothing: the stream keeps the order."""


@uncompiled
class P2PWork(Work):
    """A send or receive of gloo. Its end is known only once a caller has waited for it; then `ended` is called."""

    def __init__(self, native: Work, ended: Body) -> None:
        super().__init__()
        self._native = native
        self._ended: Body | None = ended

    def wait(self, timeout: timedelta | None = None) -> bool:
        """As the native Work."""
        try:
            return bool(self._native.wait(timeout) if timeout else self._native.wait())
        finally:
            if self._ended is not None:
                self._ended()
                self._ended = None

    def is_completed(self) -> bool:
        """As the native Work: not before somebody waited."""
        return bool(self._native.is_completed())

    def is_success(self) -> bool:
        """As the native Work."""
        return bool(self._native.is_success())

    def exception(self) -> BaseException | None:
        """As the native Work."""
        error: BaseException | None = self._native.exception()
        return error

    def source_rank(self) -> int:
        """Who sent what recv_anysource received, after the wait."""
        return int(self._native._source_rank())

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """As the native Work: gloo has none for these."""
        future: torch.futures.Future[list[torch.Tensor]] = self._native.get_future()
        return future

    def synchronize(self) -> None:
        """As the native Work."""
        self._native.synchronize()
