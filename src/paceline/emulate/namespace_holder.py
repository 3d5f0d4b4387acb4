"""Holds one emulated host open: its namespaces live as long as this process does, and it lives as long as its creator.

A program of its own that is started with root: `main(CREATOR NAME ADDRESSES LAST-WORDS)`. It makes the namespaces, says "ready" and reads
its standard input, which only the creator holds: the control groups of this host, a line each. End of file means that the creator is done
or dead: every process in this host's network is ended, the groups are removed, and with the last process the kernel takes the
namespaces away, and with those the links between them. Standard library only.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.emulate.namespace import NamespaceRefused, become_host, join_host

READY = b"ready\n"
_CLOSING = "closing"
_GIVE_UP_SECONDS = 5.0


def main(argv: Sequence[str]) -> int:
    """Keep one host until end of file on standard input.

    `argv`: who created it (for a sweep), its name, {name: address}, and what a process that clears up after others has in its command
    line ("": none does).
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
    # Whoever joins after the last look at the neighbours would stay: a joiner looks at the name after it has joined.
    socket.sethostname(_CLOSING)
    if argv[3]:
        end_neighbours(os.getpid(), spare=argv[3])
        _wait_for_neighbours(os.getpid())
    end_neighbours(os.getpid())
    for group in groups.decode().splitlines():
        remove_group(Path(group))
    return 0


def enter(argv: Sequence[str]) -> int:
    """Become a program inside a host: `argv` are the keeper's pid, the control groups to join as JSON, and the program's own words."""
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
    """SIGKILL to every process in the network of `pid`, but itself and those with `spare` in their command line, until none is left."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    # A process may fork between the look and the kill, so one round is not enough.
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
        # The creator is gone already; the end of standard input says so next.
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
    """Hand a control group's processes to its parent and remove it. False when it could not be done within a few seconds."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while directory.exists() and time.monotonic() < deadline:
        try:
            for pid in (directory / "cgroup.procs").read_text().split():
                (directory.parent / "cgroup.procs").write_text(pid)
            directory.rmdir()
        except OSError:
            # A process that is just ending can neither be moved nor is it gone.
            time.sleep(0.02)
    return not directory.exists()


def in_network_of(pid: int) -> Iterator[int]:
    """The other processes in the same network namespace; a zombie is in none."""
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
    # Its neighbour discovery would be traffic that nobody asked for on a link that is measured.
    try:
        with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as file:
            file.write("1")
    except OSError:
        pass


def program(name: str, module: str = "namespace_holder") -> tuple[str, ...]:
    """The command that runs one function of this room as a program, in this Python and without the user's environment."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.insert(0, {package!r}); from paceline.emulate.{module} import {name}; sys.exit({name}(sys.argv[1:]))"
    return (sys.executable, "-I", "-S", "-c", code)
