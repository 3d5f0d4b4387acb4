"""Records what each collective is and which line of the user's code makes it, before it is issued: all ranks must agree on both.

A record refers to tables by number. The tables are a file beside the ring (see recording/string_table.py). The file gets a line when
something is seen for the first time. So an ordinary call costs a few look-ups and eight words in shared memory.

Index 0 marks calls that are not compared between ranks: sends and receives, and the calls that DDP itself issues from Python, because on
other ranks DDP's C++ part may issue the same calls. If C++ issues a call on a process group in Python, the process group
(parts/comm/backend/process_group.py) reports it to the observer instead.
"""

import itertools
import json
import os
import sys
import weakref
import zlib
from functools import partial
from sys import _getframe
from time import time_ns
from typing import Any

from ..recording.ring import CAPACITY, FIRST_RECORD_CELL, OPERATIONS, Cell, RecordKind, RingWriter
from ..recording.string_table import AGAIN
from .frame_line import line_of
from .loops import Loops
from .signal_handlers import let_through

_CALL, _CURSOR = int(RecordKind.CALL), int(Cell.CURSOR)
MOST_TEXT_BYTES = 2 * 1024 * 1024
_MOST_ENTRIES = 4096
# A place is a line of the user's code and the line that called it: this is enough to tell two uses of one small function apart.
_FRAMES_TO_THE_FIRST = 48
_FRAMES_FROM_THERE = 8
_OTHERS, _USERS, _INSTALLED, _DDP = 0, 1, 2, 3
_ABSENT = -1
# The files below torch's directory that call DDP's C++ part.
_ISSUED_BELOW = tuple(
    os.path.join(*parts)
    for parts in (
        ("nn", "parallel", "distributed.py"),
        ("autograd", "graph.py"),
        ("autograd", "__init__.py"),
        ("distributed", "utils.py"),
    )
)

# Operation -> (argument with the tensor on which all ranks must agree, whether they must agree on its shape too, argument with the
# options, whether the options hold a reduce operation, whether they hold a root). Of a list of tensors, the first tensor counts.
_FORMS = {
    "allreduce": (0, True, 1, True, False),
    "allreduce_coalesced": (0, True, 1, True, False),
    "broadcast": (0, True, 1, False, True),
    "reduce": (0, True, 1, True, True),
    "allgather": (0, True, _ABSENT, False, False),
    "allgather_coalesced": (0, True, _ABSENT, False, False),
    "gather": (1, True, 2, False, True),
    "scatter": (0, True, 2, False, True),
    "reduce_scatter": (1, True, 2, True, False),
    "alltoall": (0, False, _ABSENT, False, False),
    "alltoall_base": (0, False, _ABSENT, False, False),
    "all_to_all_single": (0, False, _ABSENT, False, False),
    "_allgather_base": (0, True, _ABSENT, False, False),
    "all_gather_single": (0, True, _ABSENT, False, False),
    "allgather_into_tensor_coalesced": (0, True, _ABSENT, False, False),
    "all_gather_single_coalesced": (0, True, _ABSENT, False, False),
    "_reduce_scatter_base": (0, True, 2, True, False),
    "reduce_scatter_single": (0, True, 2, True, False),
    "reduce_scatter_tensor_coalesced": (0, True, 2, True, False),
    "reduce_scatter_single_coalesced": (0, True, 2, True, False),
}
_TO_ONE_PEER = ("send", "recv", "recv_anysource")
Form = tuple[int, int, bool, int, bool, bool, bool]


def form_of(operation: str) -> Form:
    """How to read the arguments of one operation: its code, the five values of the table, whether its calls are counted for comparison."""
    form = _FORMS.get(operation, (0 if operation in _TO_ONE_PEER else _ABSENT, False, _ABSENT, False, False))
    return (OPERATIONS.index(operation), *form, operation not in _TO_ONE_PEER)


class _CallSite:
    """A place in the user's code, and the last call there: usually the next call there has the same operation, type and shape."""

    __slots__ = ("key", "signature", "site")

    def __init__(self, site: int) -> None:
        self.site = site
        self.key: tuple[Any, ...] = (None,) * 5
        self.signature = 0


