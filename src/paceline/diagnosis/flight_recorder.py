"""The answer of torch's flight recorder as facts: a rank's progress in each process group, and its newest collectives. Pure.

The recorder sees every collective of torch's own process groups, also those that C++ issues (DDP's buckets), but neither reduce
operation, root nor call site. It sees a bare ProcessGroupGloo too, such as comm makes for its own use, but all of them under the
empty name: which ranks of the job share one cannot be told, so they are left out here. What they carry is in the ring's exchanges.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.diagnosis.case import GroupCounters


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One collective in a rank's flight recorder."""

    group: str
    """Name of the group."""
    index: int
    """Torch's count in this group, from 1."""
    operation: str
    """Name of the operation, without the backend's name before it."""
    dtype: str | None = None
    """Data type of the first input as the recorder spells it ("Float"); None: it has no input."""
    shape: tuple[int, ...] | None = None
    """Shape of the first input."""
    created_ns: int | None = None
    """When the collective was issued, Unix time."""
    retired: bool = False
    """The collective is over."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's flight recorder."""

    groups: tuple[GroupCounters, ...] = ()
    """Counters of each group."""
    entries: tuple[TraceEntry, ...] = ()
    """Collectives, oldest first, without sends and receives."""


def parse_trace(answer: bytes) -> Trace:
    """The answer of `_dump_fr_trace_json`. Missing keys are unknown. Any other text is an empty trace."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return Trace()
    if not isinstance(document, dict):
        return Trace()
    listed = document.get("entries")
    every = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    entries = [entry for entry in every if not _is_nameless(entry)]
    nameless = {_number(entry, "pg_id") for entry in every if _is_nameless(entry)}
    names = _names(entries)
    # A second init_process_group reuses the names of the first; the newer group counts.
    newest = {name: number for number, name in names.items()}
    kept = [entry for entry in entries if newest.get(names.get(_number(entry, "pg_id"), "")) == _number(entry, "pg_id")]
    return Trace(
        groups=_counters(document, names, newest, kept, nameless),
        entries=tuple(found for e in kept if (found := _entry(e)) is not None),
    )


def _names(entries: list[dict[str, Any]]) -> dict[int | None, str]:
    """torch's number of a group -> its name, in the order in which the groups were made."""
    names = {_number(entry, "pg_id"): name for entry in entries if (name := _group_name(entry)) is not None}
    return dict(sorted(names.items(), key=lambda item: -1 if item[0] is None else item[0]))


def _counters(
    document: Mapping[str, Any],
    names: Mapping[int | None, str],
    newest: Mapping[str, int | None],
    entries: Iterable[Mapping[str, Any]],
    nameless: Collection[int | None],
) -> tuple[GroupCounters, ...]:
    status = document.get("pg_status")
    numbers = _gloos_numbers(entries)
    found = []
    for key, counters in status.items() if isinstance(status, dict) else ():
        number = int(key) if key.isdigit() else None
        name = names.get(number, key)
        if not isinstance(counters, dict) or newest.get(name, number) != number:
            continue
        # If some groups have no name, a group whose entries are gone may be another unnamed one.
        if number in nameless or (nameless and number not in names):
            continue
        enqueued = _number(counters, "last_enqueued_collective")
        completed = _number(counters, "last_completed_collective")
        if enqueued is None or completed is None:
            continue
        enqueued, completed = (_collectives_of(count, numbers.get(name, ())) for count in (enqueued, completed))
        # -1 is torch's word for "none yet".
        found.append(
            GroupCounters(
                name=name, enqueued=max(0, enqueued), completed=max(0, completed), ranks=_ranks(document, name)
            )
        )
    return tuple(found)


def _gloos_numbers(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """Group of gloo -> for every collective its number among all operations and its number among collectives."""
    numbers: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        group, operation, index = _group_name(entry), _number(entry, "op_id"), _number(entry, "collective_seq_id")
        is_gloo = str(entry.get("profiling_name")).startswith("gloo:") and not entry.get("is_p2p")
        if group is not None and operation is not None and index is not None and is_gloo:
            numbers.setdefault(group, []).append((operation, index))
    return numbers


def _collectives_of(count: int, numbers: Sequence[tuple[int, int]]) -> int:
    """gloo's counters without sends and receives, as far as the entries show. gloo counts these too, but they differ from rank to rank."""
    if not numbers or numbers[-1][0] == numbers[-1][1]:
        return count
    return next((index for operation, index in reversed(numbers) if operation <= count), numbers[0][1] - 1)


def _entry(entry: Mapping[str, Any]) -> TraceEntry | None:
    group, index = _group_name(entry), _number(entry, "collective_seq_id")
    if group is None or index is None or entry.get("is_p2p"):
        return None
    operation = entry.get("profiling_name")
    dtypes, sizes = entry.get("input_dtypes"), entry.get("input_sizes")
    shape = sizes[0] if isinstance(sizes, list) and sizes and isinstance(sizes[0], list) else None
    return TraceEntry(
        group=group,
        index=index,
        operation=operation.rpartition(":")[2].lstrip("_") if isinstance(operation, str) else "unknown",
        dtype=str(dtypes[0]) if isinstance(dtypes, list) and dtypes else None,
        shape=tuple(shape) if shape is not None and all(isinstance(size, int) for size in shape) else None,
        created_ns=_number(entry, "time_created_ns"),
        retired=entry.get("retired") is True,
    )


def _group_name(entry: Mapping[str, Any]) -> str | None:
    group = entry.get("process_group")
    return str(group[0]) if isinstance(group, list) and group else None


def _is_nameless(entry: Mapping[str, Any]) -> bool:
    group = entry.get("process_group")
    return isinstance(group, list) and bool(group) and not any(group)


def _ranks(document: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    configuration = document.get("pg_config")
    group = configuration.get(name) if isinstance(configuration, dict) else None
    try:
        ranks = json.loads(group["ranks"]) if isinstance(group, dict) else None
    except (ValueError, TypeError, KeyError):
        return None
    return tuple(ranks) if isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks) else None


def _number(document: Mapping[str, Any], name: str) -> int | None:
    """A number. torch writes some numbers in quotes."""
    try:
        return int(document[name])
    except (KeyError, TypeError, ValueError):
        return None
