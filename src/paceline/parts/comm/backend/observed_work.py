"""Tells the observer about exchanges that gloo or NCCL carries out: their Work has no cheap callback, so it is polled."""

from __future__ import annotations

import itertools
import threading
from collections import deque

import torch
from torch._C._distributed_c10d import Work

from ..observer import Unobserved, observer
from .work import P2PWork

# A Future's callback costs a native exchange of 4 KiB more than a tenth of its time; looking afterwards costs it nothing. An exchange is
# seen to be over at the group's next one, or this much later.
LOOK_SECONDS = 0.05


class Watch:
    """The exchanges of one group, as reported to the observer."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._numbers = itertools.count(1)
        self._pair_numbers: dict[str, itertools.count[int]] = {}
        self._out: deque[tuple[int, Work]] = deque()

    def enqueued(self, op: str, tensor: torch.Tensor | None, numel: int | None = None) -> int:
        """Report that an exchange was issued. Returns its number."""
        number = next(self._numbers)
        told = observer()
        if type(told) is not Unobserved:
            dtype = "" if tensor is None else str(tensor.dtype)[6:]
            size = numel if numel is not None else 0 if tensor is None else tensor.numel()
            told.enqueued(self.group, number, op, dtype, size)
        return number

    def enqueued_between(self, op: str, tensor: torch.Tensor, peers: str) -> tuple[str, int]:
        """Report a send or a receive. The two ranks have their own count, because no other rank takes part."""
        group = f"{self.group}/{peers}"
        number = next(self._pair_numbers.setdefault(group, itertools.count(1)))
        told = observer()
        if type(told) is not Unobserved:
            told.enqueued(group, number, op, str(tensor.dtype)[6:], tensor.numel())
        return group, number

    def completed(self, number: int, group: str | None = None) -> None:
        """Report the end of an exchange that this process carried out, or that was refused."""
        observer().completed(group or self.group, number)

    def follow(self, work: Work, number: int) -> Work:
        """Report the end of this exchange later."""
        if type(observer()) is not Unobserved:
            out = self._out
            out.append((number, work))
            # The oldest is over when the next is asked for, nearly always.
            if out[0][1].is_completed():
                self.look()
            _looker.look_at(self)
        return work

    def follow_between(self, work: Work, number: int, group: str) -> Work:
        """Report the end of this send or receive once a caller has waited for it."""
        if type(observer()) is Unobserved:
            return work
        return P2PWork(work, lambda: self.completed(number, group))

    def look(self) -> bool:
        """Report all exchanges that have ended. Returns whether some have not."""
        for _ in range(len(self._out)):
            try:
                entry = self._out.popleft()
            except IndexError:
                break
            if entry[1].is_completed():
                observer().completed(self.group, entry[0])
            else:
                self._out.append(entry)
        return bool(self._out)


class _Looker:
    """One thread for all groups of the process; it sleeps while no exchange is running."""

    def __init__(self) -> None:
        self._watches: set[Watch] = set()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def look_at(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)
            if not self._wake.is_set():
                self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="paceline exchanges", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            self._wake.wait()
            pause.wait(LOOK_SECONDS)
            with self._lock:
                self._watches = {watch for watch in self._watches if watch.look()}
                if not self._watches:
                    self._wake.clear()


_looker = _Looker()
