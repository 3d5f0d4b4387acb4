"""The processes below a rank: which of them to show, the role of each, and which of them to read a stack from."""

from collections.abc import Mapping

from paceline.diagnosis.snapshots import Child
from paceline.probes.other_processes import below
from paceline.probes.process_status import read_command, read_name
from paceline.probes.processes import ProcessStat
from paceline.probes.stacks import StackDump

MOST_CHILDREN, MOST_STACKS = 16, 8
LOADER, COMPILER = "loader", "compiler"
_COMPILER_NAMES = (
    "ptxas nvcc cicc fatbinary nvlink cc1 cc1plus gcc g++ c++ clang clang++ as ld ld.lld collect2 hipcc lld ninja"
)
_COMPILERS = frozenset(_COMPILER_NAMES.split())
# torch's name of its DataLoader workers since 2.6.
_LOADER_NAME = "pt_data_worker"
_LOADER_LOOP = "_worker_loop"
_STUCK = ("D", "T", "t")


def chosen_children(
    pid: int, before: Mapping[int, ProcessStat], after: Mapping[int, ProcessStat], seconds: float
) -> tuple[Child, ...]:
    """The processes below a rank that are most worth showing. Processes that stand still or use most CPU come first."""
    found = [_child(after[one], before.get(one), seconds) for one in below([pid], after) - {pid} if one in after]
    return tuple(sorted(found, key=_interest)[:MOST_CHILDREN])


def worth_a_stack(child: Child) -> bool:
    """Whether the child's Python stack may be useful: the child is a DataLoader worker, or a Python process that stands still."""
    return child.state != "Z" and (
        child.role == LOADER or (not child.role and child.name.startswith(("python", "pt_")))
    )


def with_stack(child: Child, dump: StackDump | None) -> Child:
    """The child with the activity of its main thread. If its stack is inside torch's worker loop, the child is a DataLoader worker."""
    main = dump.main if dump is not None else None
    if main is None:
        return child
    frames = main.frames
    role = LOADER if any(frame.function == _LOADER_LOOP for frame in frames) else child.role
    return Child(
        pid=child.pid, state=child.state, name=child.name, cpu_fraction=child.cpu_fraction, role=role, stack=frames
    )


def role_of(name: str, command: str) -> str:
    """The role of a process below a rank, from its name and command line.

    Holds:  role_of("pt_data_worker", "") == "loader"; role_of("ptxas", "") == "compiler"
    """
    if name.startswith(_LOADER_NAME):
        return LOADER
    if name in _COMPILERS or "_inductor/compile_worker" in command or "torch._inductor" in command or "triton" in name:
        return COMPILER
    return ""


def cpu_seconds(
    root: int, before: Mapping[int, ProcessStat], after: Mapping[int, ProcessStat]
) -> tuple[float, float] | None:
    """CPU time between two readings, of a process with its descendants, and of its descendants alone; None: the process has ended.

    Holds:   a child that ends in between adds the CPU time that it used in between, not the CPU time before
    """
    first, last = before.get(root), after.get(root)
    if first is None or last is None:
        return None
    now = sum(after[pid].cpu_seconds for pid in below([root], after) if pid in after)
    then = sum(before[pid].cpu_seconds for pid in below([root], before) if pid in before)
    own = last.own_cpu_seconds - first.own_cpu_seconds
    return max(now - then, own), max(now - then - own, 0.0)


def cpu_seconds_so_far(root: int, processes: Mapping[int, ProcessStat]) -> float | None:
    """CPU time of a process and its descendants since the process began; None: the process has ended."""
    if root not in processes:
        return None
    return sum(processes[pid].cpu_seconds for pid in below([root], processes) if pid in processes)


def _child(stat: ProcessStat, earlier: ProcessStat | None, seconds: float) -> Child:
    name = read_name(stat.pid)
    used = None if earlier is None or seconds <= 0 else (stat.own_cpu_seconds - earlier.own_cpu_seconds) / seconds
    return Child(
        pid=stat.pid,
        state=stat.state,
        name=name,
        cpu_fraction=None if used is None else round(max(used, 0.0), 3),
        role=role_of(name, read_command(stat.pid)),
    )


def _interest(child: Child) -> tuple[bool, bool, float, int]:
    return child.state not in _STUCK, not child.role, -(child.cpu_fraction or 0.0), child.pid
