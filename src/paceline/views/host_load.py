"""How busy each host is at its last sample, and was over a run, from its telemetry."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from paceline.recording.step_columns import TimeAxis

# Counters grow in bursts, so a rate over a shorter time says nothing.
_LEAST_NS = 500_000_000
# Samples are taken every second; the means of longer times say how long.
_MOST_BETWEEN_NS = 3_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsage:
    """One host at a sample. Rates are since a sample at least half a second earlier. None: not known."""

    host: str
    """Name of the host."""
    t_ns: int | None = None
    """Time of the sample, Unix time."""
    cpu_fraction: float | None = None
    """Fraction of the CPU time in use."""
    memory_used_bytes: int | None = None
    """Memory in use."""
    memory_bytes: int | None = None
    """All of its memory."""
    network_in_bytes_per_second: float | None = None
    """Received by all interfaces."""
    network_out_bytes_per_second: float | None = None
    """Sent by all interfaces."""
    disk_bytes_per_second: float | None = None
    """Read and written by all disks."""
    gpu_busy_fraction: float | None = None
    """Mean of the GPUs."""
    gpu_memory_used_bytes: int | None = None
    """Sum of the GPUs."""
    gpu_memory_bytes: int | None = None
    """Sum of the GPUs."""
    gpu_power_watts: float | None = None
    """Sum of the GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLoad(HostUsage):
    """One host over a run; its own values are those of the last sample."""

    mean: HostUsage
    """Of a run that has ended: means over the run."""
    peak: HostUsage
    """Of a run that has ended: the largest values."""


