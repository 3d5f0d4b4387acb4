"""Chooses the CPUs for each local rank with `--numa-binding`, so that the rank's memory is near its GPU.

Preview: it was tested on simulated machines, where it gives the same CPUs as torch, and not yet on a machine with GPUs.

The four modes and their tie-breaks are torch's own (torch/numa/binding.py). This module reads the machine through NVML and /sys
instead of torch. The started process is bound with sched_setaffinity, so numactl is not needed.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.errors import UsageError
from paceline.probes.gpus import Gpu, GpuReading, read_gpus, visible_gpus

_SYS = Path("/sys")
_DATA_CACHES = frozenset({"Unified", "Data"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaTopology:
    """CPUs, NUMA nodes and GPUs of one host."""

    node_cpus: Mapping[int, frozenset[int]]
    """NUMA node -> its CPUs."""
    gpu_nodes: tuple[int, ...]
    """The NUMA node of each local rank's GPU, in order of local rank."""
    allowed: frozenset[int]
    """CPUs that this process may use."""
    sockets: Mapping[int, int] = field(default_factory=dict)
    """CPU -> its socket."""
    cores: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """CPU -> every CPU on the same physical core."""
    caches: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """CPU -> every CPU that shares its last-level cache."""

    def allowed_on(self, node: int) -> frozenset[int]:
        return self.node_cpus.get(node, frozenset()) & self.allowed


def bindings(mode: str, ranks_per_host: int, environ: Mapping[str, str]) -> tuple[frozenset[int], ...]:
    """The CPUs of each local rank on this host, in local-rank order.

    Raises:  UsageError U11: no GPU is visible, there are fewer GPUs than ranks, or a node has no CPU left for one of its GPUs
    """
    reading = read_gpus()
    return cpus_by_local_rank(read_topology(_chosen(reading, environ)), mode, ranks_per_host)


def cpus_by_local_rank(topology: NumaTopology, mode: str, ranks_per_host: int) -> tuple[frozenset[int], ...]:
    """The CPUs of each local rank in `topology` with `mode` node, socket, exclusive or core-complex. Pure.

    Holds:   exclusive: the sets of two ranks are disjoint; node: a rank's set is the allowed CPUs of its GPU's node
    Raises:  UsageError U11
    Source:  torch/numa/binding.py, AffinityMode
    """
    if len(topology.gpu_nodes) < ranks_per_host:
        raise _too_few(
            f"{ranks_per_host} ranks, and {len(topology.gpu_nodes)} visible GPUs to bind them near to",
            mode,
            len(topology.gpu_nodes),
        )
    choose = _MODES[mode]
    chosen = tuple(frozenset(choose(topology, gpu)) for gpu in range(ranks_per_host))
    for gpu, cpus in enumerate(chosen):
        if not cpus:
            raise _too_few(
                f"no CPU of NUMA node {topology.gpu_nodes[gpu]} may be used here, and GPU {gpu} is there", mode, 0
            )
    return chosen


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs in a list as /sys writes it.

    Holds:  "0-2,4" -> {0, 1, 2, 4}; "" -> {}
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.strip().partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def read_topology(gpus: Iterable[Gpu], sys_path: Path = _SYS, allowed: Iterable[int] | None = None) -> NumaTopology:
    """The topology around `gpus` from /sys. `allowed` None: the CPUs that the scheduler lets this process use."""
    cpu_path, node_path = sys_path / "devices/system/cpu", sys_path / "devices/system/node"
    usable = frozenset(os.sched_getaffinity(0) if allowed is None else allowed)
    nodes = {int(path.name[4:]): parse_cpu_list(_text(path / "cpulist")) for path in node_path.glob("node[0-9]*")}
    return NumaTopology(
        node_cpus=nodes or {0: usable},
        gpu_nodes=tuple(_node_of(gpu, sys_path) for gpu in gpus),
        allowed=usable,
        sockets={cpu: int(_text(cpu_path / f"cpu{cpu}/topology/physical_package_id") or 0) for cpu in usable},
        cores={
            cpu: parse_cpu_list(_text(cpu_path / f"cpu{cpu}/topology/thread_siblings_list")) or frozenset({cpu})
            for cpu in usable
        },
        caches={cpu: _last_cache(cpu_path / f"cpu{cpu}/cache") or frozenset({cpu}) for cpu in usable},
    )


