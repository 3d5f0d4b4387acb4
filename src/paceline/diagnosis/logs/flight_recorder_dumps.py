"""Flight-recorder dumps of a job that ran elsewhere, whole or cut off, JSON or pickle, of each torch: what each rank issued. Pure.

A pickle can run code when it is read. This reader refuses every name that a pickle would import, so that only plain containers come out.

A group is known by its recorder and its name, which all its members share. Its description ("TENSOR_MODEL_PARALLEL_GROUP") may stand for
many groups, and its number is one of the process that wrote it.
"""

import io
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_RANK = re.compile(r"(\d{1,9})(?:\.\w{1,40}){0,4}\Z")
_KEY = "collective_seq_id"
# torch 2.2 and 2.3 number all calls of a group in one row, point to point among them; 2.1 writes the entries alone.
_OLD_KEY = "seq_id"
_BUILT_IN: dict[int, Callable[[Any], None]] = dict(pickle._Unpickler.dispatch)
# Those of a recorder with some ten thousand calls and their stacks; read in a second or two.
_MOST_INSTRUCTIONS = 1_000_000
_NEVER_WRITTEN = (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.BYTEARRAY8, pickle.DICT)
# Of one name, shape or list of ranks, however often it is written in itself.
_MOST_VALUES, _MOST_NAMES = 10_000, 1_000
# torch's counters have 64 bits.
_ABOVE_ALL_NUMBERS = 1 << 63
_MESSAGE = re.compile(r"\b(send|recv)\b(?: (\d{1,9})(?:->|<-)(\d{1,9}))?", re.IGNORECASE)
# One entry for calls that were issued as one. The calls have entries of their own.
_COALESCED = "coalesced"
_SENT_KEY = "p2p_seq_id"
# The name of ProcessGroupNCCL's recorder.
_COUNTS_BATCHES = "nccl"
# The recorder writes the first under this name and the second under that of the whole job.
_WHOLE_JOB = ("0", "default_pg")


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
    state: str = ""
    """The recorder's word: scheduled, started or completed. Without timing it never says started."""

    def __str__(self) -> str:
        return f"{self.operation} {self.shapes} {self.dtypes}".rstrip() + (f" at {self.site}" if self.site else "")


@dataclass(frozen=True, slots=True)
class DumpedMessage:
    """One send or receive."""

    sender: int
    """Place of the sender in the group."""
    receiver: int
    """Place of the receiver."""
    over: bool
    """It is over."""
    place: int
    """Place of the entry among all of the dump."""


@dataclass(frozen=True, slots=True)
class DumpedGroup:
    """One process group as one rank saw it."""

    recorder: str
    """Whose entries they are: nccl, nccl2, gloo; empty: the dump has no entry of the group."""
    name: str
    """Name of the group."""
    description: str = ""
    """What the program calls it; other groups may have the same description."""
    ranks: tuple[int, ...] = ()
    """Members of the group; empty: the dump does not say."""
    calls: Mapping[int, DumpedCall] = field(default_factory=dict)
    """Number of a collective -> the collective."""
    open: int | None = None
    """The lowest number that is not over; None: none."""
    open_place: int | None = None
    """Place of the first such entry among all entries of the dump: what was issued later is queued behind it."""
    messages: tuple["DumpedMessage", ...] = ()
    """Its sends and receives, oldest first. With any of them, the counters may be theirs."""
    counters: tuple[int, int] | None = None
    """The recorder's own counters, issued and over; None: not in the dump. Each recorder counts in another way."""
    operations_ahead: frozenset[int] = frozenset()
    """By how much the recorder's number of an operation is above the number of the collective."""

    @property
    def title(self) -> str:
        """The name, with the description beside it."""
        return f"{self.name} ({self.description})" if self.description not in ("", "undefined") else self.name


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
    whole: bool = False
    """It has every entry since the process began: none was dropped, and those that are over are there too."""


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
    groups = tuple(_groups(document))
    if not groups:
        raise ValueError("no process group in it" + (f"; {note}" if note else ""))
    return RecorderDump(name, int(match[1]) if match else None, groups, note, _is_whole(document.get("entries")))


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


