"""The answers of torch's flight recorders as facts: a rank's progress in each process group, and its newest collectives. Pure.

The recorders see every collective of torch's own process groups, also those that C++ issues (DDP's buckets), but neither reduce operation
nor root; the line that issued a call only where they are read from the rank's memory. gloo's sees a bare ProcessGroupGloo too, such as comm
makes for its own use, but all of them under the empty name: which ranks of the job share one cannot be told, so they are left out here.
What they carry is in the ring's exchanges.

Each recorder counts in its own way, and one group may be in two of them (cpu:gloo,cuda:nccl):

- gloo counts from 1, sends and receives among the collectives.
- ProcessGroupNCCL numbers its collectives from 1. Its counters are those of sends if a send came last, so its entries count.
- ProcessGroupNCCL2, and other backends of torch 2.15, count from 0 all operations of the group, with sends and those of the group's other
  backend, and show only what is not over. Without an entry the number of collectives is not known: see `GroupCounters.operations`.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from paceline.diagnosis.case import GroupCounters, Site
from paceline.diagnosis.logs.flight_recorder_dumps import is_over, unpickled
from paceline.probes.stacks import is_users_file

_GLOO, _NCCL = "gloo", "nccl"
# ProcessGroupNCCL's entry for a whole batch of calls, beside those of its calls.
_BATCH = "coalesced"
# The recorders spell data types as C++ does.
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip
_MOST_CALLERS = 4
_MESSAGE = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)\Z")


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
    recorder: str = _GLOO
    """Which recorder has it, as in `GroupCounters.recorder`. Only its own numbers may be compared with `index`."""
    site: Site | None = None
    """The user's line that issued it; None: not known."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's flight recorders."""

    groups: tuple[GroupCounters, ...] = ()
    """Counters of each group, of each recorder that has it."""
    entries: tuple[TraceEntry, ...] = ()
    """Collectives, oldest first, without sends and receives."""


def parse_traces(answers: Iterable[tuple[str, bytes]]) -> Trace:
    """The answers of one rank's recorders, each with the name of its recorder. Of two equal answers the first counts."""
    seen: dict[bytes, str] = {}
    for recorder, answer in answers:
        seen.setdefault(answer, recorder)
    return traces_of((recorder, _document(answer)) for answer, recorder in seen.items())


def parse_trace(answer: bytes, recorder: str = _GLOO) -> Trace:
    """The answer of one recorder, JSON or pickle. Missing keys are unknown. Any other text is an empty trace."""
    return _trace_of(_document(answer), recorder)


def traces_of(documents: Iterable[tuple[str, Mapping[str, Any]]]) -> Trace:
    """The documents of one rank's recorders, each with the name of its recorder."""
    found = [_trace_of(document, recorder) for recorder, document in documents]
    if len(found) == 1:
        return found[0]
    return Trace(
        groups=tuple(counters for trace in found for counters in trace.groups),
        entries=tuple(sorted((e for trace in found for e in trace.entries), key=lambda entry: entry.created_ns or 0)),
    )


def _trace_of(document: Mapping[str, Any], recorder: str) -> Trace:
    listed = document.get("entries")
    every = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    entries = [entry for entry in every if not _is_nameless(entry)]
    nameless = {_number(entry, "pg_id") for entry in every if _is_nameless(entry)}
    names = _names(entries)
    # A second init_process_group reuses the names of the first; the newer group counts.
    newest = {name: number for number, name in names.items()}
    kept = [entry for entry in entries if newest.get(names.get(_number(entry, "pg_id"), "")) == _number(entry, "pg_id")]
    groups = (
        _counters(document, names, newest, kept, nameless)
        if recorder == _GLOO
        else _counters_on_device(document, names, kept, recorder)
    )
    return Trace(groups=tuple(groups), entries=tuple(found for e in kept if (found := _entry(e, recorder)) is not None))


def _document(answer: bytes) -> Mapping[str, Any]:
    try:
        document = unpickled(answer) if answer[:1] == b"\x80" else json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


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
) -> Iterator[GroupCounters]:
    """gloo's counters."""
    status = document.get("pg_status")
    numbers = _gloos_numbers(entries)
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
        yield GroupCounters(
            name=name, enqueued=max(0, enqueued), completed=max(0, completed), ranks=_ranks(document, name)
        )


