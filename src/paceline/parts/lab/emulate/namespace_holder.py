"""Holds one emulated host open: its namespaces exist as long as this process does, and this process exists as long as its creator.

This is a separate program, started as root: `main(CREATOR NAME ADDRESSES LAST-WORDS)`. It creates the namespaces, prints "ready" and reads
its standard input, which only the creator holds: the control groups of this host, one per line. End of file means that the creator has
finished or died. Then the program ends every process in this host's network and removes the groups. With the last process, the kernel
removes the namespaces and the links between them. Standard library only.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.namespaces import NamespaceRefused, become_host, join_host

READY = b"ready\n"
_CLOSING = "closing"
_GIVE_UP_SECONDS = 5.0


def main(argv: Sequence[str]) -> int:
    """Keep one host until end of file on standard input.

    `argv`: who created it (for `sweep`), its name, {name: address}, and the text in the command line of a process that cleans up after
    others ("": there is none).
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    try:
        become_host(argv[1], json.loads(argv[2]))
        _without_ipv6()
        _answer(READY)
    except (NamespaceRefused, OSError) as refused:
        _answer(f"{refused}\n".encode())
        return 1
    groups = b""
    while piece := os.read(0, 4096):
        groups += piece
    # A process that joins after the last check of the neighbours would stay. So a joining process checks the name after it has joined.
    socket.sethostname(_CLOSING)
    if argv[3]:
        end_neighbours(os.getpid(), spare=argv[3])
        _wait_for_neighbours(os.getpid())
    end_neighbours(os.getpid())
    for group in groups.decode().splitlines():
        remove_group(Path(group))
    return 0


def enter(argv: Sequence[str]) -> int:
    """Become a program inside a host. `argv`: the holder's pid, the control groups to join as JSON, and the command line of the program."""
    pid, groups, *program = argv
    try:
        for group in json.loads(groups):
            with open(os.path.join(group, "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))
        join_host(int(pid))
    except (NamespaceRefused, OSError) as refused:
        os.write(2, f"this host cannot be entered: {refused}\n".encode())
        return 1
    if socket.gethostname() == _CLOSING:
        return 1
    try:
        os.execvp(program[0], program)
    except OSError as error:
        os.write(2, f"{program[0]}: {error.strerror}\n".encode())
        return 127


def end_neighbours(pid: int, *, spare: str = "") -> None:
    """SIGKILL every process in the network of `pid`, except itself and those with `spare` in their command line, until none is left."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    # A process may fork between the listing and the kill, so one round is not enough.
    while time.monotonic() < deadline:
        neighbours = [other for other in in_network_of(pid) if not (spare and spare in _command(other))]
        if not neighbours:
            return
        for neighbour in neighbours:
            try:
                os.kill(neighbour, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _answer(said: bytes) -> None:
    try:
        os.write(1, said)
    except BrokenPipeError:
        # The creator has already ended; the end of standard input follows.
        pass


def _wait_for_neighbours(pid: int) -> None:
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < deadline and any(True for _ in in_network_of(pid)):
        time.sleep(0.01)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def remove_group(directory: Path) -> bool:
    """Move a control group's processes to its parent and remove the group. False if that was not possible within a few seconds."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while directory.exists() and time.monotonic() < deadline:
        try:
            for pid in (directory / "cgroup.procs").read_text().split():
                (directory.parent / "cgroup.procs").write_text(pid)
            directory.rmdir()
        except OSError:
            # A process that is ending cannot be moved, but still counts as a member.
            time.sleep(0.02)
    return not directory.exists()


def in_network_of(pid: int) -> Iterator[int]:
    """The other processes in the same network namespace. A zombie is in no namespace."""
    try:
        network = os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != pid:
            try:
                if os.readlink(f"/proc/{entry}/ns/net") == network:
                    yield int(entry)
            except OSError:
                continue


def _without_ipv6() -> None:
    # IPv6's neighbour discovery would add traffic to a link that is measured.
    try:
        with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as file:
            file.write("1")
    except OSError:
        pass


def program(name: str, module: str = "namespace_holder") -> tuple[str, ...]:
    """The command that runs one function of this package as a program, in this Python and without the user's environment."""
    package = os.path.abspath(__file__).removesuffix("/paceline/parts/lab/emulate/namespace_holder.py")
    place = f"import sys; sys.path.insert(0, {package!r})"
    code = f"{place}; from {__package__}.{module} import {name}; sys.exit({name}(sys.argv[1:]))"
    return (sys.executable, "-I", "-S", "-c", code)