def _groups(document: dict[str, Any]) -> Iterator[DumpedGroup]:
    """The groups in the order of their entries, then those of which only counters or members are known."""
    entries = document.get("entries")
    every = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    config, status = document.get("pg_config"), document.get("pg_status")
    config = config if isinstance(config, dict) else {}
    status = {_text(key): value for key, value in status.items()} if isinstance(status, dict) else {}
    own: dict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = {}
    newest: dict[tuple[str, str], int] = {}
    for place, entry in enumerate(every):
        name = _group_name(entry)
        if name is None:
            # gloo's groups without a name: which ranks share one cannot be told.
            continue
        key = (_recorder(entry), name)
        own.setdefault(key, []).append((place, entry))
        newest[key] = max(newest.get(key, -1), _whole(entry.get("pg_id"), -1))
    numbers = _numbers(newest, config, status)
    for key, of_group in own.items():
        # A second init_process_group reuses the names of the first; the newer group counts.
        kept = [(place, entry) for place, entry in of_group if _whole(entry.get("pg_id"), -1) == newest[key]]
        yield _group(*key, kept, config, status.get(numbers.get(key[1], "")))
    known = {name for _, name in own} | ({""} if own else set())
    # Without names, a number of this process has to do, as before torch gave names.
    names = dict.fromkeys(_text(name) for name in [*config][:_MOST_NAMES]) or dict.fromkeys([*status][:_MOST_NAMES])
    for name in names:
        if name not in known:
            yield _group("", name, (), config, status.get(numbers.get(name, "" if config else name)))


