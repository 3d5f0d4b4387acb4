"""A host's telemetry, summed up for each minute: `telemetry.roll.jsonl`, so that days of it can be read.

    {"t_ns": Unix ns of the last sample, "seconds": 60, "count": 60, "mean": SAMPLE, "least": SAMPLE, "most": SAMPLE}

SAMPLE has the keys of a sample of `probes.telemetry.Sampler`, with the mean, the least or the largest number in each place where the
samples have numbers. What is no number (a rank's state) is that of the last sample. `least` and `most` have only numbers that changed
and that are no totals: of a total that grows, they say nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.recording.jsonl import read_json_lines
from paceline.recording.writer import JsonLines

SECONDS = 60
_DIGITS = 6
_LEFT_OUT = frozenset({"t_ns", "progress", "final"})
# Sections and keys of totals, see probes.telemetry.Sampler.
_TOTALS = frozenset({"network", "disk", "pressure", "agent", "cpu_seconds", "cpu_wait_seconds", "throttled_seconds"})


@dataclass(slots=True)
class _Number:
    total: float
    count: int
    least: float
    most: float


@dataclass(slots=True)
class _Minute:
    """The samples of one minute."""

    number: int
    """Minutes since the epoch."""
    last: dict[str, Any] = field(default_factory=dict)
    """The newest sample."""
    count: int = 0
    """Number of samples."""
    numbers: dict[tuple[str | int, ...], _Number] = field(default_factory=dict)
    """Place in a sample -> what its numbers were."""


class TelemetryRollup:
    """Sums up one host's samples. Its file is one of JSON lines, which outlive a full disk."""

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path)
        self._minute: _Minute | None = None

    def add(self, sample: Mapping[str, Any]) -> None:
        """Add a sample; the minute before is written when the next one begins."""
        t_ns = sample.get("t_ns")
        if not isinstance(t_ns, int):
            return
        number = t_ns // (SECONDS * 1_000_000_000)
        if self._minute is None or number != self._minute.number:
            self._write()
            self._minute = _Minute(number)
        minute = self._minute
        # Some sections are not in every sample.
        minute.last, minute.count = {**minute.last, **sample}, minute.count + 1
        for place, value in _numbers(sample):
            known = minute.numbers.get(place)
            if known is None:
                minute.numbers[place] = _Number(value, 1, value, value)
                continue
            known.total += value
            known.count += 1
            if value < known.least:
                known.least = value
            elif value > known.most:
                known.most = value

    def close(self) -> None:
        """Write the minute that is not over."""
        self._write()
        self._file.close()

    def _write(self) -> None:
        minute, self._minute = self._minute, None
        if minute is None:
            return
        self._file.append(
            {
                "t_ns": minute.last["t_ns"],
                "seconds": SECONDS,
                "count": minute.count,
                "mean": _filled(minute.last, lambda place: _rounded(minute.numbers[place])),
                "least": _differing(minute, lambda number: number.least),
                "most": _differing(minute, lambda number: number.most),
            }
        )


def read_minutes(path: Path, *, tail_bytes: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The means of each minute in the form of samples, with `seconds` for how long they stand, and texts about what could not be read."""
    lines, complaints = read_json_lines(path, tail_bytes=tail_bytes)
    return [
        {**line["mean"], "t_ns": line["t_ns"], "seconds": line.get("seconds", SECONDS)}
        for line in lines
        if isinstance(line.get("mean"), dict) and isinstance(line.get("t_ns"), int)
    ], complaints


def _numbers(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], float]]:
    for name, part in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(part, int | float) and not isinstance(part, bool):
            if place or name not in _LEFT_OUT:
                yield (*place, name), part
        elif isinstance(part, Mapping | list) and (place or name not in _LEFT_OUT):
            yield from _numbers(part, (*place, name))


def _filled(value: Any, number: Callable[[tuple[str | int, ...]], float], place: tuple[str | int, ...] = ()) -> Any:
    """The sample, with another number in each place."""
    if isinstance(value, Mapping):
        return {
            name: _filled(part, number, (*place, name))
            for name, part in value.items()
            if place or name not in _LEFT_OUT
        }
    if isinstance(value, list):
        return [_filled(part, number, (*place, at)) for at, part in enumerate(value)]
    return number(place) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _rounded(number: _Number) -> float:
    if number.least == number.most:
        return number.least
    mean = number.total / number.count
    return round(mean) if isinstance(number.total, int) and abs(mean) > 1000 else round(mean, _DIGITS)


def _differing(minute: _Minute, value: Callable[[_Number], float]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, number in minute.numbers.items():
        if number.least == number.most or not _TOTALS.isdisjoint(place):
            continue
        inner = found
        for name in place[:-1]:
            inner = inner.setdefault(str(name), {})
        inner[str(place[-1])] = value(number)
    return found
