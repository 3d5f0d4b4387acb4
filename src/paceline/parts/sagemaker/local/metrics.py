"""The numbers that MetricDefinitions find in a job's lines. It only remembers the last number of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.contract.metric_definitions import compiled


class Scraper:
    """The last value of each metric. The regular expressions of the definitions must be valid."""

    def __init__(self, definitions: Sequence[Mapping[str, str]]) -> None:
        self._wanted = compiled((one["Name"], one["Regex"]) for one in definitions)
        self._last: dict[str, tuple[float, float]] = {}

    def see(self, text: str, time_seconds: float) -> None:
        """Search one line. The first number of a metric in the line counts."""
        for one in self._wanted:
            if (number := next(one.values(text), None)) is not None:
                self._last[one.name] = (number, time_seconds)

    def final(self) -> list[dict[str, Any]]:
        """FinalMetricDataList of DescribeTrainingJob."""
        return [{"MetricName": name, "Value": value, "Timestamp": at} for name, (value, at) in self._last.items()]
