"""torch's flight recorders, read from the memory of a process that has prepared nothing for it.

torch keeps the newest 2,000 collectives of each kind of backend, from 2.11 on unless it was told not to, before only if it was told to. Its
own ways out are Python and a server inside the process; a rank that hangs may answer neither. From outside it takes one symbol, which the
wheels of torch keep, and the layout of one class, which torch ships as a header. A recorder becomes the document that torch itself writes
(`torch._C._distributed_c10d._dump_fr_trace_json`), for `diagnosis.flight_recorder`, and has the Python frames of its newest calls besides.

It is written while it is read: an entry that has changed meanwhile is left out, and a layout that does not fit gives nothing.
Source:  torch/csrc/distributed/c10d/FlightRecorder.hpp and logger.hpp, torch/csrc/profiler/combined_traceback.h; libstdc++'s layouts
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.probes.code_objects import CodeObjects
from paceline.probes.remote_memory import MappedFile, RemoteMemory, Unreadable, torch_release

# The recorder for gloo; of ProcessGroupNCCL before 2.11 and since; those of other backends of 2.15, by name.
_OF_GLOO = "_ZZN4c10d14FlightRecorderIN3c105EventEE3getEvE8instance"
_OF_NCCL = (
    "_ZZN4c10d14FlightRecorderIN3c104cuda9CUDAEventEE3getEvE8instance",
    "_ZZN4c10d14FlightRecorderIN2at4cuda9CUDAEventEE3getEvE8instance",
)
_OF_OTHERS = "_ZZN4c10d17getFlightRecorderERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEE8registry"
_GLOO, _NCCL = "gloo", "nccl"
_DTYPES = (
    "Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble", "Bool", "QInt8",
    "QUInt8", "QInt32", "BFloat16", "QUInt4x2", "QUInt2x4", "Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16", "Float8_e5m2",
    "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "UInt16", "UInt32", "UInt64",
)  # fmt: skip
_MOST_TEXT, _MOST_NODES, _MOST_MEMBERS, _MOST_TENSORS, _MOST_DIMENSIONS, _MOST_FRAMES = 512, 4096, 1 << 16, 64, 16, 32
_MOST_ENTRIES, _WITH_FRAMES = 256, 64
_MOST_RECORDERS = 16
# A stamp of a call lies between 2001 and 2096.
_STAMPS = range(10**18, 4 * 10**18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where things are, in bytes: first in the recorder, then in one of its entries."""

    entries: int = 48
    most: int = 72
    next: int = 80
    groups: int
    members: int
    size: int
    pg_id: int
    name: int
    collective: int
    to_a_peer: int
    operation: int
    text: int
    traceback: int
    created: int
    is_to_a_peer: int
    started: int
    completed: int
    input_dims: int
    input_types: int
    output_dims: int
    output_types: int
    sizes: int
    retired: int


_2_8 = Layout(
    groups=96, members=144, size=504,
    pg_id=8, name=16, collective=80, to_a_peer=88, operation=96, text=104, traceback=136, created=168, is_to_a_peer=184, started=200,
    completed=216, input_dims=232, input_types=280, output_dims=304, output_types=352, sizes=376, retired=496,
)  # fmt: skip
_2_10 = Layout(
    groups=160, members=208, size=512,
    pg_id=16, name=24, collective=88, to_a_peer=96, operation=104, text=112, traceback=144, created=176, is_to_a_peer=192, started=208,
    completed=224, input_dims=240, input_types=288, output_dims=312, output_types=360, sizes=384, retired=504,
)  # fmt: skip
LAYOUTS = {(2, 8): _2_8} | {(2, minor): _2_10 for minor in range(10, 16)}
"""Release of torch -> layout, as in the headers of that release: tests/torches/test_recorder_layout.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordersRead:
    """What the flight recorders of one process have."""

    documents: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Name of a recorder, and its content as torch writes it: the newest entries, the newest of these with their frames."""
    reason: str = ""
    """Why there is none."""


def read_recorders(pid: int, *, frames: bool = False) -> RecordersRead:
    """The recorders of a process. `frames`: with the Python frames of the newest calls."""
    memory = RemoteMemory(pid)
    try:
        release = torch_release(memory)
        layout = LAYOUTS.get(release) if release is not None else None
        if layout is None:
            said = (
                "it has no torch"
                if release is None
                else f"the flight recorder of torch {release[0]}.{release[1]} is not known"
            )
            return RecordersRead(reason=said)
        codes = CodeObjects(memory) if frames else None
        found = [_Recorder(memory, at, layout, codes).read(name) for name, at in _recorders(memory)]
    except Unreadable as error:
        return RecordersRead(reason=f"its memory cannot be read: {error.strerror}")
    except OSError as error:
        return RecordersRead(reason=f"it cannot be read: {error.strerror}")
    documents = tuple((name, document) for name, document, _ in found if document is not None)
    reasons = [reason for _, document, reason in found if document is None]
    if documents:
        return RecordersRead(documents=documents)
    return RecordersRead(
        reason=reasons[0] if reasons else "this torch has no flight recorder, or its libraries are stripped"
    )


