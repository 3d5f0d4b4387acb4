"""What ranks have to say to the person, once each: all ranks of a job find the same, and each of them says so."""

from collections.abc import Mapping
from typing import Any

MOST_OF_RANKS = 100


class Notices:
    """Which notices of ranks have been told. Those of agents, which name no rank, are told always."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def are_new(self, event: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether an event of a host is to be recorded; a rank's notice is from the first rank that says it in an attempt.

        Holds:   what differs between ranks is told for each of them; one run tells at most MOST_OF_RANKS
        """
        if event != "notice" or "rank" not in fields:
            return True
        key = (str(fields.get("attempt")), str(fields.get("text")))
        if key in self._told or len(self._told) >= MOST_OF_RANKS:
            return False
        self._told.add(key)
        return True
