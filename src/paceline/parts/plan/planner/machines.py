"""The machines of one answer: the device, the numbers, and the links."""

from dataclasses import dataclass

from paceline.catalog.types import Accelerator, MachineType
from paceline.parts.plan.planner.collective import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Equal hosts with equal devices."""

    device: Accelerator | None
    """None: the ranks compute on CPUs."""
    devices_per_host: int
    """Devices, or ranks on CPUs."""
    hosts: int
    """Number of hosts."""
    intra: Link | None = None
    """The link inside a host; None: one device a host."""
    inter: Link | None = None
    """The link between hosts; None: one host."""
    zones: int = 1
    """Availability zones of the hosts."""
    of_type: MachineType | None = None
    """The catalogue's entry; None: everything was given by hand."""

    @property
    def devices(self) -> int:
        """All devices of all hosts; one rank each."""
        return self.devices_per_host * self.hosts
