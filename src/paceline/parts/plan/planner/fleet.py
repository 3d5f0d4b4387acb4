"""Machine types and counts turned into candidates: devices, links, memory and prices of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from paceline.catalog.types import Accelerator, MachineType
from paceline.parts.plan.planner.collective import Link
from paceline.parts.plan.planner.links import inter_link, intra_link
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.question import Candidate, Prices
from paceline.spelling import plural

NO_PRICES = Prices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Numbers of hosts and devices, and figures that replace the catalogue's; None and empty: as the catalogue has it."""

    hosts: tuple[int, ...] = (1,)
    """Each of these numbers of hosts."""
    devices_per_host: tuple[int, ...] = ()
    """Each of these numbers of devices; (): all that a type has."""
    zones: int = 1
    """Availability zones of the hosts."""
    intra: str | None = None
    """Kind of link inside a host."""
    network_gbps: float | None = None
    """10^9 bits a second of one host."""
    network_kind: str | None = None
    """Kind of network between hosts."""
    within: Link | None = None
    """A link that was measured inside a host."""
    among: Link | None = None
    """A link that was measured among hosts."""
    capacity_bytes: int | None = None
    """Memory of a device."""


def candidates_of_type(
    kind: MachineType,
    device: Accelerator | None,
    fleet: Fleet,
    *,
    capacity_bytes: int | None = None,
    prices: Prices = NO_PRICES,
    refused: tuple[str, ...] = (),
    refused_together: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Iterator[Candidate]:
    """One machine type in every count. `refused_together`: why several hosts of it may not form one job."""
    network = fleet.network_gbps or kind.network_gbps or kind.network_burst_gbps
    fabric = fleet.network_kind or _fabric(kind)
    network_warnings = _network_warnings(kind, fleet)
    for devices in fleet.devices_per_host or (kind.accelerator_count or 1,):
        reasons = refused
        if kind.accelerator_count and devices > kind.accelerator_count:
            has = f"{kind.accelerator_count} {plural(kind.accelerator_count, 'device')}"
            reasons = (*refused, f"it has {has}, {devices} were asked for")
        yield from _counted(
            kind.name,
            Machines(
                device=device,
                devices_per_host=devices,
                hosts=1,
                intra=_within(fleet, fleet.intra or kind.intra_link, device, devices),
                of_type=kind,
            ),
            replace(
                fleet, network_gbps=network, network_kind=fabric, capacity_bytes=fleet.capacity_bytes or capacity_bytes
            ),
            prices=prices,
            refused=reasons,
            refused_together=refused_together,
            warnings=warnings,
            warnings_together=network_warnings,
        )


def candidates_given(
    name: str, device: Accelerator | None, fleet: Fleet, *, prices: Prices = NO_PRICES
) -> Iterator[Candidate]:
    """Machines that are described by options only."""
    for devices in fleet.devices_per_host or (1,):
        one = Machines(
            device=device,
            devices_per_host=devices,
            hosts=1,
            intra=_within(fleet, fleet.intra, device, devices),
        )
        yield from _counted(name, one, fleet, prices=prices)


def _counted(
    name: str,
    one: Machines,
    fleet: Fleet,
    *,
    prices: Prices,
    refused: tuple[str, ...] = (),
    refused_together: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    warnings_together: tuple[str, ...] = (),
) -> Iterator[Candidate]:
    for hosts in fleet.hosts:
        zones = min(fleet.zones, hosts)
        several = hosts > 1
        machines = replace(one, hosts=hosts, zones=zones, inter=_among(fleet, zones) if several else None)
        yield Candidate(
            name=name,
            machines=machines,
            capacity_bytes=fleet.capacity_bytes,
            prices=prices,
            refused=(*refused, *refused_together) if several else refused,
            warnings=(*warnings, *warnings_together) if several else warnings,
            in_one_zone=_InOneZone(machines, fleet) if zones > 1 else None,
        )


class _InOneZone:
    """The same machines in one zone, made when asked for."""

    __slots__ = ("fleet", "machines")

    def __init__(self, machines: Machines, fleet: Fleet) -> None:
        self.machines, self.fleet = machines, fleet

    def __call__(self) -> Machines:
        return replace(self.machines, zones=1, inter=_among(self.fleet, 1))


def _within(fleet: Fleet, word: str | None, device: Accelerator | None, devices: int) -> Link | None:
    return fleet.within if fleet.within is not None and devices > 1 else intra_link(word, device, devices)


def _among(fleet: Fleet, zones: int) -> Link | None:
    if fleet.among is not None:
        return fleet.among
    return _specified(fleet.network_gbps, fleet.network_kind, zones) if fleet.network_gbps is not None else None


@cache
def _specified(network_gbps: float, kind: str | None, zones: int) -> Link:
    # Of the same few values for thousands of candidates.
    return inter_link(network_gbps, kind, zones=zones)


def _fabric(kind: MachineType) -> str | None:
    return None if kind.efa is None else "efa" if kind.efa else "tcp"


def _network_warnings(kind: MachineType, fleet: Fleet) -> tuple[str, ...]:
    if fleet.network_gbps is not None:
        return ()
    burst, base = kind.network_burst_gbps, kind.network_gbps
    if base is None and burst is not None:
        return (
            f"{kind.name}: its network is known only as up to {burst:g} Gbit/s, a burst; a long job gets less (--inter-gbps)",
        )
    if base is not None and burst is not None and burst > base:
        return (f"{kind.name}: the {burst:g} Gbit/s are a burst of a few minutes; calculated with {base:g} Gbit/s",)
    return ()
