"""What nccl-tests calls size, time, algbw and busbw, for any backend: definitions and the values of one measured table. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

KIB, MIB, GIB = 1024, 1024**2, 1024**3

# What the bus carries for each byte of the collective, among n ranks. Source: nccl-tests doc/PERFORMANCE.md, "Summary"; src/sendrecv.cu.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "all_to_all": lambda n: (n - 1) / n,
    "sendrecv": lambda n: 1.0,
}
# nccl-tests' own names: its programs are all_reduce_perf, alltoall_perf, ...
PROGRAMS = {name: f"{name}_perf" for name in FACTORS} | {"all_to_all": "alltoall_perf"}
# torch's own call works in place; what stands under out-of-place is a copy and that call.
IN_PLACE_IN_TORCH = frozenset({"all_reduce", "broadcast"})
# nccl-tests' names, of which torch's collectives know these. Bytes of one element.
TYPES = {"int8": 1, "uint8": 1, "int32": 4, "int64": 8, "half": 2, "float": 4, "double": 8, "bfloat16": 2}
OPERATIONS = ("sum", "prod", "max", "min", "avg")
AVERAGES = ("rank 0", "average", "minimum", "maximum")

_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One column group of a row: times of one operation. Each iteration is the mean of its ranks."""

    time: float
    """Time in us, as `-a` combines the ranks."""
    iterations: int
    """Number of iterations."""
    median_us: float
    """Median over the iterations, us."""
    mad_us: float
    """Median absolute deviation, us."""
    min_us: float
    """Shortest iteration, us."""
    max_us: float
    """Longest iteration, us."""
    nwrong: int | None = None
    """Wrong elements; None: not checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """The row of one size."""

    size_bytes: int
    """Size as nccl-tests counts it: all ranks' parts together."""
    count: int
    """Elements of the call's own argument."""
    type: str
    """Data type."""
    operation: str
    """Reduce operation."""
    root: int
    """Root rank; -1: none."""
    out_of_place: Timing
    """Times out of place."""
    in_place: Timing
    """Times in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where one rank ran."""

    rank: int
    """Global rank."""
    hostname: str
    """Name of the host in the job."""
    machine: str
    """The host's own name."""
    pid: int
    """Process id on that host."""
    device: int
    """Number of the device; -1 on CPUs."""
    device_hex: str
    """PCI address of the device."""
    device_info: str
    """Name of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchWorld:
    """What measured: the ranks and their software."""

    ranks: tuple[Rank, ...]
    """The ranks."""
    backend: str
    """Their backend."""
    device: str
    """Kind of device of the tensors."""
    torch: str
    """Version of torch."""

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rank.hostname for rank in self.ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A measurement that was left out."""

    what: str
    """Size, or type and reduction, such as "half avg"."""
    reason: str
    """Why, in the backend's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The result of one bench of one collective."""

    collective: str
    """Name of the collective."""
    world: BenchWorld
    """What measured."""
    rows: tuple[BenchRow, ...]
    """One row for each size."""
    left: tuple[Skipped, ...] = ()
    """Measurements that were left out."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The options, such as `iterations`; a row has fewer if its size took too long."""


def size_bytes(text: str) -> int | None:
    """Bytes of "8", "4K", "1.5M", "1G" (binary, as nccl-tests has them); None where it is no size.

    Holds:   "1K" -> 1024; "128MiB" == "128M"
    Source:  nccl-tests src/common.cu, parsesize
    """
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def size_text(value: int) -> str:
    """The size as the options take it: 1048576 -> "1M", 1000 -> "1000"."""
    for letter, unit in (("G", GIB), ("M", MIB), ("K", KIB)):
        if value >= unit and value % unit == 0:
            return f"{value // unit}{letter}"
    return str(value)


def sizes(first: int, last: int, *, factor: int | None = None, step: int | None = None) -> list[int]:
    """From the first to the last, each `factor` times the one before or `step` bytes more.

    Holds:   sizes(8, 32, factor=2) == [8, 16, 32]; sizes(1, 4, step=2) == [1, 3]
    """
    found, size = [], first
    while size <= last:
        found.append(size)
        size = size * factor if factor else size + (step or MIB)
    return found


def algbw(row: BenchRow, timing: Timing) -> float:
    """GB/s (10^9): bytes of the operation over its time.

    Source:  nccl-tests doc/PERFORMANCE.md, "Algorithm bandwidth"
    """
    return row.size_bytes / timing.time / 1e3 if timing.time > 0 else 0.0


def busbw(row: BenchRow, timing: Timing, collective: str, ranks: int) -> float:
    """GB/s that the slowest wire had to carry, whatever the number of ranks.

    Holds:   all_reduce among 2 ranks -> algbw; among n -> algbw * 2 (n - 1) / n
    Source:  nccl-tests doc/PERFORMANCE.md, "Bus bandwidth"
    """
    return algbw(row, timing) * FACTORS[collective](ranks)


def average_busbw(table: Table) -> float:
    """Mean over all rows and both column groups; 0.0 without rows.

    Source:  nccl-tests src/common.cu, `bw[0] / bw_count[0]`
    """
    found = [
        busbw(row, timing, table.collective, table.world.size)
        for row in table.rows
        for timing in (row.out_of_place, row.in_place)
    ]
    return fmean(found) if found else 0.0


def wrong_elements(rows: Iterable[BenchRow]) -> int:
    """Elements that were not what the collective should have given, over all rows that were checked."""
    return sum(timing.nwrong or 0 for row in rows for timing in (row.out_of_place, row.in_place))


def own_timing(row: BenchRow, collective: str) -> Timing:
    """The column group that is torch's own call and nothing else: in place for all_reduce and broadcast."""
    return row.in_place if collective in IN_PLACE_IN_TORCH else row.out_of_place


def world_of(plain: Mapping[str, Any]) -> BenchWorld:
    """The world as rank 0 wrote it.

    Raises:  KeyError, TypeError: it is none
    """
    ranks = tuple(Rank(**one) for one in plain["ranks"])
    return BenchWorld(ranks=ranks, backend=plain["backend"], device=plain["device"], torch=plain["torch"])


def row_of(plain: Mapping[str, Any]) -> BenchRow:
    """The row as rank 0 wrote it.

    Raises:  KeyError, TypeError: it is none
    """
    groups = {name: Timing(**plain[name]) for name in ("out_of_place", "in_place")}
    return BenchRow(**{**plain, **groups})