def run_loads(hosts: Iterable[str], telemetry: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[RunLoad, ...]:
    """One load per host over all of its lines, in the order given."""
    return tuple(_run_load(host, _stamped(telemetry.get(host, ()))) for host in hosts)


def _run_load(host: str, lines: Sequence[Mapping[str, Any]]) -> RunLoad:
    before, samples = 0, []
    for place, line in enumerate(lines):
        while before < place and lines[before + 1]["t_ns"] <= line["t_ns"] - _LEAST_NS:
            before += 1
        samples.append(_load(host, line, lines[before]))
    return RunLoad(
        **asdict(_newest(host, lines)),
        mean=_over(host, samples, lambda known: sum(known) / len(known)),
        peak=_over(host, samples, max),
    )


def _over(host: str, samples: Sequence[HostUsage], value: Callable[[Sequence[float]], float]) -> HostUsage:
    values: dict[str, Any] = {}
    for name in _MEASURED:
        known = [number for sample in samples if (number := getattr(sample, name)) is not None]
        whole = bool(known) and all(isinstance(number, int) for number in known)
        values[name] = (int if whole else float)(value(known)) if known else None
    return HostUsage(host=host, t_ns=samples[-1].t_ns if samples else None, **values)


_MEASURED = tuple(field.name for field in fields(HostUsage) if field.name not in ("host", "t_ns"))


def host_loads(hosts: Iterable[str], telemetry: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[HostUsage, ...]:
    """One load per host, in the order given; a host without telemetry has nothing but its name."""
    return tuple(_newest(host, _stamped(telemetry.get(host, ()))) for host in hosts)


def usage_in_columns(
    host: str, lines: Iterable[Mapping[str, Any]], axis: TimeAxis
) -> dict[str, list[float | None] | list[int | None]]:
    """How busy a host was in each part of the time, by the names of HostUsage's fields; None: there is no sample.

    A sample counts for the parts since the one before, as long as no sample was left out.
    """
    of_column: dict[int, list[Mapping[str, Any]]] = {}
    for line in _stamped(lines):
        of_column.setdefault(axis.column(line["t_ns"]), []).append(line)
    found: dict[str, list[Any]] = {name: [None] * axis.columns for name in _MEASURED}
    before: Mapping[str, Any] | None = None
    for column in sorted(of_column):
        here = of_column[column]
        usage = _load(host, here[-1], before or here[0])
        busy = _mean(_section(line, "cpu").get("busy_fraction") for line in here)
        between_ns = max(_MOST_BETWEEN_NS, round(2e9 * (_number(here[0].get("seconds")) or 0.0)))
        is_next = before is not None and here[0]["t_ns"] - before["t_ns"] <= between_ns
        first = axis.column(before["t_ns"]) + 1 if before is not None and is_next else column
        for name in _MEASURED:
            value = busy if name == "cpu_fraction" else getattr(usage, name)
            found[name][first : column + 1] = [value] * (column + 1 - first)
        before = here[-1]
    return found


def _stamped(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in lines if isinstance(line.get("t_ns"), int)]


def _newest(host: str, lines: Sequence[Mapping[str, Any]]) -> HostUsage:
    if not lines:
        return HostUsage(host=host)
    last = lines[-1]
    before = next((line for line in reversed(lines) if line["t_ns"] <= last["t_ns"] - _LEAST_NS), last)
    # A line right after another has no fractions for the time between the two.
    recent = [_section(line, "cpu") for line in reversed(lines) if line["t_ns"] >= before["t_ns"]]
    busy = next((cpu for cpu in recent if _number(cpu.get("busy_fraction")) is not None), recent[0])
    return _load(host, {**last, "cpu": busy}, before)


def _load(host: str, last: Mapping[str, Any], before: Mapping[str, Any]) -> HostUsage:
    """`before`: the line from which rates count; `last` itself if there is none."""
    seconds = (last["t_ns"] - before["t_ns"]) / 1e9
    listed = last.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, Mapping)] if isinstance(listed, list | tuple) else []
    return HostUsage(
        host=host,
        t_ns=last["t_ns"],
        cpu_fraction=_number(_section(last, "cpu").get("busy_fraction")),
        memory_used_bytes=_whole(_section(last, "memory").get("used_bytes")),
        memory_bytes=_whole(_section(last, "memory").get("total_bytes")),
        network_in_bytes_per_second=_rate(last, before, "network", ("received_bytes",), seconds),
        network_out_bytes_per_second=_rate(last, before, "network", ("sent_bytes",), seconds),
        disk_bytes_per_second=_rate(last, before, "disk", ("read_bytes", "written_bytes"), seconds),
        gpu_busy_fraction=_mean(gpu.get("busy_fraction") for gpu in gpus),
        gpu_memory_used_bytes=_whole(_sum(gpu.get("memory_used_bytes") for gpu in gpus)),
        gpu_memory_bytes=_whole(_sum(gpu.get("memory_total_bytes") for gpu in gpus)),
        gpu_power_watts=_sum(gpu.get("power_watts") for gpu in gpus),
    )


def _rate(
    last: Mapping[str, Any], before: Mapping[str, Any], section: str, counters: Sequence[str], seconds: float
) -> float | None:
    """Growth of the counters per second, over devices that both samples have; the loopback counts if there is no other."""
    if seconds * 1e9 < _LEAST_NS:
        return None
    known = [name for name in _section(last, section) if name in _section(before, section)]
    names = [name for name in known if name != "lo"] or known
    grown = _sum(
        _difference(_section(last, section)[name], _section(before, section)[name], counter)
        for name in names
        for counter in counters
    )
    return None if grown is None else max(grown, 0.0) / seconds


def _difference(last: Any, before: Any, counter: str) -> float | None:
    if not isinstance(last, Mapping) or not isinstance(before, Mapping):
        return None
    new, old = _number(last.get(counter)), _number(before.get(counter))
    return None if new is None or old is None else new - old


def _section(line: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = line.get(name)
    return value if isinstance(value, Mapping) else {}


def _sum(values: Iterable[Any]) -> float | None:
    known = [number for number in map(_number, values) if number is not None]
    return sum(known) if known else None


def _mean(values: Iterable[Any]) -> float | None:
    known = [number for number in map(_number, values) if number is not None]
    return sum(known) / len(known) if known else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
