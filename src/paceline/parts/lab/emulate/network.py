"""The network that emulated hosts should have, the network that was delivered, and the differences. It has no side effects."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Delivered", "DeliveredPath", "Network", "wrong_paths"]

WRONG_FRACTION = 0.10
"""A link with a larger relative error is reported as wrong."""
_DEVIATIONS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The requested network, the same for every host."""

    rate_mbit: float | None = None
    """Rate of a host's link in each direction, in 10^6 bits per second; None: no limit."""
    delay_ms: float = 0.0
    """Delay of a frame from one host to another in milliseconds. A round trip takes twice as long."""
    loss_fraction: float = 0.0
    """Fraction of the frames from one host to another that get lost."""
    zone_count: int = 1
    """Number of zones. The hosts are divided into the zones in order."""
    zone_delay_ms: float = 0.0
    """Additional delay between hosts of different zones."""
    host_cpus: float | None = None
    """CPUs of all processes in a host together."""
    host_memory_bytes: int | None = None
    """Memory of all processes in a host together."""

    @property
    def shapes_links(self) -> bool:
        """Whether the network limits, delays or loses anything."""
        return bool(self.rate_mbit or self.delay_ms or self.loss_fraction or self.zone_delay_ms)

    def zones(self, host_count: int) -> tuple[int, ...]:
        """The zone of each host, from 0, in host order.

        Holds:   sizes of two zones differ by at most one host; 4 hosts in 2 zones -> (0, 0, 1, 1)
        """
        return tuple(index * self.zone_count // host_count for index in range(host_count))

    def one_way_ms(self, host_count: int) -> list[list[float]]:
        """The delay from each host (row) to each other host (column); 0 on the diagonal.

        Holds:   symmetric
        """
        zones = self.zones(host_count)
        return [
            [
                0.0 if source == target else self.delay_ms + self.zone_delay_ms * (zones[source] != zones[target])
                for target in range(host_count)
            ]
            for source in range(host_count)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredPath:
    """The delivered values of one host's link towards another host while every host sent at once."""

    source: str
    """The host that sends."""
    target: str
    """The host that receives."""
    rate_mbit: float
    """Rate of the TCP payload that arrived."""
    rate_mbit_asked: float | None
    """The requested rate of the link; None: no limit."""
    round_trip_ms: float
    """The measured round trip."""
    round_trip_ms_asked: float
    """The requested round trip of this pair."""
    lost_fraction: float | None = None
    """The measured loss; None: no loss was requested."""
    lost_fraction_asked: float = 0.0
    """The requested loss of this pair."""
    sent_count: int = 0
    """Datagrams that were sent to count the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The delivered network."""

    paths: tuple[DeliveredPath, ...]
    """One path for each host's link."""
    relay_cpu_fraction: float | None = None
    """Share of one CPU that the relay used while all hosts sent; None: the kernel's bridge forwards all frames."""
    seconds: float = 0.0
    """How long the measurement took."""


def wrong_paths(paths: Sequence[DeliveredPath]) -> tuple[tuple[DeliveredPath, str], ...]:
    """The paths that are wrong by more than a tenth, each with a text that says what is wrong.

    On a path that loses frames, TCP's behaviour determines the rate, so the rate is not judged.
    """
    found = []
    for path in paths:
        said = [text for text in (_rate_wrong(path), _delay_wrong(path), _loss_wrong(path)) if text]
        if said:
            found.append((path, ", ".join(said)))
    return tuple(found)


def network_events(
    network: Network, hosts: Sequence[str], delivered: Delivered | None, cpu_count: int | None
) -> list[dict[str, Any]]:
    """The events for the recording: the network requested and delivered, then what is wrong with it (X34). JSON values.

    `delivered` is None if the links have no requested values and so were not measured.
    """
    zones = network.zones(len(hosts))
    told: dict[str, Any] = {
        "event": "network",
        "asked": asdict(network),
        "zones": [
            [name for name, zone in zip(hosts, zones, strict=True) if zone == number] for number in sorted({*zones})
        ],
        "delivered": None if delivered is None else asdict(delivered),
    }
    wrong = wrong_paths(delivered.paths) if delivered else ()
    return [told, *([_wrong_event(wrong)] if wrong else []), *_limits_event(network, len(hosts), cpu_count)]


def _wrong_event(wrong: Sequence[tuple[DeliveredPath, str]]) -> dict[str, Any]:
    links = "1 link is" if len(wrong) == 1 else f"{len(wrong)} links are"
    return _warning(
        "X34",
        f"the network is not the one that was asked for: {links} off by more than {WRONG_FRACTION:.0%}",
        "\n".join(f"{path.source} to {path.target}: {said}" for path, said in wrong),
        "take the figures of this run for another network; or ask for less (fewer hosts, a lower rate) on a quieter machine",
    )


def _limits_event(network: Network, host_count: int, cpu_count: int | None) -> list[dict[str, Any]]:
    if network.host_cpus is None or cpu_count is None or network.host_cpus * host_count <= cpu_count:
        return []
    return [
        _warning(
            "X34",
            f"{host_count} hosts with {network.host_cpus:g} CPUs each are more than this machine has",
            f"{cpu_count} CPUs here; a host gets less whenever all compute",
            f"cpus={cpu_count / host_count:.3g} in --network",
        )
    ]


def _warning(code: str, what: str, saw: str, next_step: str) -> dict[str, Any]:
    return {"event": "finding", "code": code, "severity": "warning", "what": what, "saw": saw, "next": next_step}


def _rate_wrong(path: DeliveredPath) -> str:
    asked = path.rate_mbit_asked
    if asked is None or path.lost_fraction_asked or abs(path.rate_mbit / asked - 1) <= WRONG_FRACTION:
        return ""
    return f"{path.rate_mbit:.4g} Mbit/s of {asked:.4g}"


def _delay_wrong(path: DeliveredPath) -> str:
    asked = path.round_trip_ms_asked
    if not asked or abs(path.round_trip_ms - asked) <= WRONG_FRACTION * asked:
        return ""
    return f"a round trip of {path.round_trip_ms:.3g} ms where {asked:.3g} were asked for"


def _loss_wrong(path: DeliveredPath) -> str:
    """The loss is wrong if chance does not explain it: a count of lost frames varies by its square root."""
    if path.lost_fraction is None or not path.sent_count:
        return ""
    expected = path.lost_fraction_asked * path.sent_count
    strays = _DEVIATIONS * max(expected, 1.0) ** 0.5
    off = abs(path.lost_fraction * path.sent_count - expected)
    if off <= max(WRONG_FRACTION * expected, strays):
        return ""
    return f"{path.lost_fraction:.2%} lost where {path.lost_fraction_asked:.2%} were asked for"
