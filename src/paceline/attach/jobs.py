"""Finds the training jobs that run on this host, whoever started them. Reads /proc and memory; nothing is sent to a process.

`find_jobs` reads, in three stages, the later ones only of processes that may be ranks. `jobs_in` decides, from rows.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.attach.launchers import FORK, SPAWN, is_fork_server, is_never_a_rank, is_spawned, launcher_of, program_of
from paceline.attach.process_rows import (
    ProcessRow,
    Read,
    read_at_most,
    read_environment_now,
    read_rows,
    spawn_indices,
    with_memory,
)
from paceline.attach.rank_numbers import MOST_LOCAL, number, numbers_in
from paceline.attach.ranks import FoundRank, Rows, above, numberless, ranks_in
from paceline.probes.host_counters import TICKS_PER_SECOND

__all__ = ["FoundJob", "FoundJobs", "FoundRank", "find_jobs", "jobs_in"]

_MOST_ASKED = 64
_SPAWN_SECONDS = 3.0
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """One job, as far as it is on this host."""

    name: str
    """Base name of its script, or its module."""
    launcher: str
    """What started it, such as torchrun, Slurm or torch.multiprocessing.spawn; empty: not known."""
    launcher_pid: int | None
    """The process of the launcher; None: it is not above the ranks, or not on this host."""
    ranks: Mapping[int, FoundRank]
    """Rank -> its process, in order."""
    world_size: int | None
    """Ranks of the job on all hosts; None: not known."""
    expected_here: int | None
    """Ranks that were started on this host; None: not known."""
    missing_here: tuple[int, ...] = ()
    """Ranks that belong on this host and have no process."""
    doubles: tuple[int, ...] = ()
    """Processes with the number of one of the ranks, which were left out."""
    zombies: tuple[int, ...] = ()
    """Processes beside the ranks that have ended, and that their parent has not waited for."""
    notes: tuple[str, ...] = ()
    """What could not be found out."""


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The jobs of a host."""

    jobs: tuple[FoundJob, ...]
    """The one with most ranks here first."""
    notes: tuple[str, ...] = ()
    """What could not be looked at."""


def find_jobs(
    only: Collection[int] = (),
    *,
    everybody: bool = False,
    read: Read = read_at_most,
    environment_of: Callable[[int], Mapping[str, str]] = read_environment_now,
) -> FoundJobs:
    """The jobs of this user on this host; root, too, finds its own unless it asks for `everybody`.

    `only`: the jobs of these processes, whoever's: a rank, something below a rank, its launcher, or anything above that.
    `read`, `environment_of`: read what may block for ever: /proc/PID/environ, cmdline and maps, and memory.

    Raises:  OSError: there is no /proc
    """
    rows = read_rows(None if everybody or only else {os.getuid()}, read)
    for pid in _to_look_into(rows):
        rows[pid] = with_memory(rows[pid], read, environment_of)
    unanswered = _ask_spawned(rows, set(only))
    jobs = jobs_in(rows)
    if only:
        jobs = [job for job in jobs if _concerns(job, set(only), rows)]
    return FoundJobs(tuple(jobs), tuple(_host_notes(rows, unanswered)))


def jobs_in(rows: Rows) -> list[FoundJob]:
    """The jobs of which these processes are ranks, the one with most ranks first. Pure.

    Holds:   ranks of two users, or of two network namespaces, are never of one job
    """
    jobs: dict[tuple[object, ...], list[FoundRank]] = {}
    for found in ranks_in(rows):
        jobs.setdefault(_key(found, rows[found.pid]), []).append(found)
    made = (_job(members, rows) for members in jobs.values())
    return sorted(made, key=lambda job: (-len(job.ranks), min(found.pid for found in job.ranks.values())))


def _to_look_into(rows: Rows) -> list[int]:
    """The processes whose memory says whether torch is there: Pythons, and others that have the number of a rank."""
    return [
        pid
        for pid, row in rows.items()
        if row.started is not None and not is_never_a_rank(row.command) and (row.is_python or numbers_in(row.started))
    ]


