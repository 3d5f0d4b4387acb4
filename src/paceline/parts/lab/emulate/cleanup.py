"""Tags emulated namespaces and cgroups with their owner, and removes those whose owner has died."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from paceline.parts.lab.emulate.namespace_holder import end_neighbours, remove_group
from paceline.probes.cgroup import parse_mounts
from paceline.probes.processes import read_stat

_PREFIX = "paceline-"
_HOLDER = b"paceline.parts.lab.emulate.namespace_holder import main"
_GIVE_UP_SECONDS = 5.0
_numbers = itertools.count(1)


def creators_mark() -> str:
    """A unique name for what this process creates: its pid, its start time (pids are reused), and a counter."""
    stat = read_stat(os.getpid())
    return f"{_PREFIX}{os.getpid()}-{stat.start_ticks if stat else 0}-{next(_numbers)}"


def is_orphan(mark: str) -> bool:
    """Whether the process that made this name has ended. False for a name that paceline did not make."""
    fields = mark.removeprefix(_PREFIX).split("-")
    if not mark.startswith(_PREFIX) or len(fields) != 3 or not all(field.isdecimal() for field in fields):
        return False
    stat = read_stat(int(fields[0]))
    return stat is None or stat.state == "Z" or stat.start_ticks != int(fields[1])


def sweep() -> list[str]:
    """Remove the hosts and control groups of dead creators. Returns a readable line for each."""
    gone = []
    # Hosts end by themselves after their creator has died. After the deadline, hosts that hang are killed.
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while list(_orphaned_keepers()) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid, mark in _orphaned_keepers():
        end_neighbours(pid)
        _end(pid)
        gone.append(f"host kept by pid {pid} ({mark})")
    for directory in _orphaned_groups():
        if remove_group(directory):
            gone.append(str(directory))
    return gone


def _orphaned_keepers() -> Iterator[tuple[int, str]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                argv = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if len(argv) > 5 and _HOLDER in argv[4] and is_orphan(argv[5].decode(errors="replace")):
                yield int(entry), argv[5].decode()


def _orphaned_groups() -> Iterator[Path]:
    for mount in parse_mounts(Path("/proc/self/mountinfo").read_text()):
        for folder, inner, _ in os.walk(mount.point):
            for name in inner:
                if is_orphan(name):
                    yield Path(folder, name)


def _end(pid: int) -> None:
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while read_stat(pid) is not None and time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.01)
