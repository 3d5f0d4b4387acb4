"""GPU readings through NVML, open between two samples. A reading that a device lacks is None, with its reason."""

from collections.abc import Callable
from typing import Any

from paceline.probes.gpus import has_accelerator, open_nvml

_MILLIWATTS_PER_WATT = 1000


class GpuSensors:
    """Open NVML on every GPU of the machine; `missing` says what cannot be read and why."""

    def __init__(self, nvml: Any = None) -> None:
        """`nvml`: an opened module in pynvml's place."""
        self.missing: dict[str, str] = {}
        self._nvml: Any = None
        self._none_here = False
        self._handles: list[Any] = []
        opened = nvml if nvml is not None else open_nvml()
        if isinstance(opened, str):
            self._none_here = has_accelerator() is False
            if not self._none_here:
                self.missing["gpu"] = opened
            return
        self._nvml = opened
        try:
            self._handles = [opened.nvmlDeviceGetHandleByIndex(index) for index in range(opened.nvmlDeviceGetCount())]
        except opened.NVMLError as error:
            self.missing["gpu"] = f"NVML: {error}"

    def sample(self) -> list[dict[str, Any]] | None:
        """One dict per GPU in NVML's order; empty if the bus shows no accelerator; None if NVML cannot be read."""
        if self._none_here:
            return []
        if self._nvml is None or "gpu" in self.missing:
            return None
        return [self._one(index, handle) for index, handle in enumerate(self._handles)]

    def close(self) -> None:
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            nvml.nvmlShutdown()

    def _one(self, index: int, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        readings: dict[str, Callable[[], Any]] = {
            "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
            "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / _MILLIWATTS_PER_WATT,
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "sm_clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "throttle": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        }
        values = {name: self._read(index, name, read) for name, read in readings.items()}
        memory = values["memory"]
        return {
            "index": index,
            "busy_fraction": values["utilization"],
            "memory_used_bytes": None if memory is None else int(memory.used),
            "memory_total_bytes": None if memory is None else int(memory.total),
            "power_watts": values["power"],
            "temperature_celsius": values["temperature"],
            "sm_clock_mhz": values["sm_clock"],
            "memory_clock_mhz": values["memory_clock"],
            "throttle_reasons": values["throttle"],
        }

    def _read(self, index: int, name: str, read: Callable[[], Any]) -> Any:
        sensor = f"gpu {index} {name}"
        if sensor in self.missing:
            return None
        try:
            return read()
        except self._nvml.NVMLError as error:
            self.missing[sensor] = f"NVML: {error}"
            return None
