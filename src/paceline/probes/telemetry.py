"""One sample per second of a host's sensors and its ranks."""

import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from paceline.probes import host_counters
from paceline.probes.cgroup import control_group, cpu_counters, memory_counters
from paceline.probes.gpu_sensors import GpuSensors
from paceline.probes.processes import ProcessTree, read_stat, read_wait_seconds

_READ_BYTES = 1 << 18
_GROUP_EVERY = 5


class _KeptFile:
    """A file of /proc that is opened once and read from its start each time; half the cost of opening it again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> str:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._descriptor, _READ_BYTES, 0).decode(errors="replace")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _pressure(file: _KeptFile) -> dict[str, float]:
    return host_counters.parse_pressure(file.read())


class Sampler:
    """Reads every sensor of this host; one that fails is left out from then on, with its reason in `missing`.

    A sample is one JSON object. Every `*_seconds`, `*_bytes` and `*_count` below cpu, network, disk, pressure and
    ranks is a total since the machine or the process started, so that a lost sample loses nothing; `*_fraction` is the
    share since the sample before. None, and a section that is not there, mean unknown: the reason is in `missing`,
    under the section's name. Sections may be added.

        {"t_ns": Unix ns,
         "cpu": {"count", "load_1m", "busy_fraction", "iowait_fraction", "steal_fraction"},
         "memory": {"total_bytes", "available_bytes", "used_bytes", "swap_used_bytes"},
         "cgroup": {"memory_limit_bytes", "memory_used_bytes", "memory_peak_bytes", "oom_kill_count", "cpu_quota_cpus",
                    "throttled_count", "period_count", "throttled_seconds"},
         "pressure": {"cpu" | "memory" | "io": {"some_seconds", "full_seconds"}},
         "network": {INTERFACE: {"received_bytes", "sent_bytes", "dropped_packets", "error_packets"}},
         "disk": {DEVICE: {"read_bytes", "written_bytes", "busy_seconds"}},
         "gpus": [{"index", "busy_fraction", "memory_used_bytes", "memory_total_bytes", "power_watts",
                   "temperature_celsius", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons"}],
         "ranks": {RANK: {"pid", "state", "cpu_seconds", "cpu_wait_seconds", "resident_bytes", "process_count",
                           "thread_count"}},
         "agent": {"cpu_seconds", "resident_bytes", "sample_seconds"}}

    `cgroup` is read every fifth sample and left out of the others. `ranks` adds up the rank's process and everything
    below it; shared pages count once per process. `cpu_wait_seconds`: how long its main thread was ready to run and had
    no CPU. `throttle_reasons` are NVML's bits. `agent` is what the sampling
    process itself used.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self.missing: dict[str, str] = {}
        self._files = {
            name: _KeptFile(f"{proc}/{name}") for name in ("stat", "meminfo", "net/dev", "diskstats", "loadavg")
        }
        self._pressure = {name: _KeptFile(f"{proc}/pressure/{name}") for name in ("cpu", "memory", "io")}
        self._tree = ProcessTree()
        self._cpu_before: host_counters.CpuTimes | None = None
        self._cpu_count = os.cpu_count()
        self._memory_group, self._cpu_group = control_group("memory"), control_group("cpu")
        self._gpus: GpuSensors | None = None
        self._taken = 0

    def sample(self, ranks: Mapping[int, int]) -> dict[str, Any]:
        """One sample now. `ranks`: rank -> pid of the process that the agent started for it."""
        started = time.perf_counter()
        sample: dict[str, Any] = {"t_ns": time.time_ns()}
        sections: dict[str, Callable[[], Any]] = {
            "cpu": self._cpu,
            "memory": lambda: host_counters.memory_facts(host_counters.parse_meminfo(self._files["meminfo"].read())),
            "network": lambda: {
                name: asdict(found)
                for name, found in host_counters.parse_net_dev(self._files["net/dev"].read()).items()
            },
            "disk": lambda: {
                name: asdict(found)
                for name, found in host_counters.parse_diskstats(self._files["diskstats"].read()).items()
            },
            "gpus": self._gpu,
            "ranks": lambda: self._ranks(ranks),
        }
        sections |= {f"pressure {name}": partial(_pressure, file) for name, file in self._pressure.items()}
        if self._taken % _GROUP_EVERY == 0:
            sections["cgroup"] = self._group
        for name, read in sections.items():
            self._into(sample, name, read)
        self._taken += 1
        sample["agent"] = self._agent(started)
        return sample

    def close(self) -> None:
        """Close the open files and NVML."""
        for file in (*self._files.values(), *self._pressure.values()):
            file.close()
        if self._gpus is not None:
            self._gpus.close()

    def _into(self, sample: dict[str, Any], name: str, read: Callable[[], Any]) -> None:
        if name in self.missing:
            return
        try:
            value = read()
        except (OSError, ValueError, KeyError, IndexError) as error:
            self.missing[name] = (
                f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else repr(error)
            )
            return
        if value is None:
            return
        section, _, part = name.partition(" ")
        if part:
            sample.setdefault(section, {})[part] = value
        else:
            sample[section] = value

    def _cpu(self) -> dict[str, Any]:
        now = host_counters.parse_stat(self._files["stat"].read())
        before, self._cpu_before = self._cpu_before, now
        fractions = host_counters.cpu_fractions(before, now) if before is not None else None
        unknown = {"busy_fraction": None, "iowait_fraction": None, "steal_fraction": None}
        return {
            "count": self._cpu_count,
            "load_1m": float(self._files["loadavg"].read().split()[0]),
            **(fractions or unknown),
        }

    def _group(self) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        if self._memory_group is not None:
            memory = memory_counters(self._memory_group)
            found |= {
                "memory_limit_bytes": memory.limit_bytes,
                "memory_used_bytes": memory.used_bytes,
                "memory_peak_bytes": memory.peak_bytes,
                "oom_kill_count": memory.oom_kills,
            }
        if self._cpu_group is not None:
            cpu = cpu_counters(self._cpu_group)
            found |= {
                "cpu_quota_cpus": cpu.quota_cpus,
                "period_count": cpu.periods,
                "throttled_count": cpu.throttled_periods,
                "throttled_seconds": cpu.throttled_seconds,
            }
        if not found:
            self.missing["cgroup"] = "no control group of this process is mounted here"
            return None
        return found

    def _gpu(self) -> list[dict[str, Any]] | None:
        if self._gpus is None:
            self._gpus = GpuSensors()
        readings = self._gpus.sample()
        for sensor, reason in self._gpus.missing.items():
            self.missing.setdefault("gpus" if sensor == "gpu" else sensor, reason)
        return readings

    def _ranks(self, ranks: Mapping[int, int]) -> dict[str, Any]:
        self._tree.refresh()
        below = self._tree.descendants(ranks.values())
        found = {}
        for rank, pid in ranks.items():
            root = read_stat(pid)
            if root is None:
                continue
            family = [root, *(stat for child in below[pid] if (stat := read_stat(child)) is not None)]
            found[str(rank)] = {
                "pid": pid,
                "state": root.state,
                "cpu_seconds": round(sum(stat.cpu_seconds for stat in family), 2),
                "cpu_wait_seconds": read_wait_seconds(pid),
                "resident_bytes": sum(stat.resident_bytes for stat in family),
                "process_count": len(family),
                "thread_count": sum(stat.threads for stat in family),
            }
        return found

    def _agent(self, started: float) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        own = read_stat(os.getpid())
        return {
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
            "resident_bytes": own.resident_bytes if own is not None else None,
            "sample_seconds": round(time.perf_counter() - started, 6),
        }