def _recorders(memory: RemoteMemory) -> Iterator[tuple[str, int]]:
    """Name and address of each recorder; 0: it was not needed yet."""
    for file in memory.files(("libtorch_cpu.so",)):
        known = _known(memory, file, (_OF_GLOO, _OF_OTHERS))
        if _OF_GLOO in known:
            yield _GLOO, memory.word(known[_OF_GLOO])
        if _OF_OTHERS in known:
            yield from _registered(memory, known[_OF_OTHERS])
    for file in memory.files(("libtorch_cuda.so",)):
        for at in _known(memory, file, _OF_NCCL).values():
            yield _NCCL, memory.word(at)


def _known(memory: RemoteMemory, file: MappedFile, symbols: Sequence[str]) -> dict[str, int]:
    try:
        return memory.addresses(file, symbols)
    except Unreadable:
        raise
    except OSError:
        return {}


def _registered(memory: RemoteMemory, at: int) -> Iterator[tuple[str, int]]:
    """A std::unordered_map of names: the first node is the third word; a node has the next one, the text, the value."""
    node, count = memory.words(at + 16, 2)
    for _ in range(min(count, _MOST_RECORDERS)):
        if not node:
            return
        raw = memory.read(node, 48)
        yield _text(memory, raw, 8, node), _word(raw, 40)
        node = _word(raw, 0)