def _gloos_numbers(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """Group of gloo -> for every collective its number among all operations and its number among collectives."""
    numbers: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        group, operation, index = _group_name(entry), _number(entry, "op_id"), _number(entry, "collective_seq_id")
        if group is not None and operation is not None and index is not None and not entry.get("is_p2p"):
            numbers.setdefault(group, []).append((operation, index))
    return numbers


def _collectives_of(count: int, numbers: Sequence[tuple[int, int]]) -> int:
    """gloo's counters without sends and receives, as far as the entries show. gloo counts these too, but they differ from rank to rank."""
    if not numbers or numbers[-1][0] == numbers[-1][1]:
        return count
    return next((index for operation, index in reversed(numbers) if operation <= count), numbers[0][1] - 1)


# ------------------------------------------------------------------------------------------------------------- on a device


def _counters_on_device(
    document: Mapping[str, Any], names: Mapping[int | None, str], entries: Iterable[Mapping[str, Any]], recorder: str
) -> Iterator[GroupCounters]:
    """The counters of the other recorders: by entries where a group has some, else by its status."""
    status = document.get("pg_status")
    status = status if isinstance(status, dict) else {}
    of_groups: dict[int | None, list[Mapping[str, Any]]] = {}
    for entry in entries:
        of_groups.setdefault(_number(entry, "pg_id"), []).append(entry)
    numbers = [int(key) for key in status if str(key).isdigit()]
    for number in dict.fromkeys((*of_groups, *numbers)):
        name = names.get(number) or _name_by_order(document, number, names)
        counters = status.get(str(number), status.get(number))
        counters = counters if isinstance(counters, dict) else {}
        found = (
            None
            if name is None
            else _of_group(name, of_groups.get(number, ()), counters, recorder, _ranks(document, name))
        )
        if found is not None:
            yield found


def _name_by_order(document: Mapping[str, Any], number: int | None, names: Mapping[int | None, str]) -> str | None:
    """The name of a group without an entry: torch numbers the groups, and counts up their names, in the order in which they are made."""
    configured = document.get("pg_config")
    made = sorted(configured, key=int) if isinstance(configured, dict) and all(map(str.isdigit, configured)) else []
    known = [at for at in names if at is not None]
    fits = all(at < len(made) and made[at] == names[at] for at in known)
    return made[number] if number is not None and number < len(made) and fits else None


def _of_group(
    name: str,
    entries: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
    recorder: str,
    ranks: tuple[int, ...] | None,
) -> GroupCounters | None:
    batches = {_number(entry, "op_id") for entry in entries if entry.get("is_p2p")}
    sends = [entry for entry in entries if _is_message(entry, batches)]
    calls = [entry for entry in entries if not _is_message(entry, batches)]
    numbered = [index for entry in entries if (index := _number(entry, "collective_seq_id")) is not None]
    issued = _number(status, "last_enqueued_collective")
    over = _number(status, "last_completed_collective")
    # A batch has an entry for itself, which alone says when it is over: its sends never say it, and its collectives too early.
    pending = _not_over(calls, "collective_seq_id")
    on_the_way = [entry for entry in _not_over(sends, "p2p_seq_id") if not _is_batch(entry)]
    oldest = min(
        (index for entry in pending if (index := _number(entry, "collective_seq_id")) is not None), default=None
    )
    messages = [_message(entry, ranks) for entry in on_the_way]
    counted_alone = recorder == _NCCL
    if numbered:
        enqueued = max(numbered)
    elif issued is None:
        return None
    else:
        enqueued = max(0, issued if counted_alone else issued + 1)
    completed = enqueued if oldest is None else oldest - 1
    if counted_alone and not numbered and over is not None:
        completed = min(enqueued, max(0, over))
    at = [entry for entry in calls if oldest is not None and _number(entry, "collective_seq_id") == oldest]
    shown = next((entry for entry in at if not _is_batch(entry)), at[0] if at else {})
    shape = _shape(shown)
    behind = (
        not counted_alone
        and not pending
        and not messages
        and None not in (issued, over)
        and (issued or 0) > (over or 0)
    )
    return GroupCounters(
        name=name,
        enqueued=enqueued,
        completed=completed,
        ranks=ranks,
        recorder=recorder,
        operation=_operation(shown) if shown else None,
        dtype=_DTYPES.get(dtype, dtype) if (dtype := _dtype(shown)) else None,
        numel=prod(shape) if shape is not None else None,
        started=_is_started(at, entries, status),
        operations=None if counted_alone or issued is None else issued + 1,
        open_operation=None if counted_alone or (first := _number(shown, "op_id")) is None else first + 1,
        messages=tuple(dict.fromkeys(message for message in messages if message is not None)),
        unshown=None in messages or behind,
        open_since_ns=min((ns for entry in at if (ns := _number(entry, "time_created_ns"))), default=None),
    )


def _is_started(
    at: Sequence[Mapping[str, Any]], entries: Iterable[Mapping[str, Any]], status: Mapping[str, Any]
) -> bool | None:
    """Whether the device has begun these entries. torch notes it only if it was told to time its collectives."""
    timed = (_number(status, "last_started_collective") or 0) > 0 or any(
        _number(entry, "time_discovered_started_ns") for entry in entries
    )
    return any(entry.get("state") == "started" for entry in at) if at and timed else None


def _not_over(entries: Sequence[Mapping[str, Any]], numbered_by: str) -> list[Mapping[str, Any]]:
    over = {_number(entry, numbered_by) for entry in entries if _is_batch(entry) and is_over(entry)}
    return [entry for entry in entries if not is_over(entry) and _number(entry, numbered_by) not in over]


def _is_batch(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("profiling_name")).rpartition(":")[2] == _BATCH


def _is_message(entry: Mapping[str, Any], batches: Collection[int | None]) -> bool:
    """Whether it is a send, a receive or a batch of these: such a batch has the number of one of them."""
    return bool(entry.get("is_p2p")) or (_is_batch(entry) and _number(entry, "op_id") in batches)


def _message(entry: Mapping[str, Any], ranks: tuple[int, ...] | None) -> tuple[int, int] | None:
    """(sender, receiver) of an entry, as global ranks; the recorder names ranks within the group."""
    found = _MESSAGE.search(str(entry.get("profiling_name")))
    if found is None:
        return None
    mine, other = int(found[2]), int(found[3])
    pair = (mine, other) if found[1] == "send" else (other, mine)
    if ranks is None:
        return pair
    return (ranks[pair[0]], ranks[pair[1]]) if max(pair) < len(ranks) else None


# ------------------------------------------------------------------------------------------------------------------ entries


def _entry(entry: Mapping[str, Any], recorder: str) -> TraceEntry | None:
    group, index = _group_name(entry), _number(entry, "collective_seq_id")
    if group is None or index is None or entry.get("is_p2p") or _is_batch(entry):
        return None
    return TraceEntry(
        group=group,
        index=index,
        operation=_operation(entry),
        dtype=_dtype(entry),
        shape=_shape(entry),
        created_ns=_number(entry, "time_created_ns"),
        retired=is_over(entry),
        recorder=recorder,
        site=_site(entry.get("frames")),
    )


def _site(frames: Any) -> Site | None:
    """The user's innermost line of a stack, and those that led there."""
    users = [
        frame
        for frame in (frames if isinstance(frames, list) else ())
        if isinstance(frame, dict) and is_users_file(str(frame.get("filename"))) and _number(frame, "line")
    ]
    if not users:
        return None
    return Site(
        file=str(users[0]["filename"]),
        line=_number(users[0], "line") or 0,
        function=str(users[0].get("name") or ""),
        callers=tuple(f"{frame['filename']}:{frame['line']}" for frame in users[1 : 1 + _MOST_CALLERS]),
    )


def _operation(entry: Mapping[str, Any]) -> str:
    name = entry.get("profiling_name")
    return name.rpartition(":")[2].lstrip("_") if isinstance(name, str) else "unknown"


def _dtype(entry: Mapping[str, Any]) -> str | None:
    dtypes = entry.get("input_dtypes")
    return str(dtypes[0]) if isinstance(dtypes, list | tuple) and dtypes else None


def _shape(entry: Mapping[str, Any]) -> tuple[int, ...] | None:
    sizes = entry.get("input_sizes")
    shape = sizes[0] if isinstance(sizes, list | tuple) and sizes and isinstance(sizes[0], list | tuple) else None
    return tuple(shape) if shape is not None and all(isinstance(size, int) for size in shape) else None


def _group_name(entry: Mapping[str, Any]) -> str | None:
    """The name, never the description after it: several groups may share that."""
    group = entry.get("process_group")
    return str(group[0]) if isinstance(group, list | tuple) and group else None


def _is_nameless(entry: Mapping[str, Any]) -> bool:
    group = entry.get("process_group")
    return isinstance(group, list | tuple) and bool(group) and not any(group)


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
