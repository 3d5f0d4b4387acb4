"""GPUs of this machine through NVML, and which of them CUDA_VISIBLE_DEVICES leaves to a process. torch is not loaded.

CUDA reads the variable from left to right: the first entry that is not a device ends the list, an entry named twice
empties it. An empty string and "-1" therefore hide every GPU. A process sees one MIG slice at most.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.facts import Device

# Linux, Windows' subsystem for Linux, Jetson.
_ACCELERATOR_CLASSES = {0x03, 0x12}
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-ctrl-gpu")
_LEADING_NUMBER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU."""

    index: int
    """NVML's number, by PCI address."""
    uuid: str
    """NVML's id, the same on every boot."""
    name: str | None = None
    """Model name."""
    memory_bytes: int | None = None
    """All of its memory."""
    pci_address: str | None = None
    """PCI address."""
    mig: bool = False
    """The GPU is cut into slices, and only these can be used."""
    mig_uuids: tuple[str, ...] = ()
    """Ids of the slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What NVML reported."""

    gpus: tuple[Gpu, ...] | None
    """The GPUs; None: NVML could not be asked, which is not the same as no GPU."""
    reason: str = ""
    """Why it could not be asked."""

    def devices(self) -> tuple[Device, ...] | None:
        if self.gpus is None:
            return None
        return tuple(
            Device(index=gpu.index, name=gpu.name, uuid=gpu.uuid, memory_bytes=gpu.memory_bytes) for gpu in self.gpus
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpus:
    """GPUs that a process would see, in its own order."""

    count: int | None
    """Number of GPUs; None: only CUDA itself would know."""
    uuids: tuple[str, ...] = ()
    """Their ids."""
    reason: str = ""
    """Why the number is not known."""


def visible_gpus(gpus: Sequence[Gpu], variable: str | None) -> VisibleGpus:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; `variable` None: it is not set.

    Holds:   "" -> 0; "-1" -> 0; "0,-1,1" -> 1; "1,1" -> 0; None -> every GPU
    Source:  CUDA programming guide, environment variables; torch.cuda _parse_visible_devices, _device_count_nvml
    """
    if variable is None:
        if any(gpu.mig for gpu in gpus):
            return VisibleGpus(
                count=None,
                reason="a GPU is in MIG mode and CUDA_VISIBLE_DEVICES is not set: what CUDA shows is not known",
            )
        return _visible([gpu.uuid for gpu in gpus])
    if variable.startswith("MIG-"):
        slices = _by_prefix(variable, "MIG-", [uuid for gpu in gpus for uuid in gpu.mig_uuids])
        return _visible(slices[:1])
    if variable.startswith("GPU-"):
        return _visible(_by_prefix(variable, "GPU-", [gpu.uuid for gpu in gpus]))
    indices = _indices(variable)
    known = {gpu.index: gpu for gpu in gpus}
    chosen = []
    for index in indices:
        if index not in known:
            break
        chosen.append(known[index])
    if any(gpu.mig for gpu in chosen):
        return VisibleGpus(
            count=None, reason="CUDA_VISIBLE_DEVICES names a GPU in MIG mode: name one slice by its MIG- UUID"
        )
    return _visible([gpu.uuid for gpu in chosen])


def count_visible(environ: Mapping[str, str], reading: GpuReading | None = None) -> tuple[int | None, str]:
    """How many GPUs a rank started with `environ` would see, and why that is not known (None) or is zero."""
    variable = environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None and (
        variable == "" or (_indices(variable) == [] and not variable.startswith(("GPU-", "MIG-")))
    ):
        return 0, f"CUDA_VISIBLE_DEVICES={variable!r} hides every GPU"
    reading = reading if reading is not None else read_gpus()
    if reading.gpus is None:
        return None, reading.reason
    visible = visible_gpus(reading.gpus, variable)
    if visible.count == 0:
        named = "" if variable is None else f"; CUDA_VISIBLE_DEVICES={variable!r} leaves none"
        return 0, f"NVML counts {len(reading.gpus)} GPUs{named}"
    return visible.count, visible.reason


def has_accelerator(pci_devices: Path = Path("/sys/bus/pci/devices")) -> bool | None:
    """Whether the PCI bus shows a display controller or an accelerator of any vendor; None if there is no bus to read.

    Source:  PCI Code and ID Assignment Specification: base class 03 is display, 12 processing accelerators
    """
    classes = [parse_pci_class(file.read_text()) for file in pci_devices.glob("*/class")]
    return any(base in _ACCELERATOR_CLASSES for base in classes) if classes else None


def parse_pci_class(text: str) -> int:
    """The base class of a PCI device's `class` file: 0x03 in "0x030200"."""
    return int(text, 16) >> 16


def read_gpus(nvml: Any = None) -> GpuReading:
    """Every GPU that NVML shows, with its name, memory and PCI address. `nvml`: another module in pynvml's place."""
    opened = nvml if nvml is not None else open_nvml()
    if isinstance(opened, str):
        return GpuReading(gpus=None, reason=opened)
    try:
        count = opened.nvmlDeviceGetCount()
        return GpuReading(gpus=tuple(_read_gpu(opened, index) for index in range(count)))
    except opened.NVMLError as error:
        return GpuReading(gpus=None, reason=f"NVML: {error}")
    finally:
        opened.nvmlShutdown()


def open_nvml() -> Any:
    """pynvml after its nvmlInit, or a text that says why it cannot be used here."""
    if not any(Path(file).exists() for file in _DRIVER_FILES):
        # Known without loading pynvml, which costs every start on a machine without GPUs 25 ms.
        return f"NVML: there is no NVIDIA driver here ({_DRIVER_FILES[0]} is missing)"
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return "NVML: nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    return pynvml


def _read_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mig = _mig_enabled(nvml, handle)
    return Gpu(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        pci_address=_sysfs_address(nvml.nvmlDeviceGetPciInfo(handle)),
        mig=mig,
        mig_uuids=_mig_uuids(nvml, handle) if mig else (),
    )


def _sysfs_address(pci: Any) -> str:
    """A PCI address as /sys/bus/pci/devices spells it; NVML gives the domain in eight digits."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _mig_enabled(nvml: Any, handle: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _mig_uuids(nvml: Any, handle: Any) -> tuple[str, ...]:
    uuids = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            uuids.append(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
        except nvml.NVMLError:
            continue
    return tuple(uuids)


def _visible(uuids: Sequence[str]) -> VisibleGpus:
    return VisibleGpus(count=len(uuids), uuids=tuple(uuids))


def _indices(variable: str) -> list[int]:
    indices: list[int] = []
    for entry in variable.split(","):
        number = _LEADING_NUMBER.match(entry.strip())
        if number is None or int(number[0]) < 0:
            break
        if int(number[0]) in indices:
            return []
        indices.append(int(number[0]))
    return indices


def _by_prefix(variable: str, kind: str, known: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for entry in variable.split(","):
        matches = [uuid for uuid in known if uuid.startswith(entry)] if entry.startswith(kind) else []
        if len(matches) != 1:
            break
        if matches[0] in chosen:
            return []
        chosen.append(matches[0])
    return chosen
