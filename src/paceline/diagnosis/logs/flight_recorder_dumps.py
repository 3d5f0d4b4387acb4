"""Flight-recorder dumps of a job that ran elsewhere, whole or cut off, JSON or pickle: which rank is behind, who called what. Pure.

A pickle can run code when it is read. This reader refuses every name that a pickle would import, so that only plain containers come out.
"""

import io
import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from paceline.diagnosis.case import Level
from paceline.findings import CauseFinding, Confidence
from paceline.spelling import plural

_RANK = re.compile(r"(\d+)(?:\.\w+)*\Z")
_KEY = "collective_seq_id"
# torch 2.2 and 2.3 number all calls of a group in one row, point to point among them; 2.1 writes the entries alone.
_OLD_KEY = "seq_id"
_BUILT_IN: dict[int, Callable[[Any], None]] = dict(pickle._Unpickler.dispatch)
# Those of a recorder with some ten thousand calls and their stacks; read in a second or two.
_MOST_INSTRUCTIONS = 1_000_000
_NEVER_WRITTEN = (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.BYTEARRAY8, pickle.DICT)
# Of one name, shape or list of ranks, however often it is written in itself.
_MOST_VALUES, _MOST_NAMES = 10_000, 1_000
_POINT_TO_POINT = re.compile(r"\b(?:send|recv)\b", re.IGNORECASE)


class _TooMuch(Exception):
    """The dump has more values than a recorder keeps."""


class _Instructions(dict[int, Callable[[Any], None]]):
    """What the reader does for each byte of a pickle, so often and no more."""

    left = _MOST_INSTRUCTIONS

    def __getitem__(self, key: int) -> Callable[[Any], None]:
        self.left -= 1
        if self.left < 0:
            raise _TooMuch
        return super().__getitem__(key)


class _PlainUnpickler(pickle._Unpickler):
    """Builtin containers only. In Python, not C, since what was read before the cut lies on its stack.

    A few bytes may ask for a great deal: a set or a key that is made of shared tuples is hashed in exponential time, a bytearray names its
    own size. No recorder writes them.
    """

    stack: list[Any]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        instructions = _Instructions(_BUILT_IN)
        instructions |= {
            pickle.SETITEM[0]: _PlainUnpickler._set_item,
            pickle.SETITEMS[0]: _PlainUnpickler._set_items,
            **dict.fromkeys((code[0] for code in _NEVER_WRITTEN), _PlainUnpickler._refuse),
        }

        vars(self)["dispatch"] = instructions

    def _set_item(self) -> None:
        _require_plain_keys(self.stack[-2:-1])
        _BUILT_IN[pickle.SETITEM[0]](self)

    def _set_items(self) -> None:
        _require_plain_keys(self.stack[::2])
        _BUILT_IN[pickle.SETITEMS[0]](self)

    def _refuse(self) -> None:
        raise pickle.UnpicklingError("the dump has values that no recorder writes")

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the dump would import {module}.{name}, which is refused")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("the dump refers to something outside itself")

    def read_so_far(self) -> list[Any]:
        stacks = [*getattr(self, "metastack", ()), getattr(self, "stack", [])]
        return [item for stack in stacks for item in stack]


@dataclass(frozen=True, slots=True)
class DumpedCall:
    """One collective as the recorder kept it."""

    index: int
    """Number of the call in its group."""
    operation: str
    """Name of the operation."""
    shapes: str
    """Shapes of its tensors, as text."""
    dtypes: str
    """Their data types, as text."""
    site: str = ""
    """The line of code that issued it."""

    def __str__(self) -> str:
        return f"{self.operation} {self.shapes} {self.dtypes}".rstrip() + (f" at {self.site}" if self.site else "")


@dataclass(frozen=True, slots=True)
class DumpedGroup:
    """One process group as one rank saw it."""

    name: str
    """Name of the group."""
    enqueued: int
    """Calls that the rank has issued."""
    completed: int | None
    """Calls that are complete; None: not recorded."""
    calls: dict[int, DumpedCall]
    """Number of the call -> the call."""
    ranks: tuple[int, ...] = ()
    """Members of the group; empty: the dump does not say."""
    counted: bool = True
    """The dump has counters. False: it is truncated before them, and there may have been more calls."""