def _ask_spawned(rows: dict[int, ProcessRow], only: set[int]) -> int:
    """Sets `spawn_index` where nothing else tells a number, at or near these processes. How many of them gave no answer.

    Most have no number by that function either: of each parent the first is asked, and the others only if that one has.
    """
    of_parents: dict[int, list[int]] = {}
    near = {one for pid in only & rows.keys() for one in (pid, *above(pid, rows))}
    asked = (pid for pid in numberless(rows) if not only or rows[pid].parent in near or only & set(above(pid, rows)))
    for pid in sorted(asked, key=lambda pid: (rows[pid].start_ticks, pid)):
        of_parents.setdefault(rows[pid].parent, []).append(pid)
    firsts = [pids[0] for pids in of_parents.values()][:_MOST_ASKED]
    answers = spawn_indices(firsts, _SPAWN_SECONDS)
    others = [pid for first in firsts if answers.get(first) is not None for pid in of_parents[rows[first].parent][1:]]
    answers |= spawn_indices(others[:_MOST_ASKED], _SPAWN_SECONDS)
    for pid, index in answers.items():
        rows[pid] = replace(rows[pid], spawn_index=index)
    return len(firsts) + len(others) - len(answers)


def _key(found: FoundRank, row: ProcessRow) -> tuple[object, ...]:
    """The same for the ranks of one job."""
    environment, own = found.environment, (found.rank, found.world_size)
    started = row.started or {}
    given = numbers_in(started)
    if "TORCHELASTIC_RUN_ID" in started and given is not None and given.rank == found.rank:
        # What one of its ranks has set itself, wrong or right, does not part it from the others.
        return (found.user, row.network, given.world_size, "store", str(given.port), started["TORCHELASTIC_RUN_ID"])
    step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    of_mpi = environment.get("OMPI_MCA_ess_base_jobid") or environment.get("PMIX_NAMESPACE")
    where: tuple[object, ...]
    # Of tasks that are ranks, some may have set the address of the store while others are still at their imports.
    if all(step) and own == tuple(number(environment.get(name)) for name in ("SLURM_PROCID", "SLURM_NTASKS")):
        where = ("Slurm", *step)
    elif of_mpi and own == tuple(number(environment.get(f"OMPI_COMM_WORLD_{name}")) for name in ("RANK", "SIZE")):
        where = ("MPI", of_mpi)
    elif found.master is not None:
        where = ("store", found.master.rpartition(":")[2], environment.get("TORCHELASTIC_RUN_ID"))
    else:
        where = ("parent", row.parent)
    return (found.user, row.network, found.world_size, *where)


def _job(members: Sequence[FoundRank], rows: Rows) -> FoundJob:
    ranks, notes = _one_each(members, rows)
    first = next(iter(ranks.values()))
    launcher, launcher_pid = _launcher(ranks, rows)
    # The first process of a host is the parent of all that have lost theirs.
    parents = {rows[found.pid].parent for found in ranks.values()} - {0, 1} | {launcher_pid}
    beside = [row for row in rows.values() if row.parent in parents]
    zombies = tuple(sorted(row.pid for row in beside if row.state == "Z"))
    size = first.world_size
    if size is None and all(found.source == SPAWN for found in ranks.values()):
        size = max(ranks) + 1
        here: set[int] | None = set(range(size))
    else:
        here = _numbers_here(ranks.values())
    if size is None:
        notes.append("the world size is not known")
    expected = len(here) if here is not None else max(found.local_size or 0 for found in ranks.values()) or None
    if here is None and expected is not None and len(ranks) < expected:
        notes.append(f"of {expected} ranks here {expected - len(ranks)} have no process; which ones is not known")
    if refused := [row.pid for row in beside if row.refused and row.pid not in {found.pid for found in members}]:
        notes.append(f"what is beside the ranks could not be read: {_pids(refused)}")
    if refused := [found.pid for found in ranks.values() if rows[found.pid].refused]:
        notes.append(f"what a rank has set itself could not be read: {_pids(refused)}")
    return FoundJob(
        name=_name(rows[first.pid], launcher_pid, rows),
        launcher=launcher,
        launcher_pid=launcher_pid,
        ranks=ranks,
        world_size=size,
        expected_here=expected,
        missing_here=tuple(sorted((here or set()) - ranks.keys())),
        doubles=tuple(sorted({found.pid for found in members} - {found.pid for found in ranks.values()})),
        zombies=zombies,
        notes=tuple(notes),
    )


