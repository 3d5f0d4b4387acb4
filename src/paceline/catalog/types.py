"""What the catalogue says of an accelerator and of a machine type. `None` is unknown, never "none" or "no"."""

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

    Units:   `*_tflops`: dense, 10^12 a second (`fp16`, `bf16`, `tf32`: matrix units where it has them); memory: what a driver reports;
             `memory_gb_per_second`, `nvlink_gb_per_second` (both directions together): 10^9 bytes.
    `measured_matmul_tflops`: the most that somebody measured in bf16. `doubtful`: fields that no stored source confirms.
    """

    name: str
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    fp16_tflops: float | None = None
    bf16_tflops: float | None = None
    memory_gib: float | None = None
    memory_gb_per_second: float | None = None
    nvlink_gb_per_second: float | None = None
    pcie_generation: int | None = None
    power_watts: int | None = None
    measured_matmul_tflops: float | None = None
    source: str = ""
    note: str = ""
    doubtful: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """One kind of machine that can be had: an instance type of AWS, a line of somebody's own TOML file, or this machine.

    Units:   memory in GiB; network in 10^9 bits a second of the whole machine, one direction; prices in USD an hour.
    `intra_link`: how its accelerators reach each other, as `planner.links.intra_link` reads it ("nvlink3", "pcie4"); None where it has at
    most one, or where that is not known. `network_burst_gbps` above `network_gbps` lasts minutes. `smddp`: collectives that SageMaker's
    library was built for here, "" for none. `sources`: field -> where it is from; what is missing there is from the type's general source,
    key "".
    """

    name: str
    vcpu_count: int | None = None
    memory_gib: float | None = None
    accelerator: str | None = None
    accelerator_count: int | None = None
    accelerator_memory_gib: float | None = None
    intra_link: str | None = None
    network_gbps: float | None = None
    network_burst_gbps: float | None = None
    efa: bool | None = None
    efa_interface_count: int | None = None
    local_storage_gb: float | None = None
    ebs_mbps: float | None = None
    usd_per_hour: float | None = None
    sagemaker_training: bool | None = None
    sagemaker_usd_per_hour: float | None = None
    smddp: str | None = None
    note: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def nvlink(self) -> bool | None:
        """Whether NVLink joins its accelerators; False where it has at most one, None where its link or their number is not known."""
        if self.intra_link:
            return self.intra_link.lower().startswith(("nvlink", "nvswitch"))
        return None if self.accelerator_count is None or self.accelerator_count > 1 else False


def gpu_memory_gib(of: MachineType, accelerator: Accelerator | None) -> float | None:
    """Of one device: as its maker's list of machines states it, because that is how it is asked for; else as a driver reports it."""
    if of.accelerator_memory_gib is not None or accelerator is None:
        return of.accelerator_memory_gib
    return accelerator.memory_gib