@dataclass(frozen=True, slots=True)
class RecorderDump:
    """One rank's dump."""

    name: str
    """Name of the file."""
    rank: int | None
    """The rank, by the file's name; None: not known."""
    groups: tuple[DumpedGroup, ...]
    """Its process groups."""
    note: str = ""
    """What is missing in the dump."""


def looks_like_dump(data: bytes) -> bool:
    """Whether a file is a flight-recorder dump, judged by its first bytes."""
    head = data[:4096]
    return (head[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")) or (
        head.lstrip()[:1] == b"{" and any(key in head for key in (b'"entries"', b'"pg_config"', b'"pg_status"'))
    )


def parse_dump(name: str, data: bytes) -> RecorderDump:
    """A dump, as much of it as is there.

    Raises:  ValueError: it is none, or it would import something
    """
    if data[:1] == b"\x80":
        document, note = _from_pickle(data)
    else:
        document, note = _from_json(data)
    match = _RANK.search(name)
    groups = tuple(_groups(document, bool(note)))
    if not groups:
        raise ValueError("no process group in it" + (f"; {note}" if note else ""))
    return RecorderDump(name, int(match[1]) if match else None, groups, note)


def judge_dumps(dumps: Sequence[RecorderDump]) -> list[CauseFinding]:
    """Who is behind in a group, which rank left no dump, and whether the ranks called different things at the same place."""
    found: list[CauseFinding] = []
    names = dict.fromkeys(group.name for dump in dumps for group in dump.groups)
    for name in names:
        seen = {
            dump.rank: group for dump in dumps if dump.rank is not None for group in dump.groups if group.name == name
        }
        found += _different_calls(name, seen) or _behind(name, seen)
    return found


# --------------------------------------------------------------------------------------------------------------- reading


def _from_pickle(data: bytes) -> tuple[dict[str, Any], str]:
    unpickler = _PlainUnpickler(data)
    try:
        document = unpickler.load()
    except _TooMuch:
        return _salvaged(unpickler.read_so_far()), f"too long: judged by its first {_MOST_INSTRUCTIONS} values"
    except pickle.UnpicklingError as refused:
        if "the dump" in str(refused):
            raise ValueError(str(refused)) from refused
        return _salvaged(unpickler.read_so_far()), "truncated: judged by the part before the end"
    except Exception:
        # A pickle that ends early or is damaged fails in many ways inside the reader.
        return _salvaged(unpickler.read_so_far()), "truncated: judged by the part before the end"
    if isinstance(document, list):
        document = {"entries": document}
    if not isinstance(document, dict):
        raise ValueError("it holds no flight-recorder dump")
    return document, ""


def unpickled(data: bytes) -> dict[str, Any]:
    """The document of a recorder that answers with a pickle, as much of it as is there.

    Raises:  ValueError: it is none, or it would import something
    """
    return _from_pickle(data)[0]


def _salvaged(items: Sequence[Any]) -> dict[str, Any]:
    """The document as far as it was built: its keys and values lie side by side on the reader's stack."""
    document: dict[str, Any] = {}
    for item in items:
        if isinstance(item, dict):
            if _KEY in item or _OLD_KEY in item:
                document.setdefault("entries", []).append(item)
            document.update({key: value for key, value in item.items() if key in ("entries", "pg_status", "pg_config")})
        elif isinstance(item, list):
            entries = [entry for entry in item if isinstance(entry, dict) and (_KEY in entry or _OLD_KEY in entry)]
            if entries:
                document.setdefault("entries", []).extend(entries)
    for key, value in pairwise(items):
        if key in ("pg_status", "pg_config") and isinstance(value, dict):
            document.setdefault(str(key), value)
    return document


def _from_json(data: bytes) -> tuple[dict[str, Any], str]:
    text = data.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _json_so_far(text), "truncated: judged by the part before the end"
    if not isinstance(document, dict):
        raise ValueError("it holds no flight-recorder dump")
    return document, ""


def _json_so_far(text: str) -> dict[str, Any]:
    """Whole entries, and the sections that are whole, of a JSON text that ends in the middle."""
    decoder = json.JSONDecoder()
    document: dict[str, Any] = {}
    for key in ("pg_status", "pg_config"):
        start = text.find(f'"{key}"')
        value = _decoded(decoder, text, text.find("{", start)) if start >= 0 else None
        if isinstance(value, tuple) and isinstance(value[0], dict):
            document[key] = value[0]
    at = text.find("[", text.find('"entries"')) + 1
    entries: list[Any] = []
    while at > 0 and (read := _decoded(decoder, text, text.find("{", at))) is not None:
        entries.append(read[0])
        at = read[1]
        if text[at : at + 1] != ",":
            break
    document["entries"] = entries
    return document


def _decoded(decoder: json.JSONDecoder, text: str, start: int) -> tuple[Any, int] | None:
    if start < 0:
        return None
    try:
        return decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _require_plain_keys(keys: Iterable[Any]) -> None:
    if not all(key is None or isinstance(key, str | int | float) for key in keys):
        raise pickle.UnpicklingError("the dump has values that no recorder writes")


def _text(value: Any) -> str:
    """str(value), where that is of a size that somebody would read: few bytes of a pickle may stand for a text of gigabytes."""
    seen, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        seen += len(one) if isinstance(one, str | bytes) else one.bit_length() if isinstance(one, int) else 1
        if isinstance(one, list | tuple | dict):
            seen += len(one)
            if seen <= _MOST_VALUES:
                waiting += [part for pair in one.items() for part in pair] if isinstance(one, dict) else one
        if seen > _MOST_VALUES:
            return "..."
    return str(value)


def _groups(document: dict[str, Any], cut: bool) -> Iterator[DumpedGroup]:
    calls: dict[str, dict[int, DumpedCall]] = {}
    done: dict[str, int] = {}
    numbers: dict[str, str] = {}
    entries = document.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        index = entry.get(_KEY, entry.get(_OLD_KEY))
        if not isinstance(index, int):
            continue
        if _KEY not in entry and _POINT_TO_POINT.search(_text(entry.get("profiling_name"))):
            raise ValueError("this torch numbers sends and receives with the collectives: ranks cannot be compared")
        name = _group_name(entry.get("process_group", entry.get("pg_id")))
        numbers[name] = _text(entry.get("pg_id", ""))
        calls.setdefault(name, {})[index] = _call(entry, index)
        if entry.get("retired") or entry.get("state") == "completed":
            done[name] = max(done.get(name, 0), index)
    status = document.get("pg_status")
    status = status if isinstance(status, dict) else {}
    known = {number: name for name, number in numbers.items()}
    for number in status:
        known.setdefault(_text(number), _text(number))
    for number, name in known.items():
        counts = status.get(number, status.get(int(number) if number.isdigit() else None))
        counts = counts if isinstance(counts, dict) else {}
        own = calls.get(name, {})
        yield DumpedGroup(
            name,
            _whole(counts.get("last_enqueued_collective"), max(own, default=0)),
            _whole(counts.get("last_completed_collective"), done.get(name)),
            own,
            _members(document.get("pg_config"), number, name),
            counted=bool(counts) or not cut,
        )


def _call(entry: dict[str, Any], index: int) -> DumpedCall:
    frames = entry.get("frames")
    frames = [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []
    own = next((f for f in frames if "site-packages" not in _text(f.get("filename"))), None)
    return DumpedCall(
        index,
        _text(entry.get("profiling_name", "?")).removeprefix("gloo:").removeprefix("nccl:"),
        _text(entry.get("input_sizes", "")),
        ",".join(_names(entry.get("input_dtypes"))),
        f"{_text(own.get('filename'))}:{_text(own.get('line'))}" if own else "",
    )


def _group_name(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return _text(value[-1] or value[0])
    return _text(value or "default")


def _names(value: Any) -> list[str]:
    return [_text(one) for one in value[:_MOST_NAMES]] if isinstance(value, list | tuple) else []


def _members(config: Any, number: str, name: str) -> tuple[int, ...]:
    entries = config if isinstance(config, dict) else {}
    # gloo registers its group under an empty name.
    found = entries.get(number) or entries.get(name) or (next(iter(entries.values())) if len(entries) == 1 else None)
    ranks = found.get("ranks") if isinstance(found, dict) else None
    return tuple(int(rank) for rank in re.findall(r"\d{1,9}", _text(ranks))) if ranks else ()


def _whole(value: Any, otherwise: Any) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise


# --------------------------------------------------------------------------------------------------------------- judging


def _behind(name: str, seen: dict[int, DumpedGroup]) -> list[CauseFinding]:
    members = {rank for group in seen.values() for rank in group.ranks}
    silent = tuple(sorted(members - set(seen)))
    seen = {rank: group for rank, group in seen.items() if group.counted}
    most = max((group.enqueued for group in seen.values()), default=0)
    late = tuple(sorted(rank for rank, group in seen.items() if group.enqueued < most))
    waiting = any(group.completed is not None and group.completed < group.enqueued for group in seen.values())
    if not waiting or (not late and not silent):
        return []
    ahead = next(group for group in seen.values() if group.enqueued == most)
    saw = [f"group {name}: rank {rank} has issued {seen[rank].enqueued} collectives, others {most}" for rank in late]
    if most in ahead.calls:
        saw.append(f"the others wait in number {most}: {ahead.calls[most]}")
    last = [f"rank {rank} last issued number {seen[rank].enqueued}: {seen[rank].calls[seen[rank].enqueued]}"
            for rank in late if seen[rank].enqueued in seen[rank].calls]  # fmt: skip
    if silent:
        saw.append(
            f"no dump of {plural(len(silent), 'rank')} {', '.join(map(str, silent))}: gone, or unable to write one"
        )
    return [
        CauseFinding(
            code="N01",
            title="some ranks did not come to a collective",
            level=Level.STALL,
            ranks=late or silent,
            # Who is behind is certain; why is not in a dump.
            confidence=Confidence.LIKELY if late else Confidence.UNCLEAR,
            saw=(*saw, *last),
            next=("py-spy dump --nonblocking --pid PID, on these ranks while the job hangs: where they are instead",),
        )
    ]


def _different_calls(name: str, seen: dict[int, DumpedGroup]) -> list[CauseFinding]:
    """The first place of the order where two ranks called different things."""
    common = set.intersection(*(set(group.calls) for group in seen.values())) if len(seen) > 1 else set()
    for index in sorted(common):
        calls = {rank: group.calls[index] for rank, group in sorted(seen.items())}
        first = next(iter(calls.values()))
        # Shapes of a scatter or an uneven all_gather rightly differ from rank to rank.
        odd = {rank: call for rank, call in calls.items() if (call.operation, call.dtypes) != (first.operation, first.dtypes)
               or (call.shapes != first.shapes and "reduce" in call.operation and "scatter" not in call.operation)}  # fmt: skip
        if not odd:
            continue
        other = next(iter(odd.values()))
        code = "M01" if other.operation != first.operation else "M02" if other.shapes != first.shapes else "M03"
        title = {
            "M01": "ranks called different collectives",
            "M02": "shapes differ between ranks",
            "M03": "dtypes differ between ranks",
        }
        return [
            CauseFinding(
                code=code,
                title=title[code],
                level=Level.DIVERGENCE,
                ranks=tuple(odd) if len(odd) < len(calls) / 2 else tuple(calls),
                confidence=Confidence.HIGH,
                saw=tuple(
                    f"group {name}, number {index}, rank {rank}: {call}"
                    for rank, call in [*calls.items()][:1] + [*odd.items()][:3]
                ),
                next=(
                    f"make every rank issue the same call there: {other.site or first.site or 'the dumps have no call sites'}",
                ),
            )
        ]
    return []