@dataclass(frozen=True, slots=True)
class _Recorder:
    memory: RemoteMemory
    at: int
    layout: Layout
    codes: CodeObjects | None

    def read(self, name: str) -> tuple[str, dict[str, Any] | None, str]:
        """The name, the document, and why there is none."""
        if not self.at:
            return name, None, "no collective was recorded yet"
        if self.memory.read(self.at, 1) == b"\0":
            off = "torch's flight recorder is off, as it is by default before torch 2.11: TORCH_FR_BUFFER_SIZE=2000 turns it on"
            return name, None, off
        layout = self.layout
        begin, end = self.memory.words(self.at + layout.entries, 2)
        (limit,), (place,) = self.memory.words(self.at + layout.most, 1), self.memory.words(self.at + layout.next, 1)
        count, rest = divmod(end - begin, layout.size)
        if rest or not 0 <= count <= limit <= 1 << 20 or place > limit:
            return name, None, "the flight recorder is not where this torch has it"
        # A full one begins again at its beginning.
        order = [*range(place, count), *range(place)] if count == limit else [*range(count)]
        entries = list(self._entries(begin, order[-_MOST_ENTRIES:]))
        if count and not entries:
            return name, None, "the flight recorder is not as this torch has it"
        if self.codes is not None:
            for entry in entries[-_WITH_FRAMES:]:
                entry["frames"] = self._frames(entry["traceback"])
        for entry in entries:
            del entry["traceback"]
        document = {"entries": entries, "pg_status": dict(self._status()), "pg_config": dict(self._members())}
        return name, document, ""

    def _entries(self, begin: int, places: list[int]) -> Iterator[dict[str, Any]]:
        """What is the same before and after it was read. Entries that lie side by side are read at once."""
        size = self.layout.size
        for first, last in _runs(places):
            at, length = begin + size * first, size * (last + 1 - first)
            before = self.memory.read(at, length)
            found = [self._entry(at + place, before[place : place + size]) for place in range(0, length, size)]
            after = self.memory.read(at, length)
            for entry, place in zip(found, range(0, length, size), strict=True):
                if entry is not None and before[place : place + size] == after[place : place + size]:
                    yield entry

    def _entry(self, at: int, raw: bytes) -> dict[str, Any] | None:
        """One entry; None: it is none, or what it refers to is gone."""
        layout = self.layout
        try:
            created = _word(raw, layout.created)
            group = [_text(self.memory, raw, layout.name + 32, at), _text(self.memory, raw, layout.name, at)]
            text = _text(self.memory, raw, layout.text, at)
            if created not in _STAMPS or ":" not in text:
                return None
            sizes = self._sizes(raw)
            inputs = self._shapes(raw, layout.input_dims, sizes)
            outputs = self._shapes(raw, layout.output_dims, sizes[sum(map(len, inputs)) :])
            # The last byte of an optional says whether it has a value.
            completed, started = (raw[place + 8] == 1 for place in (layout.completed, layout.started))
            return {
                "pg_id": _word(raw, layout.pg_id),
                "process_group": group,
                "collective_seq_id": _word(raw, layout.collective),
                "p2p_seq_id": _word(raw, layout.to_a_peer),
                "op_id": _word(raw, layout.operation),
                "profiling_name": text,
                "time_created_ns": created,
                "is_p2p": raw[layout.is_to_a_peer] == 1,
                "input_sizes": inputs,
                "input_dtypes": self._types(raw, layout.input_types),
                "output_sizes": outputs,
                "output_dtypes": self._types(raw, layout.output_types),
                "state": "completed" if completed else "started" if started else "scheduled",
                "retired": raw[layout.retired] == 1,
                "traceback": _word(raw, layout.traceback),
            }
        except (Unreadable, ValueError, IndexError):
            return None

    def _sizes(self, raw: bytes) -> list[int]:
        return self._small_vector(raw, self.layout.sizes, _MOST_TENSORS * _MOST_DIMENSIONS)

    def _small_vector(self, raw: bytes, offset: int, most: int) -> list[int]:
        """A c10::SmallVector of int64: its first element's address, and the number of elements in 32 bits."""
        count = struct.unpack_from("<I", raw, offset + 8)[0]
        if count > most:
            raise ValueError("no list of sizes")
        return list(struct.unpack(f"<{count}q", self.memory.read(_word(raw, offset), 8 * count))) if count else []

    def _shapes(self, raw: bytes, offset: int, sizes: Sequence[int]) -> list[list[int]]:
        """The shapes of several tensors, whose sizes lie one after the other."""
        shapes, at = [], 0
        for dimensions in self._small_vector(raw, offset, _MOST_TENSORS):
            if not 0 <= dimensions <= _MOST_DIMENSIONS or at + dimensions > len(sizes):
                raise ValueError("no shape")
            shapes.append(list(sizes[at : at + dimensions]))
            at += dimensions
        return shapes

    def _types(self, raw: bytes, offset: int) -> list[str]:
        """A std::vector of one byte each."""
        begin, end = _word(raw, offset), _word(raw, offset + 8)
        if not 0 <= end - begin <= _MOST_TENSORS:
            raise ValueError("no types")
        codes = self.memory.read(begin, end - begin) if end > begin else b""
        return [_DTYPES[code] if code < len(_DTYPES) else f"type {code}" for code in codes]

    def _frames(self, traceback: int) -> list[dict[str, Any]]:
        """Python frames of a CapturedTraceback, innermost first: behind its first word a vector of (code object, instruction)."""
        if not traceback or self.codes is None:
            return []
        try:
            begin, end = self.memory.words(traceback + 8, 2)
            count, rest = divmod(end - begin, 16)
            if rest or not 0 < count <= 1024:
                return []
            raw = self.memory.read(begin, 16 * min(count, _MOST_FRAMES))
        except Unreadable:
            # The entry was written over meanwhile.
            return []
        places = [(_word(raw, at), struct.unpack_from("<i", raw, at + 8)[0]) for at in range(0, len(raw), 16)]
        lines = (self.codes.line(code, instruction) for code, instruction in places)
        return [{"filename": one.file, "line": one.line, "name": one.function} for one in lines if one is not None]

    def _status(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """torch's number of each group -> how many collectives were entered, begun and completed."""
        for node in self._tree(self.at + self.layout.groups):
            group, status = self.memory.words(node, 2)
            enqueued, started, completed = struct.unpack("<3q", self.memory.read(status, 24))
            yield (
                str(group),
                {
                    "last_enqueued_collective": enqueued,
                    "last_started_collective": started,
                    "last_completed_collective": completed,
                },
            )

    def _members(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name of each group -> its ranks, as a text. Of a tuple the last element lies first."""
        for node in self._tree(self.at + self.layout.members):
            raw = self.memory.read(node, 88)
            begin, end = _word(raw, 64), _word(raw, 72)
            count, rest = divmod(end - begin, 8)
            if not rest and 0 < count <= _MOST_MEMBERS:
                ranks = list(self.memory.words(begin, count))
                name, about = _text(self.memory, raw, 32, node), _text(self.memory, raw, 0, node)
                yield name, {"name": name, "desc": about, "ranks": str(ranks)}

    def _tree(self, at: int) -> Iterator[int]:
        """Addresses of the values of a std::map. Its header and each node have colour, parent, left and right; then comes the value."""
        root = self.memory.word(at + 16)
        waiting, seen = [root] if root else [], 0
        while waiting and seen < _MOST_NODES:
            node = waiting.pop()
            seen += 1
            left, right = self.memory.words(node + 16, 2)
            waiting += [one for one in (right, left) if one]
            yield node + 32


def _text(memory: RemoteMemory, raw: bytes, offset: int, at: int) -> str:
    """A std::string in bytes that lie at `at`: its address, its length, and, if it is short, itself.

    Raises:  Unreadable; ValueError: it is none
    """
    pointer, length = _word(raw, offset), _word(raw, offset + 8)
    if length > _MOST_TEXT:
        raise ValueError("no text")
    if pointer == at + offset + 16:
        return raw[offset + 16 : offset + 16 + min(length, 16)].decode()
    return memory.read(pointer, length).decode() if length else ""


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers that follow one another.

    Holds:  _runs([5, 6, 7, 0, 1]) == [(5, 7), (0, 1)]
    """
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs


def _word(raw: bytes, offset: int) -> int:
    return int(struct.unpack_from("<Q", raw, offset)[0])
