"""The facts of /proc about one process: state of every thread, the system call that it waits in, limits, and moved bytes."""

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.probes.system_calls import PAGE_FAULT, RUNNING, SystemCall, parse_system_call

_MOST_THREADS = 128
_MOST_DESCRIPTORS = 4096
_PATH_BYTES = 512
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStatus:
    """State of one thread."""

    state: str
    """State letter."""
    voluntary_switches: int
    """How often it gave up its CPU."""
    involuntary_switches: int
    """How often it lost its CPU."""
    tracer_pid: int = 0
    """Process id of its debugger; 0: none."""
    name: str = ""
    """Its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsStatus:
    """The threads of one process."""

    main: ThreadStatus
    """The main thread."""
    states: dict[str, int]
    """State -> number of threads in it."""
    voluntary_switches: int
    """Voluntary context switches of all threads."""
    involuntary_switches: int
    """Involuntary context switches of all threads."""
    whole: bool
    """All threads were read; False: there are more."""
    in_disk_sleep: tuple[int, ...] = ()
    """Ids of threads in state D, without the main thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedIn:
    """What a thread waits in."""

    channel: str | None = None
    """Kernel function."""
    call: str | None = None
    """Name of the system call."""
    on: str | None = None
    """Path, mount or peer of the system call; None: not known."""
    device: str | None = None
    """Of a path: the device below its mount, major:minor; None: not known."""
    missing: tuple[str, ...] = ()
    """What could not be read, and why."""


@dataclass(frozen=True, slots=True)
class MountPoint:
    point: str
    kind: str
    source: str
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Soft limits of one process. None: unlimited."""

    open_files: int | None = None
    """Number of open files."""
    processes: int | None = None
    """Number of processes of its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    """The open files of one process."""

    count: int
    """Number of open files."""
    targets: Mapping[int, str] = field(default_factory=dict)
    """Descriptor -> what it refers to."""
    inodes: frozenset[int] = frozenset()
    """Inodes of its sockets."""


