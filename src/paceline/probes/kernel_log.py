"""What the kernel's log says about processes it killed for memory."""

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

_RECORD_BYTES = 8192
_KILLED = re.compile(
    r"(?P<scope>Memory cgroup out of memory|Out of memory)[^:]*: Killed process (?P<pid>\d+)"
    r"(?: \((?P<name>.*?)\)(?=,| total-vm|$))?(?:.*?total-vm:(?P<virtual>\d+)kB)?(?:.*?anon-rss:(?P<anonymous>\d+)kB)?"
    r"(?:.*?file-rss:(?P<file>\d+)kB)?(?:.*?shmem-rss:(?P<shared>\d+)kB)?"
)
_DMESG = re.compile(r"\[\s*(\d+\.\d+)\] (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One line of the kernel's log."""

    seconds: float
    """Time since the machine started."""
    text: str
    """The line without its timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLines:
    """The lines of the kernel's log that could be read."""

    lines: tuple[KernelLine, ...]
    """The lines."""
    reason: str = ""
    """Why there are none; "" otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """One process that the kernel killed for memory."""

    pid: int
    """Its process id, as the kernel printed it."""
    name: str
    """Its name."""
    in_group: bool
    """A control group was full, not the whole host."""
    resident_bytes: int | None
    """Its resident memory, if the line has it."""


def parse_kmsg(records: Iterable[str]) -> tuple[KernelLine, ...]:
    """Lines of /dev/kmsg records, `priority,sequence,microseconds,flags;text`; the ` KEY=value` lines are left out."""
    lines = []
    for record in records:
        head, semicolon, text = record.partition(";")
        fields = head.split(",")
        if semicolon and len(fields) >= 3 and fields[2].isdigit():
            lines.append(KernelLine(seconds=int(fields[2]) / 1e6, text=text.split("\n", 1)[0]))
    return tuple(lines)


def parse_dmesg(text: str) -> tuple[KernelLine, ...]:
    """Lines of `dmesg` in its plain form, `[  12.345678] text`."""
    matches = (_DMESG.match(line) for line in text.splitlines())
    return tuple(KernelLine(seconds=float(match[1]), text=match[2]) for match in matches if match)


def oom_kills(lines: Iterable[KernelLine]) -> tuple[OomKill, ...]:
    """Every process that these lines say was killed for memory."""
    matches = (_KILLED.search(line.text) for line in lines)
    return tuple(
        OomKill(
            pid=int(match["pid"]),
            name=match["name"] or "",
            in_group=match["scope"].startswith("Memory cgroup"),
            resident_bytes=_resident_bytes(match),
        )
        for match in matches
        if match
    )


def read_kernel_lines(since_seconds: float = 0.0) -> KernelLines:
    """The kernel's log from `since_seconds` on (time.monotonic()'s clock); never waits for a new line."""
    try:
        lines = parse_kmsg(_read_kmsg())
    except OSError as error:
        return _read_dmesg(since_seconds, reason=f"/dev/kmsg: {error.strerror}")
    return KernelLines(lines=tuple(line for line in lines if line.seconds >= since_seconds))


def _read_kmsg() -> list[str]:
    records = []
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                records.append(os.read(descriptor, _RECORD_BYTES).decode(errors="replace"))
            except BlockingIOError:
                return records
            except BrokenPipeError:
                # The next record was overwritten while we read; the one after it is there.
                continue
    finally:
        os.close(descriptor)


def _read_dmesg(since_seconds: float, reason: str) -> KernelLines:
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return KernelLines(lines=(), reason=reason)
    if done.returncode != 0:
        return KernelLines(lines=(), reason=f"{reason}; {done.stderr.strip()}")
    return KernelLines(lines=tuple(line for line in parse_dmesg(done.stdout) if line.seconds >= since_seconds))


def _resident_bytes(match: re.Match[str]) -> int | None:
    parts = [int(match[name]) for name in ("anonymous", "file", "shared") if match[name]]
    return sum(parts) * 1024 if parts else None
