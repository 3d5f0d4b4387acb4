"""Whether this process may read the memory of another one, and if not, which rule forbids it and the one command that would allow it."""

import errno
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.probes.remote_memory import RemoteMemory, Unreadable, mapped_files

_CAP_SYS_PTRACE = 1 << 19
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_WITHOUT = "without it: which ranks wait and which work, by the kernel; not their lines, nor their collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    user: int
    """Its uid."""
    scope: int
    """Yama's ptrace_scope; 0 where there is no Yama."""
    is_in_container: bool = False
    """Its capabilities were cut to less than a machine's root has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What the permission does not allow."""

    saw: str
    """The rule that forbids it."""
    next: str
    """The one command that would allow it."""
    without: str = _WITHOUT
    """What can be had without it."""


def refusal_of(pid: int, command: Sequence[str]) -> Refusal | None:
    """Why the memory and the stacks of a process may not be read; None: they may. `command`: what to type again with more rights."""
    if not _is_refused(pid):
        return None
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    return explained(_this_caller(), owner, command)


def explained(caller: Caller, owner: int, command: Sequence[str]) -> Refusal:
    """Which rule forbids this caller to read the memory of a process of uid `owner`. Pure.

    Source:  ptrace(2), "Ptrace access mode checking"; Linux, Documentation/admin-guide/LSM/Yama.rst
    """
    again = shlex.join(command)
    in_container = "docker run --cap-add SYS_PTRACE, or kubectl debug --profile=sysadmin"
    if caller.user == 0:
        return Refusal(saw="root without CAP_SYS_PTRACE, as in a container", next=in_container)
    if caller.user != owner:
        return Refusal(saw=f"the process is of uid {owner}, and this is uid {caller.user}", next=f"sudo {again}")
    if caller.scope:
        once = (
            ""
            if caller.scope > 1
            else "; for every program of this machine, until it boots: sudo sysctl kernel.yama.ptrace_scope=0"
        )
        return Refusal(saw=f"kernel.yama.ptrace_scope is {caller.scope}", next=f"sudo {again}{once}")
    if caller.is_in_container:
        return Refusal(saw="a container without CAP_SYS_PTRACE", next=in_container)
    return Refusal(
        saw="the process has more rights than this one, or is in another user namespace", next=f"sudo {again}"
    )


def typed_again(arguments: Sequence[str]) -> list[str]:
    """This command as root would have to type it: its own environment is not on root's PATH."""
    return [os.path.join(os.path.dirname(sys.executable), "paceline"), *arguments]


def _is_refused(pid: int) -> bool:
    try:
        file = next(mapped_files(pid), None)
        if file is None:
            return False
        RemoteMemory(pid).read(file.base, 1)
    except Unreadable as error:
        return error.errno in (errno.EPERM, errno.EACCES)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _this_caller() -> Caller:
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    bounding = int(fields["CapBnd"], 16)
    try:
        scope = int(_YAMA.read_text())
    except (OSError, ValueError):
        scope = 0
    return Caller(
        user=os.geteuid(),
        scope=scope,
        is_in_container=not bounding & _CAP_SYS_PTRACE,
    )
