"""This machine in the catalogue's terms, from its own data; on EC2 with the catalogue's figures of its type."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.catalog.lookup import find_accelerator, find_machine_type
from paceline.catalog.types import MachineType
from paceline.probes.environment import Cpus, HostMemory, read_cpu, read_memory
from paceline.probes.gpu_links import GpuLinks, read_gpu_links
from paceline.probes.gpus import GpuReading, has_accelerator, read_gpus
from paceline.probes.interfaces import NetworkInterface, read_interfaces

_SOURCE = "this machine"
_GIB = 2**30
_DMI = Path("/sys/devices/virtual/dmi/id")
_FABRICS = Path("/sys/class/infiniband")


def this_machine() -> MachineType:
    """The facts that can be read here. Others, such as a price or the rate of a cloud network, stay None unless the type is known."""
    return describe(
        product=_read(_DMI / "product_name"),
        fabrics=[path.name for path in _FABRICS.glob("*")] if _FABRICS.is_dir() else [],
        cpu=read_cpu(),
        memory=read_memory(),
        interfaces=read_interfaces(),
        gpus=read_gpus(),
        links=read_gpu_links(),
        on_the_bus=has_accelerator(),
    )


def describe(
    *,
    product: str | None,
    fabrics: list[str],
    cpu: Cpus,
    memory: HostMemory,
    interfaces: list[NetworkInterface],
    gpus: GpuReading,
    links: GpuLinks,
    on_the_bus: bool | None = None,
) -> MachineType:
    """The same from what was read. `on_the_bus`: whether the PCI bus shows an accelerator; NVML without a driver cannot say.

    Holds:   a field that was not read is None; of an EC2 type of the catalogue, what was not read is the catalogue's
    """
    known = find_machine_type(product) if product else None
    read = _read_fields(fabrics, cpu, memory, interfaces, gpus, links, on_the_bus)
    sources = {name: _SOURCE for name, value in read.items() if value is not None}
    if known is not None:
        # The rate of a virtual machine's interface is not the rate that it gets.
        read.pop("network_gbps", None)
        sources.pop("network_gbps", None)
        found = {name: value for name, value in read.items() if value is not None}
        note = f"{_SOURCE}, which says that it is a {known.name}"
        return replace(known, **found, note=note, sources={**known.sources, **sources})
    return MachineType(name=_SOURCE, **read, note=_note(gpus, links), sources={"": _SOURCE, **sources})


def _read_fields(
    fabrics: list[str],
    cpu: Cpus,
    memory: HostMemory,
    interfaces: list[NetworkInterface],
    gpus: GpuReading,
    links: GpuLinks,
    on_the_bus: bool | None,
) -> dict[str, Any]:
    limit, total = memory.cgroup_limit_bytes, memory.total_bytes
    bytes_here = min(value for value in (limit, total) if value) if limit or total else None
    devices = gpus.gpus or ()
    name = devices[0].name if devices else None
    same = name is not None and all(gpu.name == name for gpu in devices)
    catalogued = find_accelerator(name) if name and same else None
    smallest = min((gpu.memory_bytes for gpu in devices if gpu.memory_bytes), default=None)
    efa = sum(1 for fabric in fabrics if fabric.startswith(("efa", "rdmap")))
    return {
        "vcpu_count": cpu.usable_count,
        "memory_gib": round(bytes_here / _GIB, 2) if bytes_here else None,
        "accelerator": (catalogued.name if catalogued else name) if same else None,
        "accelerator_count": len(devices) if gpus.gpus is not None else 0 if on_the_bus is False else None,
        "accelerator_memory_gib": round(smallest / _GIB, 2) if smallest else None,
        "intra_link": links.word if len(devices) > 1 else None,
        "network_gbps": _network_gbps(interfaces),
        "efa": True if efa else None,
        "efa_interface_count": efa or None,
    }


def _network_gbps(interfaces: list[NetworkInterface]) -> float | None:
    """The fastest interface that is up and has an address; loopback and bridges name no rate."""
    speeds = [one.speed_mbps for one in interfaces if one.up and one.speed_mbps and one.addresses and one.name != "lo"]
    return max(speeds) / 1000 if speeds else None


def _note(gpus: GpuReading, links: GpuLinks) -> str:
    told = [gpus.reason] if gpus.gpus is None and gpus.reason else []
    names = sorted({gpu.name or "?" for gpu in gpus.gpus or ()})
    if len(names) > 1:
        told.append(f"GPUs of several kinds ({', '.join(names)}): none is named")
    if len(gpus.gpus or ()) > 1 and links.word is None and links.reason:
        told.append(links.reason)
    return "; ".join(told)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