def _is_whole(entries: Any) -> bool:
    numbers = (
        [entry.get("record_id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    return numbers == list(range(len(numbers)))


def _group(
    recorder: str, name: str, placed: Sequence[tuple[int, dict[str, Any]]], config: Any, status: Any
) -> DumpedGroup:
    calls: dict[int, DumpedCall] = {}
    waits: dict[int, int] = {}
    messages: list[DumpedMessage] = []
    ahead: set[int] = set()
    entries = [entry for _, entry in placed]
    sent = {_number(entry, "op_id") for entry in entries if entry.get("is_p2p")} - {None}
    of_batches = _sends_of_batches(entries, sent) if recorder == _COUNTS_BATCHES else {}
    for place, entry in placed:
        index, title = _number(entry, _KEY if _KEY in entry else _OLD_KEY), _text(entry.get("profiling_name", "?"))
        if index is None:
            continue
        message = _MESSAGE.search(title)
        if _KEY not in entry and message is not None:
            raise ValueError("this torch numbers sends and receives with the collectives: ranks cannot be compared")
        over = is_over(entry)
        if entry.get("is_p2p"):
            over = over or of_batches.get(_number(entry, _SENT_KEY), False)
            if message is not None and message[2] is not None:
                here, there = int(message[2]), int(message[3])
                ends = (here, there) if message[1].lower() == "send" else (there, here)
                messages.append(DumpedMessage(*ends, over, place))
            continue
        operation, number = title.rpartition(":")[2], _number(entry, "op_id")
        if operation == _COALESCED and number in sent:
            continue
        if not over:
            waits.setdefault(index, place)
        if index not in calls or calls[index].operation == _COALESCED:
            calls[index] = _call(entry, index, operation)
        if number is not None:
            ahead.add(number - index)
    found = _configured(config, name)
    process_group = entries[-1].get("process_group") if entries else None
    description = (
        process_group[-1] if isinstance(process_group, list | tuple) and len(process_group) > 1 else found.get("desc")
    )
    return DumpedGroup(
        recorder, name, _text(description or ""), _members(found), calls,
        open=min(waits, default=None), open_place=min(waits.values(), default=None), messages=tuple(messages),
        counters=_counters(status), operations_ahead=frozenset(ahead),
    )  # fmt: skip


def is_over(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a recorder, in whatever form it was given out, is over on its device."""
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _sends_of_batches(entries: Sequence[Mapping[str, Any]], sent: Collection[int | None]) -> dict[int | None, bool]:
    """Number of a batch of sends -> whether it is over. Of ProcessGroupNCCL's recorder, in which a send alone has a number of its own.

    The batch's own entry alone says it: its sends never do. Where only what is open is dumped, that of a batch that is over is left out.
    """
    together = Counter(_number(entry, _SENT_KEY) for entry in entries if entry.get("is_p2p"))
    found = {number: True for number, count in together.items() if count > 1}
    for entry in entries:
        is_batch = _text(entry.get("profiling_name")).endswith(_COALESCED)
        if is_batch and not entry.get("is_p2p") and _number(entry, "op_id") in sent:
            found[_number(entry, _SENT_KEY)] = is_over(entry)
    return found


def _call(entry: dict[str, Any], index: int, operation: str) -> DumpedCall:
    frames = entry.get("frames")
    frames = [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []
    own = next((f for f in frames if "site-packages" not in _text(f.get("filename"))), None)
    return DumpedCall(
        index,
        operation,
        _text(entry.get("input_sizes", "")),
        ",".join(_names(entry.get("input_dtypes"))),
        f"{_text(own.get('filename'))}:{_text(own.get('line'))}" if own else "",
        _text(entry.get("state", "")),
    )


def _recorder(entry: Mapping[str, Any]) -> str:
    """The word before the operation: two backends of one group count each for itself."""
    return _text(entry.get("profiling_name", "")).rpartition(":")[0]


def _group_name(entry: Mapping[str, Any]) -> str | None:
    """The name; None: the group has none. Before torch had names, its number in the process."""
    value = entry.get("process_group")
    if isinstance(value, list | tuple) and value:
        return _text(value[0]) if any(value) else None
    return _text(value or entry.get("pg_id", "default"))


def _numbers(newest: Mapping[tuple[str, str], int], config: Any, status: Mapping[str, Any]) -> dict[str, str]:
    """Name of a group -> the number under which its counters are.

    The entries tell it. A group without entries is found by its place: numbers and names are both given as groups are made. That holds
    only if each group has counters, if the names are numbers, and if the entries do not say otherwise.
    """
    told = {name: str(number) for (_, name), number in newest.items()}
    names = {_text(name) for name in config}
    if len(names) == len(status) and all(text.isdecimal() and len(text) < 10 for text in (*names, *status)):
        placed = dict(zip(sorted(names, key=int), sorted(status, key=int), strict=True))
        if all(placed.get(name) == number for name, number in told.items()):
            return placed
    return told


def _configured(config: Any, name: str) -> dict[str, Any]:
    """What the dump says about a group. gloo writes the group of the whole job under an empty name."""
    found = config.get(name)
    if found is None and (name in _WHOLE_JOB or len(config) == 1):
        found = config.get("")
    return found if isinstance(found, dict) else {}


def _number(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    return value if isinstance(value, int) and 0 <= value < _ABOVE_ALL_NUMBERS else None


def _counters(status: Any) -> tuple[int, int] | None:
    counts = status if isinstance(status, dict) else {}
    issued, over = (_whole(counts.get(f"last_{word}_collective"), None) for word in ("enqueued", "completed"))
    if issued is None or over is None or max(issued, over) >= _ABOVE_ALL_NUMBERS:
        return None
    return issued, over


def _names(value: Any) -> list[str]:
    return [_text(one) for one in value[:_MOST_NAMES]] if isinstance(value, list | tuple) else []


def _members(found: dict[str, Any]) -> tuple[int, ...]:
    ranks = found.get("ranks")
    return tuple(int(rank) for rank in re.findall(r"\d{1,9}", _text(ranks))) if ranks else ()


def _whole(value: Any, otherwise: Any) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
