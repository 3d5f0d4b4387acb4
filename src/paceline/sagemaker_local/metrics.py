"""The numbers that MetricDefinitions find in a job's lines. Pure, but for remembering the last ones."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


class Scraper:
    """The last value of each metric, by regular expressions (which have been read before) whose first group is the number."""

    def __init__(self, definitions: Sequence[Mapping[str, str]]) -> None:
        self._wanted = [(one["Name"], re.compile(one["Regex"])) for one in definitions]
        self._last: dict[str, tuple[float, float]] = {}

    def see(self, text: str, time_seconds: float) -> None:
        """Look at one line; what matches and is no number is passed over, as there."""
        for name, pattern in self._wanted:
            found = pattern.search(text)
            number = None if found is None or not found.groups() else _number(found[1])
            if number is not None:
                self._last[name] = (number, time_seconds)

    def final(self) -> list[dict[str, Any]]:
        """FinalMetricDataList of DescribeTrainingJob."""
        return [{"MetricName": name, "Value": value, "Timestamp": at} for name, (value, at) in self._last.items()]


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
