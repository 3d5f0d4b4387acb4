"""What /proc and memory say about the processes of this host, as far as it tells ranks of training jobs. Nothing is sent to a process."""

import os
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from paceline.attach.launchers import PYTHONS
from paceline.attach.rank_numbers import MOST_LOCAL, allowed, number
from paceline.probes.process_status import namespace, parse_environment
from paceline.probes.processes import read_stat
from paceline.probes.remote_memory import RemoteMemory, environment_now
from paceline.probes.stacks import read_locals

Read = Callable[[str, int], bytes]
"""Reads a file of /proc, at most so many bytes of it. One that gives up raises TimeoutError."""
_ENVIRON_BYTES, _COMMAND_BYTES, _STATUS_BYTES, _MAPS_BYTES = 1 << 20, 1 << 12, 1 << 13, 16 << 20
_MOST_WORDS, _LONGEST_WORD = 64, 512
_LIBRARIES = (b"/libtorch_cpu.so", b"/libtorch_python.so")
_ASKED_AT_ONCE = 4
_SPAWN_FILE = "torch/multiprocessing/spawn.py"
ENDED = "ZX"
"""States of a process that has ended."""
GONE = "X"
"""The state of a process that its parent has waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process."""

    pid: int
    """Its pid here."""
    parent: int
    """Its parent's; 0: none, or one outside of this pid namespace."""
    start_ticks: int
    """When it started, in clock ticks since boot."""
    user: int
    """Its real uid."""
    state: str = "S"
    """As in /proc/PID/stat."""
    inner_pids: tuple[int, ...] = ()
    """Its pids in the pid namespaces below this one, innermost last."""
    command: tuple[str, ...] = ()
    """Its command line; empty: a zombie, or it was not read."""
    started: Mapping[str, str] | None = None
    """The variables that it was started with, those that are kept; None: they were not read."""
    now: Mapping[str, str] | None = None
    """The same, as they are now; None: not asked for, or they may not be read."""
    refused: str = ""
    """Why `started` or `now` could not be read."""
    is_python: bool = False
    """Its program is a Python."""
    has_torch: bool = False
    """A library of torch is in its memory."""
    spawn_index: int | None = None
    """The number that torch.multiprocessing.spawn gave it."""
    network: str | None = None
    """Its network namespace; None: not known."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Its variables now, else those of its start."""
        return self.now if self.now is not None else self.started or {}


def read_at_most(path: str, most_bytes: int) -> bytes:
    """The first bytes of a file. The read lasts as long as the kernel makes it last.

    Raises:  OSError
    """
    with open(path, "rb", buffering=0) as file:
        found = bytearray()
        while len(found) < most_bytes and (piece := file.read(min(1 << 16, most_bytes - len(found)))):
            found += piece
    return bytes(found)


def read_rows(users: Collection[int] | None, read: Read) -> dict[int, ProcessRow]:
    """Every process of this host but this one, in full those of these users; None: of all. `has_torch` and `now` are not read yet."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    rows = (read_row(pid, users, read) for pid in pids)
    return {row.pid: row for row in rows if row is not None}


def read_row(pid: int, users: Collection[int] | None, read: Read) -> ProcessRow | None:
    """The same of one process; None: it is gone."""
    stat = read_stat(pid)
    try:
        status = dict(
            line.split(b":", 1) for line in read(f"/proc/{pid}/status", _STATUS_BYTES).splitlines() if b":" in line
        )
        user = int(status[b"Uid"].split()[0])
    except (OSError, KeyError, ValueError, IndexError):
        return None
    if stat is None:
        return None
    row = ProcessRow(
        pid=pid,
        parent=stat.parent,
        start_ticks=stat.start_ticks,
        user=user,
        state=stat.state,
        inner_pids=tuple(int(word) for word in status.get(b"NSpid", b"").split()[1:]),
    )
    # A process that is dying has no memory any more. A thread of the kernel has no parent but the one that makes them.
    if stat.state in ENDED or stat.resident_bytes == 0:
        return row
    try:
        row = replace(row, command=_command(pid, read))
    except TimeoutError as error:
        # Nothing else that is in its memory would come either.
        return replace(row, refused=_refusal(error))
    if users is None or user in users:
        row = _with_environment(row, read)
    row = _checked(row)
    return row if row.state != GONE else None


def with_memory(row: ProcessRow, read: Read, environment_of: Callable[[int], Mapping[str, str]]) -> ProcessRow:
    """The row, with whether torch is in its memory, and then with its variables as they are now."""
    try:
        maps = read(f"/proc/{row.pid}/maps", _MAPS_BYTES)
        # A program with a Python in it may be a rank before it has come to `import torch`.
        row = replace(row, is_python=row.is_python or b"/libpython3" in maps)
        if any(name in maps for name in _LIBRARIES):
            row = replace(row, has_torch=True)
            row = replace(row, now=allowed(environment_of(row.pid)))
    except OSError as error:
        row = replace(row, refused=_refusal(error))
    return _checked(row)


def read_environment_now(pid: int) -> dict[str, str]:
    """The variables of a process as they are now.

    Raises:  OSError: they may not be read
    """
    return environment_now(RemoteMemory(pid))


def spawn_indices(pids: Collection[int], seconds: float) -> dict[int, int | None]:
    """pid -> the number that torch.multiprocessing.spawn gave the process; None: its stack is of something else.

    A process whose stack could not be read within `seconds` is left out.
    """
    deadline = time.monotonic() + seconds

    def ask(pid: int) -> dict[str, str] | None:
        left = deadline - time.monotonic()
        return read_locals(pid, "_wrap", _SPAWN_FILE, ("i",), timeout_seconds=left) if left > 0 else None

    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        answers = zip(pids, pool.map(ask, pids), strict=True)
        return {pid: spawn_index(values) for pid, values in answers if values is not None}


def spawn_index(values: Mapping[str, str]) -> int | None:
    """The argument `i` of torch.multiprocessing.spawn._wrap, of its variables; None: there is none, or none that can be a rank's."""
    index = number(values.get("i"))
    return index if index is not None and index < MOST_LOCAL else None


def _with_environment(row: ProcessRow, read: Read) -> ProcessRow:
    try:
        started = allowed(parse_environment(read(f"/proc/{row.pid}/environ", _ENVIRON_BYTES)))
        program = os.path.basename(os.readlink(f"/proc/{row.pid}/exe"))
    except OSError as error:
        return replace(row, refused=_refusal(error))
    return replace(row, started=started, is_python=program.startswith(PYTHONS), network=namespace(row.pid, "net"))


def _checked(row: ProcessRow) -> ProcessRow:
    """The row, if all that was read is of one process that lives; else that it has ended."""
    after = read_stat(row.pid)
    if after is None or after.start_ticks != row.start_ticks:
        return replace(row, state=GONE, refused="")
    return replace(row, state=after.state, refused="") if after.state in ENDED else row


def _command(pid: int, read: Read) -> tuple[str, ...]:
    try:
        text = read(f"/proc/{pid}/cmdline", _COMMAND_BYTES).decode(errors="replace")
    except TimeoutError:
        raise
    except OSError:
        return ()
    words = text.removesuffix("\0").split("\0")[:_MOST_WORDS] if text else []
    return tuple(word[:_LONGEST_WORD] for word in words)


def _refusal(error: OSError) -> str:
    return "does not answer" if isinstance(error, TimeoutError) else error.strerror or type(error).__name__