def _one_each(members: Sequence[FoundRank], rows: Rows) -> tuple[dict[int, FoundRank], list[str]]:
    """One process for each number: with torch, beside most of the others, the newest; and notes about those left out.

    What is left of a job that was killed is none of these.
    """
    parents = Counter(rows[found.pid].parent for found in members)

    def fits(found: FoundRank) -> tuple[bool, int, int]:
        return rows[found.pid].has_torch, parents[rows[found.pid].parent], found.start_ticks

    chosen: dict[int, FoundRank] = {}
    notes = []
    for found in sorted(members, key=lambda one: (one.rank, *fits(one))):
        if (other := chosen.get(found.rank)) is not None and rows[other.pid].has_torch:
            seconds = abs(found.start_ticks - other.start_ticks) / TICKS_PER_SECOND
            notes.append(
                f"rank {found.rank} twice: pids {other.pid} and {found.pid}, started {seconds:.0f} s apart; looked at: {found.pid}"
            )
        chosen[found.rank] = found
    return chosen, notes


def _numbers_here(ranks: Collection[FoundRank]) -> set[int] | None:
    """The ranks that were started on this host; None: not known, because a launcher may deal numbers out to hosts in turn."""
    sizes = {found.world_size for found in ranks}
    if len(sizes) == 1 and (size := sizes.pop()) is not None and size <= MOST_LOCAL:
        # The master of ranks that somebody started one by one is this host, or they could not meet.
        is_here = all((found.master or "").startswith(("localhost:", "127.")) for found in ranks)
        if any(found.local_size == size for found in ranks) or (
            is_here and not any(found.local_size for found in ranks)
        ):
            return set(range(size))
    here: set[int] = set()
    blocks = set()
    for found in ranks:
        if found.local_rank is None or found.local_size is None or "LOCAL_RANK" not in found.environment:
            return None
        blocks.add((found.rank - found.local_rank, found.local_size))
    for begin, count in blocks:
        block = set(range(begin, begin + count))
        if begin < 0 or here & block:
            return None
        here |= block
    return here


def _launcher(ranks: Mapping[int, FoundRank], rows: Rows) -> tuple[str, int | None]:
    """The word for what started the ranks, and its process: the nearest launcher that is above all of them, else that of the first rank."""
    chains = [dict(_launchers_above(found.pid, rows)) for found in ranks.values()]
    shared = [pid for pid in chains[0] if all(pid in chain for chain in chains)]
    pid = next(iter(shared or chains[0]), None)
    if pid is not None:
        return chains[0][pid], pid
    first = next(iter(ranks.values()))
    # It is gone, or outside of this container.
    for word, name in (
        ("paceline", "PACELINE_RUN_ID"),
        ("torchrun", "TORCHELASTIC_RUN_ID"),
        ("MPI", "OMPI_COMM_WORLD_RANK"),
        ("MPI", "PMI_RANK"),
        ("Slurm", "SLURM_STEP_ID"),
    ):
        if name in first.environment:
            return word, None
    return launcher_of(rows[first.pid].command), None


def _launchers_above(pid: int, rows: Rows) -> Iterator[tuple[int, str]]:
    lower = rows[pid]
    for one in above(pid, rows):
        row = rows[one]
        if word := launcher_of(row.command):
            yield one, word
        elif is_spawned(lower.command) and not is_spawned(row.command):
            yield one, SPAWN
        elif row.is_python and lower.command == row.command:
            yield one, FORK
        lower = row


def _name(row: ProcessRow, launcher_pid: int | None, rows: Rows) -> str:
    """The base name of the script; of a process that multiprocessing or paceline made of another one, that one's."""
    origins = (one for one in (row.pid, *above(row.pid, rows)) if not is_spawned(rows[one].command))
    row = rows[next(origins, row.pid)]
    program = program_of(row.command)
    if is_fork_server(row.command) and launcher_pid is not None:
        scripts = [word for word in rows[launcher_pid].command if word.endswith(".py")]
        program = scripts[0] if scripts else program
    name = os.path.basename(program) or "?"
    return "python -c" if name == "-c" else name[:_LONGEST_NAME]


def _concerns(job: FoundJob, pids: set[int], rows: Rows) -> bool:
    """Whether one of these processes is a rank of the job, below one or above one."""
    ranks = {found.pid for found in job.ranks.values()} | set(job.doubles)
    related = {one for pid in ranks for one in above(pid, rows)} | ranks
    return bool(pids & related or any(ranks.intersection(above(pid, rows)) for pid in pids if pid in rows))


def _host_notes(rows: Rows, unanswered: int) -> Iterator[str]:
    for (user, refused), count in sorted(
        Counter((row.user, row.refused) for row in rows.values() if row.refused).items()
    ):
        yield f"processes of uid {user} that could not be read: {count} ({refused})"
    if unanswered:
        yield f"processes of multiprocessing whose numbers only py-spy could tell, and it gave no answer: {unanswered}"


def _pids(pids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(pids)))
