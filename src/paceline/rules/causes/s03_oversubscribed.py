"""S03: more threads want to run on a host than it has cores."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, HostTiming, Level, StepTiming
from paceline.diagnosis.slow.slowdown import (
    cores_beside,
    cost_text,
    exchange_seconds,
    hosts_of_machine,
    is_worth,
    late_ranks,
    ranks_on,
    steady_timing,
)
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "CPU over-subscription"
PRESSURE_FRACTION = 0.30
BUSY_FRACTION = 0.85
PAGE = """\
The ranks of a host run more threads than it has cores

What it means: The number of ranks times the threads per rank exceeds the CPUs that the ranks may use. Threads of
  OpenMP, MKL or a DataLoader wait for each other's turn on a core.
Why it matters: OpenMP threads meet at a barrier at the end of each loop, so one thread without a core delays all.
  Eight threads on two cores are several times slower than two threads.
Deciding evidence: The ranks in the snapshot ask for more threads (OMP_NUM_THREADS, running threads) than the cores
  they may use. The host is busy, and the kernel's pressure shows that tasks waited for a CPU in at least 30 % of the
  time. There is no quota and no heavy program beside the job: the job's ranks use more CPU than everything else on
  the machine.
Not to be confused with: S02 (a quota: nr_throttled grows); S04 (a program outside the job uses the cores); S01 (one
  rank alone is slow).
What to do: Set OMP_NUM_THREADS to cores / ranks before the start; paceline sets it to 1 if it is not set and a host
  has several ranks. Or use fewer ranks or loader workers per host, or pin the ranks with `--numa-binding`.
  torch.set_num_threads() in the script overrides both.
How to inject it: `examples/broken/s03_oversubscribed.py`: eight threads in every rank and a few that only turn.
Source: torch, "CPU threading and TorchScript inference" and torchrun's OMP_NUM_THREADS notice; Linux,
  Documentation/accounting/psi.rst.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    missing = ""
    for host in timing.hosts:
        ranks = ranks_on(timing, host.host)
        snapshots = [case.snapshots[rank] for rank in ranks if rank in case.snapshots]
        seen = case.host_snapshots.get(host.host)
        pressure = host.pressure_cpu if host.pressure_cpu is not None else seen.pressure_cpu if seen else None
        if not ranks or _is_idle(host, pressure):
            continue
        threads = _threads(snapshots, len(ranks))
        cores = _cores(host, snapshots)
        if pressure is None or threads is None or cores is None:
            missing = f"threads, cores and pressure on {host.host} (its ranks were not inspected)"
            continue
        finding = _judge(case, timing, host, ranks, snapshots, seen, threads, cores, pressure)
        if finding is not None:
            yield finding
            return
    if missing:
        raise Unknown(missing)


def _judge(
    case: Case,
    timing: StepTiming,
    host: HostTiming,
    ranks: tuple[int, ...],
    snapshots: list[RankSnapshot],
    seen: HostSnapshot | None,
    threads: int,
    cores: int,
    pressure: float,
) -> CauseFinding | None:
    foreign = sum(cores_used for _, _, cores_used in seen.foreign) if seen and seen.foreign is not None else None
    if threads <= cores or (foreign or 0.0) >= 0.5 or (host.throttled_fraction or 0.0) >= 0.1:
        return None
    here = hosts_of_machine(case, timing, host.host)
    beside = cores_beside(timing, host, here)
    # On a crowded machine threads are ready to run in any snapshot, however few they are. The job itself must crowd the machine.
    if beside is not None and beside > sum(other.ranks_cpu or 0.0 for other in timing.hosts if other.host in here):
        return None
    late = late_ranks(timing)
    # Threads that share the cores of a host slow down all its ranks equally, so none of them is late for the others on that host.
    one_alone = late is not None and bool(set(ranks) - set(late.numbers)) and bool(set(late.numbers) & set(ranks))
    gain = (
        late.gain_seconds
        if late and set(late.numbers) & set(ranks)
        else pressure * (1 - cores / threads) * timing.step_seconds
    )
    if not is_worth(gain, timing):
        return None
    sure = foreign is not None and threads >= 1.5 * cores and (exchange_seconds(timing) or 0.0) <= gain
    switches = sum(snapshot.involuntary_switches_per_second or 0.0 for snapshot in snapshots)
    return CauseFinding(
        code="S03",
        title=TITLE,
        level=Level.SLOW,
        ranks=ranks,
        hosts=(host.host,),
        confidence=Confidence.UNCLEAR if one_alone else Confidence.HIGH if sure else Confidence.LIKELY,
        since_step=late.since_step if late else None,
        saw=(
            f"{len(ranks)} ranks on {host.host} want {threads} threads to run on {cores} cores",
            f"tasks there waited for a CPU in {pressure:.0%} of the time"
            + (f", and were taken off one {switches:.0f} times a second" if switches else ""),
            cost_text(gain, timing) + ", at most",
        ),
        ruled_out=(
            ("S04 noisy neighbour: no program outside the job uses half a core",) if foreign is not None else ()
        ),
        next=(
            f"OMP_NUM_THREADS={max(cores // len(ranks), 1)} before paceline run, and no larger torch.set_num_threads()",
            "or fewer ranks or DataLoader workers on this host",
        ),
    )


def _is_idle(host: HostTiming, pressure: float | None) -> bool:
    """Whether the machine clearly has idle cores."""
    return (pressure is not None and pressure < PRESSURE_FRACTION) or (
        host.busy_fraction is not None and host.busy_fraction < BUSY_FRACTION
    )


def _threads(snapshots: list[RankSnapshot], ranks: int) -> int | None:
    """Threads that the ranks of a host want to run. Ranks without a snapshot count like those with one."""
    wanted = [
        max(snapshot.omp_threads or 1, snapshot.thread_states.get("R", 0))
        for snapshot in snapshots
        if snapshot.omp_threads is not None or snapshot.thread_states
    ]
    return round(sum(wanted) / len(wanted) * ranks) if wanted else None


def _cores(host: HostTiming, snapshots: list[RankSnapshot]) -> int | None:
    allowed = [snapshot.affinity_cpus for snapshot in snapshots if snapshot.affinity_cpus is not None]
    return max(allowed) if allowed else host.cpu_count


RULE = Cause(code="S03", title=TITLE, page=PAGE, find=find, beats=("S01", "S14", "S16"), sure_by=(Ground.TIMES,))
