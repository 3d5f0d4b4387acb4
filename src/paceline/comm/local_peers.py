"""The processes of the ranks on this host: which of them have ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def my_card() -> str:
    """This process by number and start time: another may get its number later. Empty where there is no /proc."""
    start = _start_of(os.getpid())
    return "" if start is None else f"{os.getpid()}:{start}"


class LocalPeers:
    """The other ranks of this host, by their cards. One that cannot be seen at the start is never said to have ended."""

    def __init__(self, cards: Mapping[int, str]) -> None:
        self._cards = {rank: card for rank, card in cards.items() if card and _is_there(card)}

    def ended(self) -> list[int]:
        """Ranks whose process is over."""
        return [rank for rank, card in self._cards.items() if not _is_there(card)]


def _is_there(card: str) -> bool:
    number, _, start = card.partition(":")
    return _start_of(int(number)) == start


def _start_of(process: int) -> str | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in brackets may hold anything; state and start time are fields 3 and 22, Z and X the dead.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
