"""Metrics as MetricDefinitions of SageMaker have them: numbers that regular expressions find in what the ranks print. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric."""

    name: str
    """As the job calls it."""
    pattern: re.Pattern[str]
    """Its first group is the number."""

    def values(self, line: str) -> Iterator[float]:
        """Every number that the expression finds in a line; what it finds and is no number, such as a heading, is passed over."""
        for found in self.pattern.finditer(line) if self.pattern.groups else ():
            try:
                yield float(found[1])
            except (TypeError, ValueError):
                continue


def compiled(definitions: Iterable[tuple[str, str]]) -> tuple[MetricDefinition, ...]:
    """Names and regular expressions, ready to be asked.

    Raises:  re.error: one of them is no regular expression
    """
    return tuple(MetricDefinition(name, re.compile(regex)) for name, regex in definitions)
