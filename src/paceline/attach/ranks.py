"""Which processes are ranks of training jobs, and what each says about itself. Pure.

A rank is a process that has torch in its memory, or is a Python at its start, and that knows its number: by the variables that it was
started with (torchrun, accelerate, deepspeed, Slurm, MPI, Kubernetes), by those that it has set itself (a script, a notebook, Ray), or by
the function that torch.multiprocessing.spawn runs in it. What is below a rank with the same number (a DataLoader worker) is none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paceline.attach.launchers import SPAWN, is_fork_server, is_helper, is_never_a_rank, is_spawned
from paceline.attach.process_rows import ENDED, ProcessRow
from paceline.attach.rank_numbers import RankNumbers, master_of, number, numbers_in

_MOST_ABOVE = 64
Rows = Mapping[int, ProcessRow]
Identity = tuple[int, int | None, int | None, str]
"""Rank, world size, port and run: the same in a rank and in what has inherited its variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRank:
    """One rank."""

    rank: int
    """Its global number."""
    pid: int
    """Its process."""
    start_ticks: int
    """When it started, in clock ticks since boot."""
    world_size: int | None
    """Ranks of its job; None: not known."""
    local_rank: int | None
    """Its number on its host; None: not known."""
    local_size: int | None
    """Ranks that its launcher started on its host; None: not known."""
    master: str | None
    """host:port of the store; None: not known."""
    source: str
    """What its number is from."""
    environment: Mapping[str, str] = field(repr=False)
    """Its variables now, or, where those may not be read, at its start; of all only those that `rank_numbers.allowed` keeps."""
    user: int
    """Its uid."""


def ranks_in(rows: Rows) -> list[FoundRank]:
    """The ranks among these processes."""
    claims = {pid: claim for pid, row in rows.items() if (claim := _claim(row)) is not None}
    higher = {pid: [one for one in above(pid, rows) if one in claims] for pid in claims}
    helpers, wrappers = set[int](), set[int]()
    for pid, others in higher.items():
        for one in others:
            if claims[pid].source == SPAWN or not _is_inherited(rows[pid], rows[one]):
                continue
            # `conda run python train.py` is a Python with its rank's variables, and torch is in the rank only.
            if rows[pid].has_torch and not rows[one].has_torch:
                wrappers.add(one)
            else:
                helpers.add(pid)
    ranks = claims.keys() - helpers - wrappers - {pid for pid in claims if _is_beside_ranks(pid, rows)}
    starters = {one for pid in ranks for one in higher[pid] if one in ranks and _is_starter(one, pid, claims, rows)}
    return [claims[pid] for pid in sorted(ranks - starters)]


def numberless(rows: Rows) -> Iterator[int]:
    """Children of multiprocessing with torch that have set no number themselves. Below a rank that a launcher started they are helpers."""
    for pid, row in rows.items():
        if not row.has_torch or not is_spawned(row.command) or row.state in ENDED:
            continue
        higher = [rows[one] for one in above(pid, rows)]
        # A fork of a child has the child's command line and, as its callers, the child's functions.
        if any(is_spawned(one.command) or _is_started_as_rank(one, rows) for one in higher):
            continue
        if not _has_set_number(row):
            yield pid


def above(pid: int, rows: Rows) -> list[int]:
    """The processes above one, the nearest first."""
    found: list[int] = []
    parent = rows[pid].parent
    # Rows are read one after the other, and a pid may be used again meanwhile: parents could form a circle.
    while parent in rows and parent not in (pid, *found) and len(found) < _MOST_ABOVE:
        found.append(parent)
        parent = rows[parent].parent
    return found


def _claim(row: ProcessRow) -> FoundRank | None:
    """The rank that a process is, by what it says itself; None: it is none."""
    if row.state in ENDED or not (row.has_torch or row.is_python):
        return None
    if is_never_a_rank(row.command) or is_helper(row.command):
        return None
    started, now = numbers_in(row.started or {}), numbers_in(row.now or {})
    master = master_of(row.environment)
    if now is not None and _has_set_number(row):
        numbers, source = now, "its environment now"
    elif row.spawn_index is not None:
        size = None if started is not None else number(row.environment.get("WORLD_SIZE"))
        size = size if size is not None and size > row.spawn_index else None
        numbers, source = RankNumbers(rank=row.spawn_index, world_size=size), SPAWN
    elif started is not None and not is_fork_server(row.command):
        numbers, source = started, "its environment at its start"
    else:
        return None
    # Without torch it may be at its imports, or a Python that has nothing to do with torch. Where nobody could look, it may have torch.
    if not row.has_torch and not row.refused and (numbers.world_size is None or master is None):
        return None
    if numbers.variable != "RANK":
        source = f"{numbers.variable} in {source}"
    return FoundRank(
        rank=numbers.rank,
        pid=row.pid,
        start_ticks=row.start_ticks,
        world_size=numbers.world_size,
        local_rank=numbers.local_rank,
        local_size=numbers.local_size,
        master=master,
        source=source,
        environment=row.environment,
        user=row.user,
    )


def _identity(environment: Mapping[str, str] | None) -> Identity | None:
    found = numbers_in(environment or {})
    if found is None or environment is None:
        return None
    return found.rank, found.world_size, found.port, environment.get("TORCHELASTIC_RUN_ID", "")


def _has_set_number(row: ProcessRow) -> bool:
    """Whether a process has another number now than the one that it was started with."""
    now, started = _identity(row.now), _identity(row.started)
    return now is not None and (started is None or now[:2] != started[:2])


def _is_inherited(row: ProcessRow, higher: ProcessRow) -> bool:
    """Whether the number of a process is that of one above it, as that was when the lower one was started."""
    own = _identity(row.environment)
    if own is None:
        return False
    # A rank may set the address of its store after it has started a helper.
    return any(
        theirs is not None
        and own[:2] == theirs[:2]
        and (own[2] == theirs[2] or None in (own[2], theirs[2]))
        and own[3] == theirs[3]
        for theirs in (_identity(higher.now), _identity(higher.started))
    )


def _is_beside_ranks(pid: int, rows: Rows) -> bool:
    """Whether a process has the number of a launcher above it: that of its pod, in what the launcher started beside its ranks."""
    own = _identity(rows[pid].environment)
    if own is None or _is_started_as_rank(rows[pid], rows):
        return False
    return any(own == _identity(rows[one].started) for one in above(pid, rows) if is_never_a_rank(rows[one].command))


def _is_started_as_rank(row: ProcessRow, rows: Rows) -> bool:
    """Whether a launcher made this very process a rank; a pod's or a step's variables are those of everything in it."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    started, parent = row.started or {}, rows.get(row.parent)
    inherited = (parent.started if parent is not None else None) or {}
    return all(name in started for name in names) and any(started[name] != inherited.get(name) for name in names)


def _is_starter(pid: int, lower: int, claims: Mapping[int, FoundRank], rows: Rows) -> bool:
    """Whether a process with a number started the ranks of a job, and is none: its number is that of its pod or step."""
    if _is_started_as_rank(rows[pid], rows) or claims[pid].world_size == claims[lower].world_size is not None:
        return False
    if claims[lower].source == SPAWN or not rows[pid].has_torch:
        return True
    between = above(lower, rows)
    return not any(is_never_a_rank(rows[one].command) for one in between[: between.index(pid)])
