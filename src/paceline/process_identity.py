"""Distinguishes a process from a later one with the same pid, and a machine from itself before a restart. Standard library only."""

import os


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is no such process, or if it is dead.

    Pids are reused. A pid together with its start time is not.
    Source:  proc(5), /proc/PID/stat, field 22
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # Field 2, the command, may contain spaces and brackets. So count from its last bracket; field 3 is the state.
    fields = stat.rpartition(b")")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def boot_id() -> str | None:
    """The id of this boot of the kernel, the same in each container of the machine; None if the kernel does not tell.

    Source:  random(4), /proc/sys/kernel/random/boot_id
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def machine_key() -> str:
    """A string that is equal for processes of the same machine and different otherwise: host name and boot."""
    return f"{os.uname().nodename} {boot_id() or ''}"
