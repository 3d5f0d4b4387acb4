"""The environment of a job as text to paste into a report. What could not be read is listed, never shown as fine."""

from collections.abc import Iterator, Mapping

import msgspec

from paceline.probes.environment import Cpus, HostMemory, OperatingSystem
from paceline.probes.gpus import Gpu
from paceline.probes.interfaces import NetworkInterface
from paceline.views.units import size

NOT_JUDGED = "not judged"
_LABEL = 14


class PacelineFacts(msgspec.Struct, frozen=True):
    """Paceline itself."""

    version: str
    """Version of paceline."""


class PythonFacts(msgspec.Struct, frozen=True):
    """The interpreter of the ranks."""

    version: str | None
    """Its version."""
    executable: str
    """Its path."""


class TorchFeature(msgspec.Struct, frozen=True, rename={"purpose": "for"}):
    """A feature of torch that paceline uses."""

    name: str
    """Name of the feature."""
    purpose: str
    """What paceline uses it for."""
    found: bool | None
    """Whether it is there; None: not looked at."""
    reason: str
    """Why it was not looked at."""


class TorchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The torch of that interpreter."""

    version: str | None
    """Version; None: not known."""
    cuda: str | None
    """Version of CUDA that it was built for; None: none."""
    reason: str
    """Why the version is not known."""
    not_tried: str = ""
    """Says that nobody has run paceline on this torch; empty: somebody has, or the version is not known."""
    features: tuple[TorchFeature, ...]
    """What paceline uses of it."""


class NamespaceFacts(msgspec.Struct, frozen=True):
    """Network namespaces, for `--local-hosts`."""

    allowed: bool
    """Whether this user may make them."""
    reason: str
    """Why not."""


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs."""

    devices: tuple[Gpu, ...] | None
    """Each GPU; None: NVML could not be asked."""
    reason: str
    """Why NVML could not be asked."""
    visible_count: int | None
    """Number of GPUs that a rank would see; None: not known."""
    visible_reason: str
    """Why that many."""


class EnvDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.env/2"):
    """What a machine offers to a job."""

    paceline: PacelineFacts
    """Paceline itself."""
    packages: Mapping[str, str | None]
    """What paceline depends on, with the version; None: not installed."""
    python: PythonFacts
    """The interpreter of the ranks."""
    torch: TorchFacts
    """Its torch."""
    system: OperatingSystem
    """The operating system."""
    cpu: Cpus
    """The processors."""
    memory: HostMemory
    """The memory."""
    namespaces: NamespaceFacts
    """Network namespaces, for `--local-hosts`."""
    gpus: GpuFacts
    """The GPUs."""
    interfaces: tuple[NetworkInterface, ...]
    """The network interfaces."""
    limits: Mapping[str, int | None]
    """Limits that the ranks inherit, in bytes if the name ends with `_bytes`; None: no limit."""
    variables: Mapping[str, str]
    """Environment variables that concern a job, without secrets."""


def env_text(facts: EnvDocument) -> str:
    """`paceline env` without --json; what a machine offers."""
    return "\n".join(
        line for part in (_software, _torch, _system, _gpus, _network, _limits, _variables) for line in part(facts)
    )


def _software(facts: EnvDocument) -> Iterator[str]:
    packages = ", ".join(f"{name} {version or 'not installed'}" for name, version in facts.packages.items())
    yield _line("paceline", facts.paceline.version)
    yield _line("", packages)
    yield _line("python", f"{facts.python.version}  {facts.python.executable}")


def _torch(facts: EnvDocument) -> Iterator[str]:
    torch = facts.torch
    if torch.version is None:
        yield _line("torch", f"{NOT_JUDGED}: {torch.reason}")
        return
    yield _line("torch", torch.version + (f"  CUDA {torch.cuda}" if torch.cuda else ""))
    if torch.not_tried:
        yield _line("", torch.not_tried)
    unknown = [feature for feature in torch.features if feature.found is None]
    if unknown:
        yield _line("", f"{NOT_JUDGED} ({unknown[0].reason}): {', '.join(feature.name for feature in unknown)}")
    for feature in torch.features:
        if feature.found is not None:
            yield _line("", f"{feature.name:<16}  {'found' if feature.found else 'not there':<9}  {feature.purpose}")


def _system(facts: EnvDocument) -> Iterator[str]:
    system, cpu, memory, namespaces = facts.system, facts.cpu, facts.memory, facts.namespaces
    yield _line(
        "system",
        "  ".join(filter(None, (system.os, f"kernel {system.kernel}", system.architecture, system.libc))),
    )
    quota = "no quota" if cpu.quota_cpus is None else f"quota {cpu.quota_cpus:g} CPUs"
    yield _line("cpu", f"{cpu.usable_count} of {cpu.count} usable, {quota}{_group(cpu)}  {cpu.model or ''}".rstrip())
    limit = "no limit" if memory.cgroup_limit_bytes is None else f"limit {size(memory.cgroup_limit_bytes)}"
    yield _line(
        "memory", f"{size(memory.total_bytes)}, {size(memory.available_bytes)} available, {limit}{_group(memory)}"
    )
    shm = memory.shm
    yield _line(
        "/dev/shm",
        NOT_JUDGED + ": it is not there"
        if shm is None
        else f"{size(shm.total_bytes)}, {size(shm.available_bytes)} available",
    )
    yield _line(
        "namespaces",
        "allowed" if namespaces.allowed else f"refused: {namespaces.reason} (--local-hosts then translates addresses)",
    )


def _gpus(facts: EnvDocument) -> Iterator[str]:
    gpus = facts.gpus
    visible = "" if gpus.visible_count is None else f"{gpus.visible_count} visible to a rank"
    if gpus.devices is None:
        yield _line("gpu", "; ".join(filter(None, (f"{NOT_JUDGED}: {gpus.reason}", visible))))
        return
    yield _line("gpu", "; ".join(filter(None, (f"{len(gpus.devices)} in this machine", visible, gpus.visible_reason))))
    for device in gpus.devices:
        yield _line(
            "",
            "  ".join(filter(None, (*_device(device), "MIG" if device.mig else ""))),
        )


def _device(device: Gpu) -> tuple[str, ...]:
    return str(device.index), device.name or "", size(device.memory_bytes), device.pci_address or ""


def _network(facts: EnvDocument) -> Iterator[str]:
    for place, interface in enumerate(facts.interfaces):
        speed = f"{interface.speed_mbps / 1000:g} Gbit/s" if interface.speed_mbps else "speed unknown"
        state = "" if interface.up else "  down"
        addresses = ", ".join(interface.addresses) or "no address"
        yield _line(
            "network" if place == 0 else "",
            f"{interface.name}  {addresses}  {speed}  MTU {interface.mtu_bytes}{state}",
        )


def _limits(facts: EnvDocument) -> Iterator[str]:
    shown = (
        "no limit" if value is None else size(value) if name.endswith("_bytes") else str(value)
        for name, value in facts.limits.items()
    )
    names = (name.removesuffix("_bytes").replace("_", " ") for name in facts.limits)
    yield _line("limits", ", ".join(f"{name} {value}" for name, value in zip(names, shown, strict=True)))


def _variables(facts: EnvDocument) -> Iterator[str]:
    variables = facts.variables
    if not variables:
        yield _line("variables", "none that concern a job")
    for place, (name, value) in enumerate(variables.items()):
        yield _line("variables" if place == 0 else "", f"{name}={value}")


def _group(section: Cpus | HostMemory) -> str:
    return f" (cgroup v{section.cgroup_version})" if section.cgroup_version else " (no control group seen)"


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}".rstrip()
