"""A run seen from outside: its processes, the ring and the state buffer of each rank, what a rank is doing now."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from paceline.parts.resume.recording.state_buffer import Keeping, StateCell, StateHeader
from paceline.probes.stacks import Frame, dump
from paceline.recording.ring import NotARing, RingHeader, RingReader

MARK = "RESUME_TEST_MARK"
_STATE_BUFFER = "memfd:paceline-state"
# Memory that a rank has handed over, or its file where the rank was there before the agent listened.
_RING = r"memfd:paceline-ring|\.ring\b"
_SECONDS_FOR_A_STACK = 5.0
# Descriptors are looked through no more often: a phase that a rank is to be killed in may last a millisecond.
_LOOKED_AGAIN_SECONDS = 0.05


@dataclass
class Run:
    """The processes of one `paceline run`, by the mark in their environment."""

    mark: str
    host_count: int = 1
    _headers: dict[int, StateHeader] = field(default_factory=dict)
    # Inode -> the ring, and the agent that holds it.
    _rings: dict[int, RingReader] = field(default_factory=dict)
    _agents: dict[int, int] = field(default_factory=dict)
    _looked: float = 0.0

    def processes(self) -> list[int]:
        """Every process of the run that lives."""
        needle = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if needle in _environment(pid) and is_alive(pid)]

    def ranks(self) -> dict[int, RingHeader]:
        """The ranks of the newest attempt that live, by rank."""
        found = [header for header in self._ring_headers() if is_alive(header.pid)]
        newest = max((header.attempt for header in found), default=0)
        return {header.rank: header for header in found if header.attempt == newest}

    def headers(self, ranks: dict[int, RingHeader]) -> dict[int, StateHeader]:
        """The state buffers of these ranks, by rank; empty where they keep no state."""
        by_pid = {header.cells[StateCell.PID]: header for header in self._headers.values()}
        if any(header.pid not in by_pid for header in ranks.values()):
            self._look_for_buffers()
            by_pid = {header.cells[StateCell.PID]: header for header in self._headers.values()}
        return {rank: by_pid[header.pid] for rank, header in ranks.items() if header.pid in by_pid}

    def all_headers(self) -> list[StateHeader]:
        """Every state buffer that was seen, also those of ranks that are no more."""
        return list(self._headers.values())

    def loader_workers(self, pid: int) -> list[int]:
        """The processes that load data for this rank."""
        return [child for child in children(pid) if not _is_tracker(child)]

    def hosts(self) -> list[list[int]]:
        """The ranks of each host, which has an agent of its own."""
        by_agent: dict[int, list[int]] = {}
        alive = {header.pid: rank for rank, header in self.ranks().items()}
        for inode, ring in self._rings.items():
            if (pid := ring.header().pid) in alive:
                by_agent.setdefault(self._agents[inode], []).append(alive[pid])
        return list(by_agent.values())

    def close(self) -> None:
        for reader in self._rings.values():
            reader.close()
        for header in self._headers.values():
            os.close(header.descriptor)

    def _ring_headers(self) -> Iterator[RingHeader]:
        if time.monotonic() - self._looked > _LOOKED_AGAIN_SECONDS:
            self._look_for_rings()
            self._looked = time.monotonic()
        for reader in self._rings.values():
            with suppress(NotARing, OSError):
                yield reader.header()

    def _look_for_rings(self) -> None:
        agents = {agent for agent in self._agents.values() if is_alive(agent)}
        for agent in agents if len(agents) >= self.host_count else self.processes():
            for inode, link in _open_files(agent, _RING):
                if inode not in self._rings:
                    with suppress(NotARing, OSError):
                        self._rings[inode] = RingReader(link, os.open(link, os.O_RDONLY | os.O_CLOEXEC))
                        self._agents[inode] = agent

    def _look_for_buffers(self) -> None:
        for pid in self.processes():
            for inode, link in _open_files(pid, _STATE_BUFFER):
                if inode not in self._headers:
                    with suppress(OSError, ValueError):
                        self._headers[inode] = StateHeader(os.open(link, os.O_RDWR | os.O_CLOEXEC))


@dataclass
class FollowedFile:
    """A file of lines that is appended to, and cut when steps are made again."""

    path: Path
    written: list[str] = field(default_factory=list)
    """Every line that was ever in it, those that were cut as well, in the order of their writing."""
    _content: bytes = b""
    _looked: tuple[int, int] = (0, 0)

    def look(self) -> None:
        """Take in what was written since the last look."""
        try:
            found = self.path.stat()
            if (found.st_size, found.st_mtime_ns) == self._looked:
                return
            content = self.path.read_bytes()
        except OSError:
            return
        self._looked = found.st_size, found.st_mtime_ns
        content = content[: content.rfind(b"\n") + 1]
        same = len(os.path.commonprefix([content, self._content]))  # noqa: RUF071
        same = content.rfind(b"\n", 0, same) + 1
        self.written += content[same:].decode(errors="replace").splitlines()
        self._content = content


@dataclass
class Stopped:
    """A rank that stands still while it is looked at, so that what was seen is true when it is killed."""

    pid: int

    def __enter__(self) -> "Stopped":
        _send(self.pid, signal.SIGSTOP)
        until = time.monotonic() + 1.0
        while _state(self.pid) not in ("T", "t", "Z", "") and time.monotonic() < until:
            pass
        return self

    def __exit__(self, *_: object) -> None:
        _send(self.pid, signal.SIGCONT)

    def stack(self) -> tuple[Frame, ...]:
        """The frames of the main thread; empty: it has none now.

        Raises:  RuntimeError: no process can be looked into here
        """
        found = dump(self.pid, timeout_seconds=_SECONDS_FOR_A_STACK)
        if found.threads is None and is_alive(self.pid) and "py-spy" in found.reason and "installed" in found.reason:
            raise RuntimeError(found.reason)
        return found.main.frames if found.main is not None else ()


def is_in(frames: tuple[Frame, ...], file: str, function: str) -> bool:
    """Is one of the frames in such a file and function? Both are patterns."""
    return any(re.search(file, frame.file or "") and re.fullmatch(function, frame.function) for frame in frames)


def is_writing(header: StateHeader) -> bool:
    """One slot is sealed and the other one, which was, is being written."""
    cells = header.cells
    steps = cells[StateCell.STEP_0], cells[StateCell.STEP_1]
    return cells[StateCell.KEEPING] == Keeping.KEPT and 0 in steps and max(steps) > 1


def is_sealed_without_batch(header: StateHeader) -> bool:
    """The newest slot is sealed, and the checksum of the batch that comes next is not there yet."""
    slots = header.slots()
    return len(slots) == 2 and slots[0].batch_crc is None and slots[1].batch_crc is not None


def children(pid: int) -> list[int]:
    """The processes that a process started and that live."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return [child for child in found if is_alive(child)]


def is_alive(pid: int) -> bool:
    """It is there and has not ended."""
    return _state(pid) not in ("Z", "X", "")


def command(pid: int) -> str:
    """Its command line; empty: it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> bool:
    """SIGKILL. False: it was gone."""
    return _send(pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _is_tracker(pid: int) -> bool:
    return "resource_tracker" in command(pid)


def _open_files(pid: int, name: str) -> Iterator[tuple[int, Path]]:
    """Inode and link of each file with such a name, a pattern, that a process has open."""
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            if re.search(name, os.readlink(link)):
                yield link.stat().st_ino, link


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
