"""What a host offers to a training job, read without torch and without starting a lasting process."""

import os
import platform
import re
import resource
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from paceline.probes import host_counters
from paceline.probes.cgroup import control_group, cpu_counters, memory_counters

DEPENDENCIES = ("msgspec", "nvidia-ml-py", "platformdirs")
_PREFIXES = (
    "NCCL_", "GLOO_", "UCX_", "FI_", "TORCH", "PYTORCH_", "PET_", "CUDA_", "OMP_", "MKL_", "KMP_", "OPENBLAS_",
    "MASTER_", "SLURM_", "SM_", "SAGEMAKER_", "PACELINE_", "PYTHON",
)  # fmt: skip
_NAMES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "MALLOC_CONF",
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(^|[^A-Z])KEYS?($|[^A-Z])|APIKEY|ACCESS", re.IGNORECASE)
_WORD = re.compile(r"-{0,2}[A-Za-z_][\w-]*")
# Words of training scripts that are no secrets: those that count or cut text, and paceline's option that names a file.
_NO_SECRET = re.compile(r"TOKENI[SZ]|TOKENS|AUTHOR|NO[-_]TOKEN|TOKEN[-_]FILE", re.IGNORECASE)
# These hold every hyperparameter, and one of those may be a secret.
_HOLDS_ALL = ("SM_HPS", "SM_TRAINING_ENV", "SM_USER_ARGS", "SM_FRAMEWORK_PARAMS", "SM_INPUT_DATA_CONFIG")
_LONGEST = 120
_LIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "locked_memory_bytes": resource.RLIMIT_MEMLOCK,
    "stack_bytes": resource.RLIMIT_STACK,
    "core_bytes": resource.RLIMIT_CORE,
}


class OperatingSystem(msgspec.Struct, frozen=True, kw_only=True):
    """The operating system."""

    os: str | None
    """Its name and version."""
    kernel: str
    """Version of the kernel."""
    architecture: str
    """Of the processor, such as `x86_64`."""
    libc: str | None
    """The C library and its version."""


class Cpus(msgspec.Struct, frozen=True, kw_only=True):
    """The processors."""

    model: str | None = None
    """Name of the model."""
    count: int | None = None
    """Number of CPUs of the host."""
    usable_count: int | None = None
    """Number of CPUs that this process may use."""
    quota_cpus: float | None = None
    """CPUs that the control group allows; None: no quota."""
    cgroup_version: int | None = None
    """1 or 2; None: no control group was seen."""


class SharedMemoryRoom(msgspec.Struct, frozen=True, kw_only=True):
    """/dev/shm, which DataLoader workers fill."""

    total_bytes: int
    """Its size."""
    available_bytes: int
    """What is left of it."""


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory."""

    total_bytes: int | None = None
    """Of the host."""
    available_bytes: int | None = None
    """What is left of it."""
    used_bytes: int | None = None
    """What is in use."""
    swap_used_bytes: int | None = None
    """Swap in use."""
    cgroup_limit_bytes: int | None = None
    """What the control group allows; None: no limit."""
    cgroup_used_bytes: int | None = None
    """What the control group uses."""
    cgroup_version: int | None = None
    """1 or 2; None: no control group was seen."""
    shm: SharedMemoryRoom | None = None
    """/dev/shm; None: it is not there."""


def parse_os_release(text: str) -> str | None:
    """PRETTY_NAME of /etc/os-release."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip("\"'")
    return None


def parse_cpu_model(text: str) -> str | None:
    """The first `model name` of /proc/cpuinfo; machines with ARM cores give none."""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else None


def relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect a job, by name; a value that may be a secret is masked, a long value is cut.

    Holds:  a name with TOKEN, SECRET, KEY, ... has the value "***"
    """
    chosen = sorted(name for name in environ if name.startswith(_PREFIXES) or name in _NAMES)
    return {name: _shown(name, environ[name]) for name in chosen}


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """A command line in a form that may be kept: the value of a name that looks like a secret is masked.

    The value is the next argument, or the rest of the word after the name. Of the option --env every value is masked.

    Holds:  ("--hp", "api_key=1a2b") -> ("--hp", "api_key=***"); ("--auth-token", "1a2b") -> ("--auth-token", "***")
    """
    kept: list[str] = []
    value_follows = variable_follows = False
    for word in words:
        name, equals, value = word.partition("=")
        if variable_follows or (name == "--env" and equals):
            # Whatever a variable's name says: its value is nobody's to read.
            option = "" if variable_follows else "--env="
            variable, has_value, _ = word.removeprefix(option).partition("=")
            kept.append(f"{option}{variable}{'=***' if has_value else ''}")
            value_follows = variable_follows = False
            continue
        variable_follows = word == "--env"
        if value_follows and not word.startswith("-"):
            kept.append("***")
            value_follows = False
        elif _is_secret(name) and equals:
            kept.append(f"{name}=***")
            value_follows = False
        elif equals and name.startswith("-") and _is_secret(inner := value.partition("=")[0]) and "=" in value:
            kept.append(f"{name}={inner}=***")
            value_follows = False
        else:
            kept.append(word)
            value_follows = _is_secret(word)
    return tuple(kept)


def _is_secret(name: str) -> bool:
    return _WORD.fullmatch(name) is not None and _SECRET.search(_NO_SECRET.sub("", name)) is not None


def read_system() -> OperatingSystem:
    """Operating system, kernel and C library."""
    libc = " ".join(platform.libc_ver())
    return OperatingSystem(
        os=parse_os_release(_read("/etc/os-release")),
        kernel=platform.release(),
        architecture=platform.machine(),
        libc=libc.strip() or None,
    )


def read_cpu() -> Cpus:
    """CPUs of the host, those this process may use, and the quota of its control group."""
    group = control_group("cpu")
    return Cpus(
        model=parse_cpu_model(_read("/proc/cpuinfo")),
        count=os.cpu_count(),
        usable_count=len(os.sched_getaffinity(0)),
        quota_cpus=cpu_counters(group).quota_cpus if group is not None else None,
        cgroup_version=group.version if group is not None else None,
    )


def read_memory() -> HostMemory:
    """Memory of the host, the limit of this process's control group, and /dev/shm."""
    group = control_group("memory")
    counters = memory_counters(group) if group is not None else None
    return HostMemory(
        **host_counters.memory_facts(host_counters.parse_meminfo(_read("/proc/meminfo"))),
        cgroup_limit_bytes=counters.limit_bytes if counters is not None else None,
        cgroup_used_bytes=counters.used_bytes if counters is not None else None,
        cgroup_version=group.version if group is not None else None,
        shm=_shared_memory(),
    )


def read_limits() -> dict[str, int | None]:
    """The soft limits of this process that ranks inherit; None: no limit."""
    soft = {name: resource.getrlimit(which)[0] for name, which in _LIMITS.items()}
    return {name: None if value == resource.RLIM_INFINITY else value for name, value in soft.items()}


def read_packages(names: Iterable[str] = DEPENDENCIES) -> dict[str, str | None]:
    """Installed version by distribution; None: not installed."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    # It takes as long to load as all else of a verb that reads no packages.
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _shown(name: str, value: str) -> str:
    if _SECRET.search(name):
        return "***"
    if name in _HOLDS_ALL:
        return f"({len(value)} characters, not shown)"
    return value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."


def _shared_memory() -> SharedMemoryRoom | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    size = found.f_frsize
    return SharedMemoryRoom(total_bytes=found.f_blocks * size, available_bytes=found.f_bavail * size)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