def parse_status(text: str) -> ThreadStatus:
    """/proc/PID/status or that of one thread.

    Raises:  ValueError: its fields are not there
    """
    values = {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    try:
        return ThreadStatus(
            state=values["State"][:1],
            voluntary_switches=int(values.get("voluntary_ctxt_switches", 0)),
            involuntary_switches=int(values.get("nonvoluntary_ctxt_switches", 0)),
            tracer_pid=int(values.get("TracerPid", 0)),
            name=values.get("Name", ""),
        )
    except KeyError as error:
        raise ValueError(f"no {error} in /proc/PID/status") from None


def parse_caught_signals(text: str) -> frozenset[int]:
    """The signals of /proc/PID/status for which the process has a handler.

    Source:  proc(5), SigCgt: a mask in hexadecimal digits, whose lowest bit is signal 1
    """
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
    return frozenset(number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1)


def read_caught_signals(pid: int) -> frozenset[int]:
    """The signals for which a process has a handler; none if there is no such process."""
    try:
        return parse_caught_signals(Path(f"/proc/{pid}/status").read_text(errors="replace"))
    except OSError:
        return frozenset()


def parse_limits(text: str) -> ProcessLimits:
    """The two limits of /proc/PID/limits that training runs into."""
    soft: dict[str, int | None] = {}
    for line in text.splitlines():
        for name in ("Max open files", "Max processes"):
            if line.startswith(name):
                word = [*line[len(name) :].split(), ""][0]
                soft[name] = int(word) if word.isdigit() else None
    return ProcessLimits(open_files=soft.get("Max open files"), processes=soft.get("Max processes"))


def parse_mount_points(text: str) -> tuple[MountPoint, ...]:
    """Every mount of /proc/PID/mountinfo in its order: of two mounts on one point the later one is visible."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if dash and len(fields) >= 5 and len(kinds) >= 2:
            mounts.append(MountPoint(_unescaped(fields[4]), kinds[0], _unescaped(kinds[1]), fields[2]))
    return tuple(mounts)


def mount_of(path: str, mounts: tuple[MountPoint, ...]) -> MountPoint | None:
    """The mount that a path is on.

    Holds:  the longest point that begins the path wins; of equal ones the last
    """
    best: MountPoint | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def parse_environment(data: bytes) -> dict[str, str]:
    """/proc/PID/environ: the variables that the process was started with."""
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def on_what(
    call: SystemCall, targets: Mapping[int, str], mounts: tuple[MountPoint, ...], path: str | None
) -> tuple[str | None, str | None]:
    """What a system call waits for, as text: the path of its argument or of its descriptor, with its mount; and the mount's device.

    `path`: what its path argument pointed to, already read.
    """
    target = (
        path if call.path_address is not None else targets.get(call.descriptor) if call.descriptor is not None else None
    )
    if target is None or not target.startswith("/"):
        return target, None
    mount = mount_of(target, mounts)
    return (target, None) if mount is None else (f"{target} ({mount.kind} on {mount.point})", mount.device)


def read_threads(pid: int) -> ThreadsStatus | None:
    """State and switches of every thread; None when the process is gone."""
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        main = parse_status(Path(f"/proc/{pid}/task/{pid}/status").read_text(errors="replace"))
    except (OSError, ValueError):
        return None
    states, voluntary, involuntary = {main.state: 1}, main.voluntary_switches, main.involuntary_switches
    sleeping: list[int] = []
    others = [thread for thread in threads if thread != pid]
    for thread in others[:_MOST_THREADS]:
        try:
            status = parse_status(Path(f"/proc/{pid}/task/{thread}/status").read_text(errors="replace"))
        except (OSError, ValueError):
            continue
        states[status.state] = states.get(status.state, 0) + 1
        voluntary += status.voluntary_switches
        involuntary += status.involuntary_switches
        if status.state == "D":
            sleeping.append(thread)
    return ThreadsStatus(
        main=main,
        states=states,
        voluntary_switches=voluntary,
        involuntary_switches=involuntary,
        whole=len(others) <= _MOST_THREADS,
        in_disk_sleep=tuple(sleeping),
    )


def read_waiting(pid: int, targets: Mapping[int, str], thread: int | None = None) -> BlockedIn:
    """What a thread (the main one) waits in and for, as far as this process may read it."""
    base = f"/proc/{pid}/task/{thread or pid}"
    missing: list[str] = []
    channel = _text(f"{base}/wchan", missing)
    text = _text(f"{base}/syscall", missing)
    call = parse_system_call(text, platform.machine()) if text else None
    on, device = None, None
    if call is not None and call.name not in (RUNNING, PAGE_FAULT):
        path = _argument_path(pid, call.path_address, missing) if call.path_address is not None else None
        on, device = on_what(call, targets, read_mounts(pid), path)
    return BlockedIn(
        channel=None if channel in (None, "", "0") else channel,
        call=None if call is None else call.name,
        on=on,
        device=device,
        missing=tuple(missing),
    )


def read_descriptors(pid: int) -> Descriptors | None:
    """The open files of a process, without opening their targets; None if they may not be read."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    targets = {}
    for name in names[:_MOST_DESCRIPTORS]:
        try:
            targets[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
    inodes = (match for target in targets.values() if (match := _SOCKET.fullmatch(target)))
    return Descriptors(count=len(names), targets=targets, inodes=frozenset(int(match[1]) for match in inodes))


def read_mounts(pid: int) -> tuple[MountPoint, ...]:
    """The mounts as the process sees them; its own namespace may show others than ours."""
    return parse_mount_points(_text(f"/proc/{pid}/mountinfo", []) or "")


def read_limits(pid: int) -> ProcessLimits | None:
    text = _text(f"/proc/{pid}/limits", [])
    return None if text is None else parse_limits(text)


def read_environment(pid: int) -> dict[str, str] | None:
    """The variables that the process was started with; None if they may not be read."""
    try:
        return parse_environment(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return None


def read_name(pid: int) -> str:
    """The short name of a process, as the kernel keeps it; empty when it is gone."""
    return (_text(f"/proc/{pid}/comm", []) or "").strip()


def read_command(pid: int) -> str:
    """The command line of a process; empty for a thread of the kernel and when it is gone."""
    return (_text(f"/proc/{pid}/cmdline", []) or "").replace("\0", " ").strip()


def namespace(pid: int | str, kind: str) -> str | None:
    """The namespace ("net", "mnt") of a process; None if it may not be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None


def _argument_path(pid: int, address: int, missing: list[str]) -> str | None:
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        missing.append(f"the path it opens: {error.strerror}")
        return None
    try:
        data = os.pread(descriptor, _PATH_BYTES, address)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.partition(b"\0")[0].decode(errors="replace") or None


def _text(path: str, missing: list[str]) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except PermissionError:
        missing.append(f"{path.rpartition('/')[2]}: may not be read (it needs the rights of ptrace)")
    except OSError:
        pass
    return None


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
