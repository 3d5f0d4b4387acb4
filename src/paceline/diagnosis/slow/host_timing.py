"""Use of a host's machine over a window, from its telemetry lines. Pure."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from paceline.diagnosis.case import HostTiming

# Over a minute of lines of one second each.
_LINES = 90


@dataclass(slots=True)
class HostLines:
    """The values of one host's newest telemetry lines that the step timing needs."""

    host: str
    """Name of the host."""
    lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LINES))
    """The lines, oldest first."""

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep the needed values of one line; a line without a stamp is ignored."""
        if isinstance(line.get("t_ns"), int):
            self.lines.append(_numbers(line))

    def timing(self, since_ns: int) -> HostTiming:
        """The host since then; a value is None if fewer than two lines have it."""
        window = [line for line in self.lines if line["t_ns"] >= since_ns]
        latest = _latest(window)
        throttled, periods = _grown(window, "throttled_count"), _grown(window, "period_count")
        return HostTiming(
            host=self.host,
            cpu_count=latest.get("cpu_count"),
            busy_fraction=_mean(window, "busy_fraction"),
            steal_fraction=_mean(window, "steal_fraction"),
            # Without a quota no period has passed.
            throttled_fraction=None
            if throttled is None or periods is None
            else throttled / periods
            if periods
            else 0.0,
            cpu_quota_cpus=latest.get("cpu_quota_cpus"),
            pressure_cpu=_rate(window, "pressure_cpu"),
            pressure_memory=_rate(window, "pressure_memory"),
            pressure_io=_rate(window, "pressure_io"),
            ranks_cpu=_rate(window, "ranks_cpu"),
            sent_bytes_per_second=_busiest(window, "sent"),
            received_bytes_per_second=_busiest(window, "received"),
            swap_used_bytes=latest.get("swap_used_bytes"),
            gpus=_gpus(window),
        )

    def rank_cpu(self, rank: int, since_ns: int) -> float | None:
        """Cores that one rank and its descendants used since then."""
        return self._rate_of(rank, "cpu_of", since_ns)

    def rank_wait(self, rank: int, since_ns: int) -> float | None:
        """Fraction of the time in which a rank's main thread was ready to run but had no CPU."""
        return self._rate_of(rank, "wait_of", since_ns)

    def _rate_of(self, rank: int, name: str, since_ns: int) -> float | None:
        window = [line for line in self.lines if line["t_ns"] >= since_ns and rank in line[name]]
        if len(window) < 2 or window[-1]["t_ns"] <= window[0]["t_ns"]:
            return None
        grown = float(window[-1][name][rank] - window[0][name][rank])
        return max(0.0, grown / float(window[-1]["t_ns"] - window[0]["t_ns"]) * 1e9)


def _numbers(line: Mapping[str, Any]) -> dict[str, Any]:
    cpu, group, memory = (_section(line, name) for name in ("cpu", "cgroup", "memory"))
    pressure = {
        f"pressure_{name}": _section(_section(line, "pressure"), name).get("some_seconds")
        for name in ("cpu", "memory", "io")
    }
    # Traffic inside the machine does not count. Of a bridge and its ports the busiest one leads out.
    network = {name: found for name, found in _section(line, "network").items() if name != "lo"}
    cpu_of, wait_of = _of_ranks(line, "cpu_seconds"), _of_ranks(line, "cpu_wait_seconds")
    return {
        "t_ns": line["t_ns"],
        "cpu_count": cpu.get("count"),
        "busy_fraction": cpu.get("busy_fraction"),
        "steal_fraction": cpu.get("steal_fraction"),
        "swap_used_bytes": memory.get("swap_used_bytes"),
        "cpu_quota_cpus": group.get("cpu_quota_cpus"),
        "throttled_count": group.get("throttled_count"),
        "period_count": group.get("period_count"),
        "ranks_cpu": sum(cpu_of.values()) if cpu_of else None,
        "cpu_of": cpu_of,
        "wait_of": wait_of,
        "sent": {name: found.get("sent_bytes") for name, found in network.items()},
        "received": {name: found.get("received_bytes") for name, found in network.items()},
        "gpus": tuple(line["gpus"]) if line.get("gpus") else None,
        **pressure,
    }


def _of_ranks(line: Mapping[str, Any], name: str) -> dict[int, float]:
    return {
        int(rank): found[name]
        for rank, found in _section(line, "ranks").items()
        if str(rank).isdigit() and isinstance(found, dict) and isinstance(found.get(name), (int, float))
    }


def _section(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = line.get(name)
    return found if isinstance(found, Mapping) else {}


def _gpus(window: list[dict[str, Any]]) -> tuple[dict[str, Any], ...] | None:
    """The latest readings of each GPU, with the median of its clock, and the throttle reasons of at least half of the lines."""
    lines = [line["gpus"] for line in window if line["gpus"]]
    if not lines:
        return None
    return tuple(
        _over_window(gpu, [one for line in lines for one in line if one.get("index") == gpu.get("index")])
        for gpu in lines[-1]
    )


def _over_window(latest: dict[str, Any], readings: list[dict[str, Any]]) -> dict[str, Any]:
    clocks = [one["sm_clock_mhz"] for one in readings if one.get("sm_clock_mhz")]
    bits = [int(one["throttle_reasons"]) for one in readings if one.get("throttle_reasons") is not None]
    held = sum(1 << place for place in range(64) if bits and 2 * sum(said >> place & 1 for said in bits) >= len(bits))
    return {
        **latest,
        **({"sm_clock_mhz": median(clocks)} if clocks else {}),
        **({"throttle_reasons": held} if bits else {}),
    }


def _latest(window: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for line in window for name, value in line.items() if value is not None}


def _mean(window: list[dict[str, Any]], name: str) -> float | None:
    known = [line[name] for line in window if line[name] is not None]
    return fmean(known) if known else None


def _ends(window: list[dict[str, Any]], name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    known = [line for line in window if line[name] is not None]
    return (known[0], known[-1]) if len(known) >= 2 and known[-1]["t_ns"] > known[0]["t_ns"] else None


def _grown(window: list[dict[str, Any]], name: str) -> float | None:
    ends = _ends(window, name)
    return None if ends is None else max(0.0, float(ends[1][name] - ends[0][name]))


def _rate(window: list[dict[str, Any]], name: str) -> float | None:
    ends, grown = _ends(window, name), _grown(window, name)
    return None if ends is None or grown is None else grown / (ends[1]["t_ns"] - ends[0]["t_ns"]) * 1e9


def _busiest(window: list[dict[str, Any]], name: str) -> float | None:
    ends = _ends([line for line in window if line[name]], name)
    if ends is None:
        return None
    seconds = (ends[1]["t_ns"] - ends[0]["t_ns"]) / 1e9
    both = [
        (ends[1][name][interface] - before) / seconds
        for interface, before in ends[0][name].items()
        if before is not None and ends[1][name].get(interface) is not None
    ]
    return max(both, default=None)
