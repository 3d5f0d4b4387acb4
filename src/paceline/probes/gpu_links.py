"""How the GPUs of this machine reach each other, from NVML: NVLink and its version, or the generation of their PCIe slots."""

from dataclasses import dataclass
from typing import Any

from paceline.probes.gpus import open_nvml

_MOST_LINKS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLinks:
    """Links of the first GPU. The GPUs of one machine are assumed to be alike. None: not known."""

    nvlink_version: int | None = None
    """Version of NVLink."""
    nvlink_count: int | None = None
    """Number of active NVLinks."""
    pcie_generation: int | None = None
    """PCIe generation."""
    reason: str = ""
    """Why a value is not known."""

    @property
    def word(self) -> str | None:
        """The link as the catalogue spells it: nvlink4, pcie5; None if it is not known."""
        if self.nvlink_count:
            return f"nvlink{self.nvlink_version}" if self.nvlink_version else "nvlink"
        return f"pcie{self.pcie_generation}" if self.pcie_generation else None


def read_gpu_links(nvml: Any = None) -> GpuLinks:
    """The links of GPU 0. `nvml`: another module in pynvml's place."""
    opened = nvml if nvml is not None else open_nvml()
    if isinstance(opened, str):
        return GpuLinks(reason=opened)
    try:
        if opened.nvmlDeviceGetCount() == 0:
            return GpuLinks(reason="NVML: no GPU")
        handle = opened.nvmlDeviceGetHandleByIndex(0)
        active = [link for link in range(_MOST_LINKS) if _is_active(opened, handle, link)]
        return GpuLinks(
            nvlink_count=len(active),
            nvlink_version=_version(opened, handle, active[0]) if active else None,
            pcie_generation=_pcie(opened, handle),
        )
    except opened.NVMLError as error:
        return GpuLinks(reason=f"NVML: {error}")
    finally:
        opened.nvmlShutdown()


def _is_active(nvml: Any, handle: Any, link: int) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
    except nvml.NVMLError:
        return False


def _version(nvml: Any, handle: Any, link: int) -> int | None:
    """NVML counts NVLink's versions as its header does: 1, 2 (2.0), 3 (2.2), 4 (3.0), 5 (3.1), 6 (4.0), 7 (5.0), 8 (6.0).

    Source:  nvml.h, NVML_NVLINK_VERSION_*
    """
    try:
        told = int(nvml.nvmlDeviceGetNvLinkVersion(handle, link))
    except nvml.NVMLError:
        return None
    return {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}.get(told)


def _pcie(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
    except nvml.NVMLError:
        return None