class CallLog:
    """The calls of one process. A forked child makes a new log."""

    __slots__ = (
        "_by_name",
        "_kept",
        "_kinds",
        "_next_number",
        "_places",
        "_signatures",
        "_written",
        "groups",
        "loops",
    )

    def __init__(self) -> None:
        # id of a process group -> its number, its counter, and the finalizer that removes the entry when the group is freed.
        self.groups: dict[int, tuple[int, Any, Any]] = {}
        self._by_name: dict[str, tuple[int, Any]] = {}
        self._signatures: dict[tuple[Any, ...], int] = {}
        self._places: dict[tuple[int, ...], _CallSite] = {(): _CallSite(0)}
        # The ids of code objects are keys, so the code objects must stay alive.
        self._kept: list[Any] = []
        self._kinds: dict[str, int] = {}
        self._next_number = itertools.count(1).__next__
        self._written = 0
        self.loops = Loops()

    def note(self, ring: RingWriter, form: Form, group: Any, args: Any, size_bytes: int, count: int) -> int:
        """Record a call that the caller is about to issue, and return the number of its group.

        Between two steps the caches are cold. So this function has few names and few calls.
        """
        number, next_index, _ = self.groups.get(id(group)) or self._meet(ring, group)
        code, tensor_at, shaped, options_at, reduces, rooted, compared = form
        dtype = shape = reduce_op = root = None
        try:
            if tensor_at >= 0:
                tensor = args[tensor_at]
                while type(tensor) is list:
                    tensor = tensor[0]
                dtype = tensor.dtype
                if shaped:
                    shape = tensor.shape
            if options_at > 0:
                options = args[options_at]
                if reduces:
                    reduce_op = hash(options.reduceOp)
                if rooted:
                    root = options.rootRank
            elif not compared:
                root = args[1]
        except (AttributeError, IndexError, TypeError):
            # The arguments do not have the form that torch.distributed gives them: the values stay unknown.
            pass
        # None: this is a thread of autograd's, in which only our Python code runs.
        frame = _getframe(1).f_back
        lines = self._lines(frame)
        if frame is None or self._kinds.get(frame.f_code.co_filename) == _DDP:
            compared = False
        place = self._places.get(lines) or self._new_place(ring, lines, frame)
        last_code, last_dtype, last_shape, last_op, last_root = place.key
        same = shape == last_shape and dtype is last_dtype and code == last_code
        if not same or reduce_op != last_op or root != last_root:
            self._sign(ring, place, (code, dtype, shape, reduce_op, root))
        cells = ring.cells
        # This is `RingWriter.write` inlined.
        index = ring.next_index()
        at = FIRST_RECORD_CELL + index % CAPACITY * 8
        cells[at + 1] = next_index() if compared else 0
        cells[at + 2] = time_ns()
        cells[at + 3] = number
        cells[at + 4] = place.signature
        cells[at + 5] = place.site
        cells[at + 6] = size_bytes
        cells[at + 7] = count
        cells[at] = _CALL | (index & 0xFFFF) << 16 | code << 32
        cells[_CURSOR] = index + 1
        return number

    def is_of_ddp(self, group: Any, caller: Any) -> bool:
        """Whether DDP's C++ part issues this call to a known group. `caller`: the frame below, None in a thread of autograd's own.

        Such a call is on no line of the user's code, so it is not noted here. On a process group of comm, the observer notes the exchange.
        """
        if id(group) not in self.groups:
            return False
        if caller is None:
            return True
        file = caller.f_code.co_filename
        kind = self._kinds.get(file)
        return (self._classify(file) if kind is None else kind) == _DDP

    # -- what it is

    def _sign(self, ring: RingWriter, place: _CallSite, key: tuple[Any, ...]) -> None:
        signature = self._signatures.get(key)
        place.signature = self._new_signature(ring, key) if signature is None else signature
        place.key = key

    def _new_signature(self, ring: RingWriter, key: tuple[Any, ...]) -> int:
        code, dtype, shape, reduce_op, root = key
        operation = OPERATIONS[code]
        plain = {
            "operation": operation,
            "reduce_op": None if reduce_op is None else _reduce_op_name(reduce_op),
            "root": None if operation in _TO_ONE_PEER else root,
            "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
            "shape": None if shape is None else [int(size) for size in shape],
            "peer": root if operation in _TO_ONE_PEER[:2] else None,
        }
        if len(self._signatures) >= _MOST_ENTRIES:
            self._signatures.clear()
        number = self._signatures[key] = self._write(ring, "signature", plain)
        return number

    # -- where it stands

    def _lines(self, frame: Any) -> tuple[int, ...]:
        """A key for the user's line that led here and the line that called it. Without a user's line: a key for the package's line."""
        kinds = self._kinds
        users: tuple[int, ...] = ()
        installed: tuple[int, ...] = ()
        left = _FRAMES_TO_THE_FIRST
        while frame is not None and left:
            code = frame.f_code
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = self._classify(code.co_filename)
            if kind == _USERS:
                if users:
                    return (*users, id(code), frame.f_lasti)
                users = (id(code), frame.f_lasti)
                left = _FRAMES_FROM_THERE
            elif kind == _INSTALLED and not installed:
                installed = (id(code), frame.f_lasti)
            frame = frame.f_back
            left -= 1
        return users or installed

    def users_line(self, frame: Any) -> str:
        """The user's nearest line, as FILE:LINE; empty outside of the user's code."""
        kinds = self._kinds
        while frame is not None:
            file = frame.f_code.co_filename
            kind = kinds.get(file)
            if (self._classify(file) if kind is None else kind) == _USERS:
                return f"{_absolute(file)}:{line_of(frame)}"
            frame = frame.f_back
        return ""

    def _classify(self, file: str) -> int:
        if len(self._kinds) >= _MOST_ENTRIES:
            self._kinds.clear()
        kind = self._kinds[file] = _kind_of(file)
        return kind

    def _new_place(self, ring: RingWriter, lines: tuple[int, ...], frame: Any) -> _CallSite:
        outside = self.loops.is_outside(frame)
        found: list[tuple[str, int, str]] = []
        wanted = set(zip(lines[::2], lines[1::2], strict=True))
        while frame is not None and len(found) < len(wanted):
            code = frame.f_code
            if (id(code), frame.f_lasti) in wanted:
                self._kept.append(code)
                found.append((_absolute(code.co_filename), line_of(frame), code.co_qualname))
            frame = frame.f_back
        if len(self._places) >= _MOST_ENTRIES:
            self._places = {(): _CallSite(0)}
        (file, line, function), *callers = found
        called_from = [f"{file}:{line}" for file, line, _ in callers]
        place = self._places[lines] = _CallSite(self._write(ring, "site", file, line, function, called_from, outside))
        return place

    # -- among whom

    def _meet(self, ring: RingWriter, group: Any) -> tuple[int, Any, Any]:
        """Enter a process group at its first use. torch names groups by counting from 0; other names are hashed."""
        name, number = numbered(group.group_name, int(ring.cells[Cell.GROUP_COUNT]))
        if name not in self._by_name:
            self._by_name[name] = (number, itertools.count(1).__next__)
            self._write(ring, "group", name, _ranks_of(group), _backend_of(group), number=number)
        key, groups = id(group), self.groups
        # A function in C: what a signal handler raised in a callback of Python would be lost.
        gone = weakref.ref(group, partial(groups.pop, key))
        known = groups[key] = (*self._by_name[name], gone)
        return known

    def knows(self, name: str) -> bool:
        """Whether calls of a group with this name are noted here. `name`: as `numbered` returns it."""
        return name in self._by_name

    def describe_group(self, ring: RingWriter, name: str, number: int, ranks: list[int], backend: str) -> None:
        """Write who is in a group that is no process group of torch's. A later call replaces the description with a better one."""
        self._write(ring, "group", name, ranks, backend, number=number)

    def notice(self, ring: RingWriter, topic: str, text: str) -> None:
        """Write a notice for the user, see recording/string_table.py. The user sees it once, however many ranks write it."""
        self._write(ring, "notice", topic, text)

    def mark(self, ring: RingWriter, kind: str, facts: dict[str, Any]) -> None:
        """Write what this rank trains with, for comparison with the other ranks: a "replica" (replica.py) or a "sampler" (sampling.py)."""
        self._write(ring, kind, facts)

    def _write(self, ring: RingWriter, kind: str, *rest: Any, number: int | None = None) -> int:
        """Append a line to the file and return its number; 0 if the file has no room for it.

        The file is opened anew for each line: a descriptor that stays open may be closed by a script that becomes a daemon, and its
        number is then that of a file of the script's.
        """
        number = self._next_number() if number is None else number
        line = json.dumps([kind, number, *rest]).encode() + b"\n"
        if self._written + len(line) > MOST_TEXT_BYTES:
            return 0
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(ring.path.with_suffix(".texts"), flags, 0o600)
            try:
                self._written += os.write(file, line)
            finally:
                os.close(file)
        except OSError:
            # The disk is full: the recording has the call, but not what the call is.
            return 0
        return number


