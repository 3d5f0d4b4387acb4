"""The machines of one answer: which device, how many, and what joins them."""

from dataclasses import dataclass

from paceline.catalog.types import Accelerator, MachineType
from paceline.planner.collective import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Equal hosts with equal devices.

    `device` None: the ranks compute on CPUs. `intra` None: one device a host; `inter` None: one host. `zones`: in how many availability
    zones the hosts stand. `of_type`: the catalogue's entry, None where everything was given by hand.
    """

    device: Accelerator | None
    devices_per_host: int
    hosts: int
    intra: Link | None = None
    inter: Link | None = None
    zones: int = 1
    of_type: MachineType | None = None

    @property
    def devices(self) -> int:
        """All devices of all hosts; one rank each."""
        return self.devices_per_host * self.hosts
