"""This host before a job starts, as plain values: versions, limits, room, name, ports, GPUs."""

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from paceline import __version__
from paceline.probes.environment import read_cpu, read_limits, read_memory
from paceline.probes.gpus import open_nvml
from paceline.probes.ports import Bind, holder_of, try_bind
from paceline.probes.torch_version import read_torch


def read_host(name: str, run_dir: Path, ports: Iterable[int], python: str | None = None) -> dict[str, Any]:
    """The fields of rules.host_facts.HostFacts. `ports`: that the job wants here; `python`: the interpreter of the ranks."""
    install = read_torch(python)
    shm = read_memory().shm
    return {
        "name": name,
        "python": install.python_version,
        "interpreter": install.python,
        "torch": install.version,
        "paceline": __version__,
        "cpu_count": read_cpu().usable_count,
        "open_files": read_limits()["open_files"],
        "shm_bytes": shm.available_bytes if shm else None,
        "run_dir": str(run_dir),
        "run_dir_bytes": _room(run_dir),
        "own_address": own_address(),
        "busy_ports": {port: why for port in ports if (why := _taken(port))},
        "gpus": read_gpu_states(),
    }


def read_gpu_states() -> list[dict[str, Any]] | None:
    """One object for each GPU; None where NVML cannot be asked."""
    nvml = open_nvml()
    if isinstance(nvml, str):
        return None
    return [_gpu_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def _gpu_state(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return {
        "index": index,
        "name": _asked(nvml, lambda: nvml.nvmlDeviceGetName(handle)),
        "used_bytes": None if memory is None else memory.used,
        "memory_bytes": None if memory is None else memory.total,
        "uncorrected_errors": _asked(nvml, lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, *kinds)),
    }


def _asked(nvml: Any, question: Callable[[], Any]) -> Any:
    """The answer; None where this GPU or this user cannot have it."""
    try:
        return question()
    except nvml.NVMLError:
        return None


def own_address() -> str | None:
    """What this host's own name resolves to; None: to nothing."""
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None)[0][4][0])
    except (OSError, UnicodeError):  # the second: a name that no host may have
        return None


def _taken(port: int) -> str:
    """Why this process could not listen on the port; empty where it could."""
    result = try_bind("0.0.0.0", port)
    if result is Bind.IN_USE:
        return str(holder_of(port) or "held by a process that this user cannot see")
    return "" if result is Bind.FREE else str(result)


def _room(directory: Path) -> int | None:
    """Bytes that this user may still write below a directory, which need not be there yet."""
    for place in (directory, *directory.parents):
        try:
            found = os.statvfs(place)
        except OSError:
            continue
        return found.f_bavail * found.f_frsize
    return None
