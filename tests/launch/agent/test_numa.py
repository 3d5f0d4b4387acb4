"""`--numa-binding` on made-up machines, against torch's own functions where they can be asked."""

import itertools
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.launch.agent.numa import NumaTopology, bindings, cpus_by_local_rank, parse_cpu_list, read_topology
from paceline.probes.gpus import Gpu

MODES = ("node", "socket", "exclusive", "core-complex")


def machine(
    *,
    sockets: int,
    nodes_per_socket: int,
    cores_per_node: int,
    cores_per_cache: int,
    gpu_nodes: tuple[int, ...],
    threads: int = 2,
    without: frozenset[int] = frozenset(),
) -> NumaTopology:
    """CPUs numbered as Linux does: every core's first thread, then every core's second one."""
    core_count = sockets * nodes_per_socket * cores_per_node
    cpus = range(core_count * threads)

    def same(size: int, cpu: int) -> frozenset[int]:
        group = cpu % core_count // size
        return frozenset(
            core + thread * core_count for core in range(group * size, (group + 1) * size) for thread in range(threads)
        )

    return NumaTopology(
        node_cpus={node: same(cores_per_node, node * cores_per_node) for node in range(sockets * nodes_per_socket)},
        gpu_nodes=gpu_nodes,
        allowed=frozenset(cpus) - without,
        sockets={cpu: cpu % core_count // (cores_per_node * nodes_per_socket) for cpu in cpus},
        cores={cpu: same(1, cpu) for cpu in cpus},
        caches={cpu: same(cores_per_cache, cpu) for cpu in cpus},
    )


def write_sys(root: Path, topology: NumaTopology) -> list[Gpu]:
    """The same machine as files of /sys; returns its GPUs."""

    def put(path: str, text: object) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")

    def listed(cpus: frozenset[int]) -> str:
        return ",".join(str(cpu) for cpu in sorted(cpus))

    put("devices/system/node/possible", ",".join(str(node) for node in topology.node_cpus))
    for node, cpus in topology.node_cpus.items():
        put(f"devices/system/node/node{node}/cpulist", listed(cpus))
    for cpu in topology.sockets:
        put(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", topology.sockets[cpu])
        put(f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", listed(topology.cores[cpu]))
        for index, (level, kind, shared) in enumerate(
            (
                (1, "Data", topology.cores[cpu]),
                (1, "Instruction", topology.cores[cpu]),
                (3, "Unified", topology.caches[cpu]),
            )
        ):
            put(f"devices/system/cpu/cpu{cpu}/cache/index{index}/level", level)
            put(f"devices/system/cpu/cpu{cpu}/cache/index{index}/type", kind)
            put(f"devices/system/cpu/cpu{cpu}/cache/index{index}/shared_cpu_list", listed(shared))
    gpus = []
    for index, node in enumerate(topology.gpu_nodes):
        address = f"0000:{index + 16:02x}:00.0"
        put(f"bus/pci/devices/{address}/numa_node", node)
        gpus.append(Gpu(index=index, uuid=f"GPU-{index}", pci_address=address))
    return gpus


TWO_SOCKETS = machine(sockets=2, nodes_per_socket=2, cores_per_node=8, cores_per_cache=4, gpu_nodes=(0, 0, 1, 3, 3, 3))
ONE_NODE = machine(sockets=1, nodes_per_socket=1, cores_per_node=16, cores_per_cache=8, gpu_nodes=(0, 0), threads=1)
RESTRICTED = machine(
    sockets=2,
    nodes_per_socket=1,
    cores_per_node=8,
    cores_per_cache=4,
    gpu_nodes=(0, 1, 1),
    without=frozenset({0, 1, 9, 16, 30}),
)


def test_node_gives_every_cpu_of_the_gpus_node():
    found = cpus_by_local_rank(TWO_SOCKETS, "node", 6)
    assert found[0] == found[1] == frozenset({*range(8), *range(32, 40)})
    assert found[2] == frozenset({*range(8, 16), *range(40, 48)})


def test_socket_gives_every_node_of_the_gpus_socket():
    found = cpus_by_local_rank(TWO_SOCKETS, "socket", 6)
    assert found[0] == found[2] == frozenset({*range(16), *range(32, 48)})
    assert found[3] == frozenset({*range(16, 32), *range(48, 64)})


def test_exclusive_divides_cores_and_gives_the_first_gpus_one_more():
    found = cpus_by_local_rank(TWO_SOCKETS, "exclusive", 6)
    assert found[0] == frozenset({0, 1, 2, 3, 32, 33, 34, 35})
    assert [len(cpus) for cpus in found] == [8, 8, 16, 6, 6, 4]
    assert all(not one & other for one, other in itertools.combinations(found, 2))


def test_core_complex_gives_one_cache_each_in_turn():
    found = cpus_by_local_rank(TWO_SOCKETS, "core-complex", 6)
    assert found[0] == frozenset({0, 1, 2, 3, 32, 33, 34, 35})
    assert found[1] == frozenset({4, 5, 6, 7, 36, 37, 38, 39})
    assert found[3] == found[5] != found[4]


@pytest.mark.parametrize("mode", MODES)
def test_only_cpus_that_may_be_used_are_given(mode):
    for cpus in cpus_by_local_rank(RESTRICTED, mode, 3):
        assert cpus
        assert cpus <= RESTRICTED.allowed


@pytest.mark.parametrize("topology", [TWO_SOCKETS, ONE_NODE, RESTRICTED], ids=["two sockets", "one node", "restricted"])
@pytest.mark.parametrize("mode", MODES)
def test_the_files_of_sys_lead_to_the_same_binding(tmp_path, topology, mode):
    gpus = write_sys(tmp_path, topology)
    read = read_topology(gpus, sys_path=tmp_path, allowed=topology.allowed)
    assert cpus_by_local_rank(read, mode, len(gpus)) == cpus_by_local_rank(topology, mode, len(gpus))


@pytest.mark.parametrize("topology", [TWO_SOCKETS, ONE_NODE, RESTRICTED], ids=["two sockets", "one node", "restricted"])
@pytest.mark.parametrize("mode", MODES)
def test_torch_gives_the_same_cpus(topology, mode, monkeypatch):
    binding = pytest.importorskip("torch.numa.binding")
    # torch reads /sys and CUDA in these functions alone; the made-up machine stands in for both.
    lookups = {
        "_get_gpu_count": lambda: len(topology.gpu_nodes),
        "_get_numa_node_index_for_gpu_index": lambda *, gpu_index: topology.gpu_nodes[gpu_index],
        "_get_cpu_indices_for_numa_node_MAYBE_NOT_ALLOWED": lambda *, numa_node_index: set(
            topology.node_cpus[numa_node_index]
        ),
        "_get_allowed_cpu_indices_for_current_thread": lambda: set(topology.allowed),
        "_get_systemwide_numa_node_indices": lambda: set(topology.node_cpus),
        "_get_socket_index_for_cpu": lambda *, cpu_index: topology.sockets[cpu_index],
        "_get_logical_cpu_indices_sharing_same_physical_core_as": lambda *, logical_cpu_index: set(
            topology.cores[logical_cpu_index]
        ),
        "_get_logical_cpus_sharing_same_max_level_cache_as": lambda *, logical_cpu_index: set(
            topology.caches[logical_cpu_index]
        ),
    }
    for name, lookup in lookups.items():
        monkeypatch.setattr(binding, name, lookup)
    options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    theirs = [
        binding._get_logical_cpus_to_bind_to(gpu_index=gpu, numa_options=options)
        for gpu in range(len(topology.gpu_nodes))
    ]
    assert [set(cpus) for cpus in cpus_by_local_rank(topology, mode, len(topology.gpu_nodes))] == theirs


def test_more_ranks_than_gpus_or_cores_are_refused():
    with pytest.raises(UsageError) as refused:
        cpus_by_local_rank(ONE_NODE, "node", 3)
    assert (refused.value.code, refused.value.next) == ("U11", "paceline run --nproc-per-node 2 ...")
    crowded = machine(sockets=1, nodes_per_socket=1, cores_per_node=2, cores_per_cache=2, gpu_nodes=(0, 0, 0))
    with pytest.raises(UsageError) as refused:
        cpus_by_local_rank(crowded, "exclusive", 3)
    assert "2 cores for the 3 GPUs" in refused.value.saw
    nowhere = machine(
        sockets=2,
        nodes_per_socket=1,
        cores_per_node=2,
        cores_per_cache=2,
        gpu_nodes=(1,),
        without=frozenset({2, 3, 6, 7}),
    )
    for mode in MODES:
        with pytest.raises(UsageError):
            cpus_by_local_rank(nowhere, mode, 1)


def test_hidden_gpus_are_refused():
    with pytest.raises(UsageError) as refused:
        bindings("node", 1, {"CUDA_VISIBLE_DEVICES": ""})
    assert refused.value.code == "U11"


def test_a_machine_with_one_node_may_write_minus_one(tmp_path):
    (gpu,) = write_sys(
        tmp_path, machine(sockets=1, nodes_per_socket=1, cores_per_node=4, cores_per_cache=4, gpu_nodes=(-1,))
    )
    assert read_topology([gpu], sys_path=tmp_path, allowed=range(8)).gpu_nodes == (0,)


def test_lists_of_cpus_are_read_as_sys_writes_them():
    assert parse_cpu_list("0-2,4\n") == {0, 1, 2, 4}
    assert parse_cpu_list("\n") == frozenset()
