"""Cost of hours on machines, and of exchange between availability zones."""

from paceline.parts.plan.planner.answer import Formula
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.workload import Strategy, Workload

GB = 10**9


def machines_usd(
    usd_per_hour: float | None,
    hosts: int,
    hours: float | None,
    formulas: list[Formula] | None = None,
    *,
    source: str = "",
) -> float | None:
    """Price of this number of hosts for this number of hours; None if the price or the hours are unknown.

    Holds:   cost(a + b hours) = cost(a) + cost(b), and the same for hosts
    """
    if usd_per_hour is None or hours is None:
        return None
    usd = usd_per_hour * hosts * hours
    if formulas is not None:
        formulas.append(
            Formula(
                name="cost of the machines",
                text="usd_per_hour * hosts * hours",
                values={"usd_per_hour": usd_per_hour, "hosts": hosts, "hours": hours},
                result=usd,
                unit="USD",
                source=source,
            )
        )
    return usd


def crossing_bytes(machines: Machines, workload: Workload) -> float | None:
    """Bytes that cross zones in one step, if the hosts of a zone are neighbours in the ring.

    Holds:   one zone -> 0.0; every crossing carries what a host sends: 2 (hosts - 1) / hosts times the gradients; FSDP 3 / 2
             of that for each microbatch
    """
    if machines.zones <= 1 or machines.hosts <= 1:
        return 0.0
    if workload.gradient_bytes is None:
        return None
    rounds = 3 * workload.microbatches if workload.strategy is Strategy.FSDP else 2
    crossings = min(machines.zones, machines.hosts)
    return crossings * rounds * (machines.hosts - 1) / machines.hosts * workload.gradient_bytes


def zone_usd(
    machines: Machines,
    workload: Workload,
    steps: int | None,
    usd_per_gb: float,
    formulas: list[Formula] | None = None,
) -> float | None:
    """Price of gradients between zones over the whole job; None if their size or the steps are unknown."""
    crossing = crossing_bytes(machines, workload)
    if crossing is None or steps is None:
        return None
    usd = crossing * steps / GB * usd_per_gb
    if formulas is not None and crossing:
        formulas.append(
            Formula(
                name="traffic between zones",
                text="crossing_bytes * steps / 10^9 * usd_per_gb",
                values={"crossing_bytes": crossing, "steps": steps, "usd_per_gb": usd_per_gb, "zones": machines.zones},
                result=usd,
                unit="USD",
                source="0.01 USD per GB at each end (lastweekinaws.com, cross-AZ data transfer); hosts ordered by zone",
            )
        )
    return usd
