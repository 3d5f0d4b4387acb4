"""Limits the CPU, memory and number of a group of processes, with control groups of version 1 or 2."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.parts.lab.emulate.cleanup import creators_mark
from paceline.parts.lab.emulate.namespace_holder import remove_group
from paceline.probes.cgroup import control_group

__all__ = ["Limited", "cpu_limit", "memory_limit", "process_limit"]

_PERIOD_MICROSECONDS = 100_000


@dataclass(frozen=True, slots=True)
class Limited:
    """A control group with a limit. An added process, and every process that it starts later, shares the limit."""

    directory: Path
    """The path of the control group, below /sys/fs/cgroup."""

    def add(self, pid: int | None = None) -> None:
        """Move one process into the group; without `pid`, this process."""
        (self.directory / "cgroup.procs").write_text(str(pid or os.getpid()))


@contextmanager
def cpu_limit(cpus: float) -> Iterator[Limited]:
    """A group whose processes get this many CPUs' worth of time in every tenth of a second, and are throttled for the rest of it.

    Raises:  UsageError U23: not root, or the cpu controller is not available
    Source:  kernel Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst
    """
    with _limited("cpu", cpu_settings(cpus)) as group:
        yield group


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Limited]:
    """A group whose processes the kernel OOM-kills when together they need more memory, including swap.

    Raises:  UsageError U23: not root, or the memory controller is not available
    """
    with _limited("memory", memory_settings(limit_bytes)) as group:
        yield group


@contextmanager
def process_limit(count: int) -> Iterator[Limited]:
    """A group in which fork and pthread_create fail when it has this many processes and threads.

    Raises:  UsageError U23: not root, or the pids controller is not available
    """
    with _limited("pids", {1: {"pids.max": str(count)}, 2: {"pids.max": str(count)}}) as group:
        yield group


def cpu_settings(cpus: float) -> dict[int, dict[str, str]]:
    """Version of control groups -> file -> the value to write."""
    quota = max(1000, round(cpus * _PERIOD_MICROSECONDS))
    return {
        1: {"cpu.cfs_period_us": str(_PERIOD_MICROSECONDS), "cpu.cfs_quota_us": str(quota)},
        2: {"cpu.max": f"{quota} {_PERIOD_MICROSECONDS}"},
    }


def memory_settings(limit_bytes: int) -> dict[int, dict[str, str]]:
    """Version of control groups -> file -> the value to write. A file that does not exist (no swap accounting) is left out."""
    return {
        1: {"memory.limit_in_bytes": str(limit_bytes), "memory.memsw.limit_in_bytes": str(limit_bytes)},
        2: {"memory.max": str(limit_bytes), "memory.swap.max": "0"},
    }


@contextmanager
def _limited(controller: str, settings: Mapping[int, Mapping[str, str]]) -> Iterator[Limited]:
    above = control_group(controller)
    if above is None:
        raise _refused(controller, f"no {controller} controller is mounted")
    directory = above.directory / creators_mark()
    try:
        try:
            if above.version == 2:
                # This takes effect only in a group without processes of its own, or in the root group.
                (above.directory / "cgroup.subtree_control").write_text(f"+{controller}")
            directory.mkdir()
            apply_settings(directory, settings[above.version])
        except OSError as error:
            raise _refused(controller, f"{error.filename or directory}: {error.strerror}") from error
        yield Limited(directory)
    finally:
        remove_group(directory)


def apply_settings(directory: Path, settings: Mapping[str, str]) -> None:
    """Write each file that exists. The first file must exist.

    Raises:  OSError: the kernel refused a value
    """
    for place, (name, value) in enumerate(settings.items()):
        if place == 0 or (directory / name).exists():
            (directory / name).write_text(value)


def _refused(controller: str, saw: str) -> UsageError:
    return UsageError(
        "U23",
        f"a {controller} limit cannot be set here",
        saw=saw if os.geteuid() == 0 else f"{saw} (user {os.geteuid()}, not root)",
        next="run it as root, on a machine whose control groups can be written to",
    )
