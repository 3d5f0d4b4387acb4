"""The network of local hosts, as a `network` event has it: requested and measured. Value in, string out."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.views.units import percent, size

_MOST_ZONES = 4


def network_text(event: Mapping[str, Any]) -> str:
    """A line for the links, one for zones and one for limits; each only if it was requested."""
    asked, delivered = event.get("asked") or {}, event.get("delivered") or {}
    paths = delivered.get("paths") or ()
    zones = event.get("zones") or [[]]
    lines = [f"network  {_hosts(zones)}, " + "; ".join(_links(asked, delivered, paths))] if paths else []
    if len(zones) > 1:
        lines.append(f"zones    {_zones(zones)}; {_between(asked, paths)}")
    limits = _limits(asked)
    if limits:
        lines.append(f"limits   {limits} for each host")
    return "\n".join(f"paceline  {line}" for line in lines)


def bits_per_second(mbit: float) -> str:
    """Holds:   1000.0 -> "1 Gbit/s"; 95.13 -> "95.1 Mbit/s" """
    return f"{mbit / 1000:.3g} Gbit/s" if mbit >= 1000 else f"{mbit:.3g} Mbit/s"


def _links(asked: Mapping[str, Any], delivered: Mapping[str, Any], paths: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = [_rate(asked.get("rate_mbit"), paths)]
    near = [path for path in paths if path["round_trip_ms_asked"] <= 2 * (asked.get("delay_ms") or 0.0)]
    if near:
        said = f"delay {asked['delay_ms']:.3g} ms asked, " if asked.get("delay_ms") else ""
        parts.append(f"{said}{_span([path['round_trip_ms'] for path in near])} ms round trip measured")
    lost = [path for path in paths if path.get("lost_fraction") is not None]
    if lost:
        sent = sum(path["sent_count"] for path in lost)
        share = sum(path["lost_fraction"] * path["sent_count"] for path in lost) / max(sent, 1)
        parts.append(f"loss {asked['loss_fraction']:.3%} asked, {share:.3%} of {sent} frames measured")
    if delivered.get("relay_cpu_fraction") is not None:
        parts.append(f"the relay took {percent(delivered['relay_cpu_fraction'])} of one CPU")
    return parts


def _rate(asked: float | None, paths: Sequence[Mapping[str, Any]]) -> str:
    least = min(path["rate_mbit"] for path in paths)
    most = max(path["rate_mbit"] for path in paths)
    measured = bits_per_second(least) if most < 1.05 * least else f"{bits_per_second(least)} to {bits_per_second(most)}"
    return f"{'no rate' if asked is None else bits_per_second(asked)} asked, {measured} measured"


def _between(asked: Mapping[str, Any], paths: Sequence[Mapping[str, Any]]) -> str:
    text = f"{asked['zone_delay_ms']:.3g} ms more between them asked"
    far = [path["round_trip_ms"] for path in paths if path["round_trip_ms_asked"] > 2 * (asked.get("delay_ms") or 0.0)]
    return f"{text}, {_span(far)} ms round trip measured" if far else text


def _span(values: Sequence[float]) -> str:
    least, most = min(values), max(values)
    return f"{least:.3g}" if most - least <= 0.05 * most + 0.05 else f"{least:.3g} to {most:.3g}"


def _hosts(zones: Sequence[Sequence[str]]) -> str:
    return f"{sum(map(len, zones))} hosts"


def _zones(zones: Sequence[Sequence[str]]) -> str:
    shown = " | ".join(f"{zone[0]}..{zone[-1]}" if len(zone) > 2 else " ".join(zone) for zone in zones[:_MOST_ZONES])
    return f"{shown} | {len(zones) - _MOST_ZONES} more" if len(zones) > _MOST_ZONES else shown


def _limits(asked: Mapping[str, Any]) -> str:
    cpus, memory = asked.get("host_cpus"), asked.get("host_memory_bytes")
    parts = [f"{cpus:g} CPU{'s' if cpus > 1 else ''}"] if cpus else []
    return " and ".join([*parts, *([size(memory)] if memory else [])])