def _chosen(reading: GpuReading, environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    if reading.gpus is None:
        raise _too_few(f"the GPUs cannot be asked: {reading.reason}", "", 0)
    visible = visible_gpus(reading.gpus, environ.get("CUDA_VISIBLE_DEVICES"))
    if visible.count is None:
        raise _too_few(visible.reason, "", 0)
    by_uuid = {uuid: gpu for gpu in reading.gpus for uuid in (gpu.uuid, *gpu.mig_uuids)}
    return tuple(by_uuid[uuid] for uuid in visible.uuids)


def _too_few(saw: str, mode: str, count: int) -> UsageError:
    return UsageError(
        "U11",
        f"--numa-binding {mode}".strip() + " needs one GPU for each rank of this host",
        saw=saw,
        next=f"paceline run --nproc-per-node {count} ..." if count else "leave --numa-binding out",
    )


def _node(topology: NumaTopology, gpu: int) -> frozenset[int]:
    return topology.allowed_on(topology.gpu_nodes[gpu])


def _socket(topology: NumaTopology, gpu: int) -> frozenset[int]:
    sockets = {node: topology.sockets[min(cpus)] for node in topology.node_cpus if (cpus := topology.allowed_on(node))}
    mine = sockets.get(topology.gpu_nodes[gpu])
    return frozenset().union(*(topology.allowed_on(node) for node, socket in sockets.items() if socket == mine))


def _exclusive(topology: NumaTopology, gpu: int) -> frozenset[int]:
    """An equal run of physical cores for each GPU. If the cores do not divide evenly, the first GPUs of the node get one more."""
    place, sharing = _place_on_node(topology, gpu)
    cores = _grouped(_node(topology, gpu), lambda cpu: min(topology.cores[cpu]))
    each, left_over = divmod(len(cores), sharing)
    if each < 1:
        raise _too_few(
            f"{len(cores)} cores for the {sharing} GPUs of NUMA node {topology.gpu_nodes[gpu]}", "exclusive", 0
        )
    start = place * each + min(place, left_over)
    names = sorted(cores)[start : start + each + (1 if place < left_over else 0)]
    return frozenset().union(*(cores[name] for name in names))


def _core_complex(topology: NumaTopology, gpu: int) -> frozenset[int]:
    """One last-level cache for each GPU, the largest first. If there are fewer caches than GPUs, GPUs share the caches in turn."""
    place, _ = _place_on_node(topology, gpu)
    complexes = _grouped(_node(topology, gpu), lambda cpu: min(topology.caches[cpu]))
    if not complexes:
        return frozenset()
    largest_first = sorted(complexes.items(), key=lambda item: (-len(item[1]), item[0]))
    return largest_first[place % len(largest_first)][1]


_MODES: dict[str, Callable[[NumaTopology, int], frozenset[int]]] = {
    "node": _node,
    "socket": _socket,
    "exclusive": _exclusive,
    "core-complex": _core_complex,
}


def _place_on_node(topology: NumaTopology, gpu: int) -> tuple[int, int]:
    """The GPU's index among the GPUs of its node, and the number of these GPUs."""
    neighbours = [other for other, node in enumerate(topology.gpu_nodes) if node == topology.gpu_nodes[gpu]]
    return neighbours.index(gpu), len(neighbours)


def _grouped(cpus: Iterable[int], name: Callable[[int], int]) -> dict[int, frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for cpu in cpus:
        groups.setdefault(name(cpu), set()).add(cpu)
    return {key: frozenset(members) for key, members in groups.items()}


def _node_of(gpu: Gpu, sys_path: Path) -> int:
    # A machine with one node writes -1. That node is 0.
    return max(int(_text(sys_path / f"bus/pci/devices/{gpu.pci_address}/numa_node") or 0), 0)


def _last_cache(directory: Path) -> frozenset[int]:
    level, cpus = -1, frozenset[int]()
    for index in directory.glob("index[0-9]*"):
        found = int(_text(index / "level") or -1)
        if _text(index / "type") in _DATA_CACHES and found > level:
            level, cpus = found, parse_cpu_list(_text(index / "shared_cpu_list"))
    return cpus


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
