"""What tells a process from a later one of the same pid, and a machine from itself before it was restarted. Standard library only."""

import os


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process, or a dead one.

    A pid alone is used again; a pid with its start is not.
    Source:  proc(5), /proc/PID/stat, field 22
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The command, field 2, may itself hold spaces and brackets: count from its last bracket. Field 3 is the state.
    fields = stat.rpartition(b")")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def boot_id() -> str | None:
    """This start of this machine's kernel, the same in each of its containers; None where the kernel does not say.

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
