"""How far the clocks of the hosts are from the first host's, as its agent has measured it; stamps of other hosts are put right by it.

A `clock` event has the host, `offset_ns` (its clock minus the first host's) and `error_ns`, the bound of the error. Without an event the
clocks agree to a millisecond, or it was not measured.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paceline.facts import RankRecord

_NS = 1e9
_LONGEST_NS = 1 << 62


class HostClocks:
    """The offsets of a run's hosts over its time."""

    def __init__(self, events: Iterable[Mapping[str, Any]] = ()) -> None:
        self._of_host: dict[str, list[tuple[int, int, int]]] = {}
        for event in events:
            if event.get("event") != "clock":
                continue
            host, values = event.get("host"), [event.get(name) for name in ("t_ns", "offset_ns", "error_ns")]
            if isinstance(host, str) and all(isinstance(one, int) and abs(one) < _LONGEST_NS for one in values):
                at_ns, offset_ns, error_ns = (int(one or 0) for one in values)
                self._of_host.setdefault(host, []).append((at_ns, offset_ns, error_ns))
        for known in self._of_host.values():
            known.sort()

    def offset_ns(self, host: str, t_ns: int | None = None) -> int:
        """The host's clock minus the first host's at a time, or at the end; 0: they agree, or it is not known.

        Before the first measurement that one counts.
        """
        known = self._of_host.get(host)
        if not known:
            return 0
        place = len(known) if t_ns is None else bisect_right(known, t_ns, key=lambda one: one[0])
        return known[max(place - 1, 0)][1]

    def texts(self) -> list[str]:
        """By how much each host's stamps are put right, in words."""
        return [
            f"{host}: its stamps are put right by {-known[-1][1] / _NS:+.3f} s (up to {known[-1][2] / _NS:.4f} s off)"
            for host, known in sorted(self._of_host.items())
        ]

    def line(self, host: str, line: dict[str, Any]) -> dict[str, Any]:
        """A host's line of JSON with its time on the first host's clock."""
        t_ns = line.get("t_ns")
        if host not in self._of_host or not isinstance(t_ns, int):
            return line
        return {**line, "t_ns": t_ns - self.offset_ns(host, t_ns)}

    def rank(self, record: RankRecord) -> RankRecord:
        """A rank's record with its times on the first host's clock."""
        if record.host not in self._of_host:
            return record

        def here(t_ns: int | None) -> int | None:
            return None if t_ns is None else t_ns - self.offset_ns(record.host, t_ns)

        return replace(
            record,
            first_step_ns=here(record.first_step_ns),
            last_step_ns=here(record.last_step_ns),
            steps=tuple(replace(step, end_ns=here(step.end_ns) or 0) for step in record.steps),
        )
