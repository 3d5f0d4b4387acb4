"""The catalogue's facts about an accelerator and a machine type. `None` is unknown, never "none" or "no"."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Generation -> GB/s of one direction of 16 lanes. Source: PCI-SIG base specifications 3.0 to 6.0.
PCIE_GB_PER_SECOND = {3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}
# Most that one TCP connection carries on EC2, 10^9 bits a second, inside a cluster placement group and outside one. Source: EC2 user guide,
# "Amazon EC2 instance network bandwidth".
TCP_FLOW_GBPS = 10
TCP_FLOW_OUTSIDE_GBPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator as its maker and its users publish it.

    Units:   `*_tflops`: dense, 10^12 a second; `*_gb_per_second`: 10^9 bytes a second
    """

    name: str
    """As the catalogue calls it."""
    fp32_tflops: float | None = None
    """Dense, 10^12 a second."""
    tf32_tflops: float | None = None
    """Dense; matrix units where it has them."""
    fp16_tflops: float | None = None
    """Dense; matrix units where it has them."""
    bf16_tflops: float | None = None
    """Dense; matrix units where it has them."""
    memory_gib: float | None = None
    """What a driver reports."""
    memory_gb_per_second: float | None = None
    """10^9 bytes a second."""
    nvlink_gb_per_second: float | None = None
    """10^9 bytes a second, both directions together."""
    pcie_generation: int | None = None
    """Such as 4."""
    power_watts: int | None = None
    """Its limit."""
    measured_matmul_tflops: float | None = None
    """The most that somebody measured in bf16."""
    source: str = ""
    """Where the figures are from."""
    note: str = ""
    """What else to know."""
    doubtful: frozenset[str] = frozenset()
    """Fields that no stored source confirms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """One kind of machine: an instance type of AWS, an entry of a user's TOML file, or this machine.

    Units:   memory in GiB; network in 10^9 bits a second of the whole machine, one direction; prices in USD an hour
    """

    name: str
    """Such as p4d.24xlarge."""
    vcpu_count: int | None = None
    """Logical CPUs."""
    memory_gib: float | None = None
    """Of the machine."""
    accelerator: str | None = None
    """Name of its accelerators."""
    accelerator_count: int | None = None
    """How many it has."""
    accelerator_memory_gib: float | None = None
    """Of one accelerator."""
    intra_link: str | None = None
    """How its accelerators reach each other ("nvlink3", "pcie4"); None: it has at most one, or it is not known."""
    network_gbps: float | None = None
    """10^9 bits a second of the whole machine, one direction."""
    network_burst_gbps: float | None = None
    """Above `network_gbps`, lasts minutes."""
    efa: bool | None = None
    """It has EFA."""
    efa_interface_count: int | None = None
    """How many EFA interfaces it has."""
    local_storage_gb: float | None = None
    """Of its own disks."""
    ebs_mbps: float | None = None
    """10^6 bits a second to EBS."""
    usd_per_hour: float | None = None
    """On demand."""
    sagemaker_training: bool | None = None
    """SageMaker trains on it."""
    sagemaker_usd_per_hour: float | None = None
    """As SageMaker has it."""
    smddp: str | None = None
    """Collectives that SageMaker's library was built for here; empty: none."""
    note: str = ""
    """What else to know."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field -> where it is from; the empty key is the source of all other fields."""

    @property
    def nvlink(self) -> bool | None:
        """Whether NVLink joins its accelerators; False if it has at most one; None if its link or their number is not known."""
        if self.intra_link:
            return self.intra_link.lower().startswith(("nvlink", "nvswitch"))
        return None if self.accelerator_count is None or self.accelerator_count > 1 else False


def gpu_memory_gib(of: MachineType, accelerator: Accelerator | None) -> float | None:
    """Of one device: as its maker's list of machines states it, because that is how it is asked for; else as a driver reports it."""
    if of.accelerator_memory_gib is not None or accelerator is None:
        return of.accelerator_memory_gib
    return accelerator.memory_gib
