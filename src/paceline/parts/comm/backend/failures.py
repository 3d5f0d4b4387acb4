"""The first failure of a group, readable by every rank: a rank that waits for a healthy rank learns why the healthy rank waits too."""

from __future__ import annotations

import torch.distributed as dist

from ..store_connection import OwnConnection

_FIRST = "failures/first"
_ANSWER = "failures/answer/"


class Failures:
    """Messages between the ranks through the group's store after a failure.

    `fault`: why this rank's group cannot be used any more. A store that does not answer counts as a further failure, not as an error here,
    except in `check`.
    """

    def __init__(self, connection: OwnConnection) -> None:
        self.fault: str | None = None
        self._connection = connection

    def report(self, text: str) -> None:
        """Report a failure, unless another rank was first."""
        try:
            self._connection.store.compare_set(_FIRST, "", text)
        except RuntimeError:
            pass

    def first(self) -> str | None:
        """The first report; None if there is none."""
        try:
            store = self._connection.store
            return store.get(_FIRST).decode() if store.check([_FIRST]) else None
        except RuntimeError:
            return None

    def check(self) -> None:
        """
        Raises:  DistBackendError: a rank of the group has failed, with its message; or the store does not answer
        """
        try:
            failed = self._connection.store.check([_FIRST])
        except RuntimeError as error:
            raise dist.DistBackendError(
                f"the store that the ranks share does not answer any more; the process that holds it has probably ended ({error})"
            ) from error
        if failed and (text := self.first()):
            raise dist.DistBackendError(text)

    def answer(self, rank: int) -> None:
        """Answer a roll call: this rank still runs."""
        try:
            self._connection.store.set(f"{_ANSWER}{rank}", "")
        except RuntimeError:
            pass

    def unheard(self, size: int) -> list[int]:
        """Ranks that have not answered; empty if the store does not answer."""
        try:
            return [rank for rank in range(size) if not self._connection.store.check([f"{_ANSWER}{rank}"])]
        except RuntimeError:
            return []
