"""Namespaces of this process: a private /etc/hosts without root, or, with root, a whole host with its own name and network."""

import ctypes
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


class NamespaceRefused(Exception):
    """The kernel or its settings do not allow a private /etc/hosts; the text says what was refused."""


def hosts_text(addresses: Mapping[str, str], present: str) -> str:
    """The machine's /etc/hosts with paceline's names first, because the first match wins.

    Holds: every line of `present` is still there
    """
    ours = "".join(f"{address}\t{name}\n" for name, address in addresses.items())
    return f"{ours}{present}"


def enter_with_hosts(addresses: Mapping[str, str]) -> None:
    """Move this process into namespaces where /etc/hosts also knows `addresses` (name -> address).

    Call it before any thread exists. The user id does not change. The file that is bound over /etc/hosts has no name
    any more when this returns, so nothing remains however the process ends.

    Raises:  NamespaceRefused: unshare, the id maps or the mount were refused; the process may be half-way: it must exec or end
    Source:  user_namespaces(7), mount_namespaces(7)
    """
    present = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
    with tempfile.NamedTemporaryFile("w", prefix="paceline-hosts-") as file:
        file.write(hosts_text(addresses, present))
        file.flush()
        Path(file.name).chmod(0o644)
        _bind_hosts(Path(file.name))


def become_host(name: str, addresses: Mapping[str, str]) -> None:
    """Move this process into its own network (loopback only), with the host name `name` and names for `addresses`.

    It needs root. Call it before any thread exists.

    Raises:  NamespaceRefused: something was refused; the process may be in some of the namespaces and should end
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(_CLONE_NEWNET | _CLONE_NEWUTS), "unshare")
    host_name = os.fsencode(name)
    _checked(libc.sethostname(host_name, len(host_name)), "sethostname")
    enter_with_hosts(addresses)


def join_host(pid: int) -> None:
    """Move this process into the network, name and mounts of the process `pid`. The path of the working directory stays the same.

    Raises:  NamespaceRefused: setns was refused
             OSError: no such process, or the directory is not visible from there
    """
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.getcwd()
    for kind in ("net", "uts", "mnt"):
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _checked(libc.setns(descriptor, 0), f"setns {kind}")
        finally:
            os.close(descriptor)
    # setns enters a mount namespace at its root.
    os.chdir(here)


def refusal() -> str | None:
    """Why a private /etc/hosts is not possible here; None if it is possible. A child process really tries it."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            _bind_hosts(Path("/etc/hosts"))
        except NamespaceRefused as refused:
            code = refused.args[1] if len(refused.args) > 1 else 1
        os._exit(min(code, 255))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == 0 else f"unshare: {os.strerror(code)}"


def _bind_hosts(source: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    # A process that may mount needs no user namespace. Inside a container, being root does not tell whether it may.
    if libc.unshare(_CLONE_NEWNS) != 0:
        _checked(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER), "unshare")
        _map_ids(user, group)
    _checked(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "making mounts private")
    _checked(libc.mount(os.fsencode(source), b"/etc/hosts", None, _MS_BIND, None), "binding /etc/hosts")


def _map_ids(user: int, group: int) -> None:
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        raise NamespaceRefused(f"id maps: {error.strerror}", error.errno or 1) from error


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise NamespaceRefused(f"{what}: {os.strerror(number)}", number or 1)