def numbered(name: str, initialisation: int) -> tuple[str, int]:
    """A group's name and number in this process's recording, the same on every rank of it.

    torch names groups by counting from 0, and starts again at 0 when a process initialises its groups again. Other names are hashed.
    """
    number = 1 + (int(name) if name.isdigit() else zlib.crc32(name.encode()))
    if initialisation > 1:
        return f"{name}{AGAIN}{initialisation}", number + (initialisation << 40)
    return name, number


def _absolute(file: str) -> str:
    try:
        return os.path.abspath(file)
    except OSError:
        # The directory in which the process was started is deleted.
        return file


def _kind_of(file: str) -> int:
    """Whether a file belongs to the user, to an installed package, or to the code between user code and this module."""
    if file.startswith("<"):
        return _USERS if file in ("<string>", "<stdin>") else _OTHERS
    path = _absolute(file)
    torch_directory = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    if path.startswith(torch_directory):
        return _DDP if path.removeprefix(torch_directory) in _ISSUED_BELOW else _OTHERS
    if path.startswith(os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep):
        return _OTHERS
    if f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path:
        return _INSTALLED
    if path.startswith(os.path.dirname(os.path.abspath(os.__file__)) + os.sep):
        return _OTHERS
    return _USERS


def _reduce_op_name(value: int) -> str:
    from torch._C import _distributed_c10d as c10d

    for name, member in c10d.ReduceOp.RedOpType.__members__.items():
        if hash(c10d.ReduceOp(member)) == value:
            return str(name)
    return str(value)


def _ranks_of(group: Any) -> list[int]:
    try:
        return list(sys.modules["torch.distributed"].get_process_group_ranks(group))
    except Exception as error:
        let_through(error)
        # torch.distributed does not know this group: its ranks stay unknown, and everything else works.
        return []


def _backend_of(group: Any) -> str:
    try:
        return str(sys.modules["torch.distributed"].get_backend(group))
    except Exception as error:
        let_through(error)
        return ""
