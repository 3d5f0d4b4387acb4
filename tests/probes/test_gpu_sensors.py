"""GPU readings from a module that speaks as pynvml does; no GPU is needed."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from paceline.probes.gpu_sensors import GpuSensors
from paceline.probes.gpus import read_gpus


class FakeNvml:
    """Two GPUs; `refused` names the functions that answer with an error, as a GPU without that sensor does."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_DEVICE_MIG_ENABLE = 0, 1, 2, 1

    class NVMLError(Exception):
        pass

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.closed = False
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        @dataclass
        class Call:
            nvml: FakeNvml

            def __call__(self, *arguments: Any) -> Any:
                self.nvml.asked.append(name)
                if name in self.nvml.refused:
                    raise FakeNvml.NVMLError("Not Supported")
                return ANSWERS[name](*arguments)

        return Call(self)

    def nvmlShutdown(self) -> None:
        self.closed = True


ANSWERS = {
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=141 << 30, used=1 << 30),
    "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(domain=0, bus=0x1B + handle, device=0),
    "nvmlDeviceGetMigMode": lambda handle: (handle, handle),
    "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda handle, index: f"slice-{index}",
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=87),
    "nvmlDeviceGetPowerUsage": lambda handle: 612_500,
    "nvmlDeviceGetTemperature": lambda handle, sensor: 64,
    "nvmlDeviceGetClockInfo": lambda handle, clock: {1: 1980, 2: 3201}[clock],
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4,
}


def test_every_reading_has_its_unit():
    sensors = GpuSensors(FakeNvml())
    first, second = sensors.sample()
    assert second["index"] == 1
    assert first == {
        "index": 0,
        "busy_fraction": 0.87,
        "memory_used_bytes": 1 << 30,
        "memory_total_bytes": 141 << 30,
        "power_watts": 612.5,
        "temperature_celsius": 64,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "throttle_reasons": 4,
    }
    assert sensors.missing == {}


def test_a_sensor_that_a_gpu_lacks_is_unknown_and_asked_once():
    nvml = FakeNvml("nvmlDeviceGetPowerUsage")
    sensors = GpuSensors(nvml)
    for _ in range(3):
        assert [reading["power_watts"] for reading in sensors.sample()] == [None, None]
    assert sensors.missing == {"gpu 0 power": "NVML: Not Supported", "gpu 1 power": "NVML: Not Supported"}
    assert nvml.asked.count("nvmlDeviceGetPowerUsage") == 2
    sensors.close()
    assert nvml.closed


def test_nvml_that_cannot_count_is_one_reason():
    sensors = GpuSensors(FakeNvml("nvmlDeviceGetCount"))
    assert sensors.sample() is None
    assert sensors.missing == {"gpu": "NVML: Not Supported"}
    assert read_gpus(FakeNvml("nvmlDeviceGetCount")).reason == "NVML: Not Supported"


def test_gpus_are_read_with_their_slices_and_sysfs_address():
    nvml = FakeNvml()
    first, second = read_gpus(nvml).gpus
    assert (first.pci_address, first.mig, first.mig_uuids) == ("0000:1b:00.0", False, ())
    assert (second.pci_address, second.mig, second.mig_uuids[6]) == ("0000:1c:00.0", True, "GPU-slice-6")
    assert nvml.closed
