"""Ends every process of a host's job when the agent is gone, however the agent went.

Runs as a program of its own (`python -I -S guardian.py MARK FD SCRATCH...`), in its own session, holding the read end of a pipe from the
agent. End of file without a farewell means that the agent died: every process that carries the mark in its environment is
ended, wherever it hides (own session, own process group, re-parented to init), then the scratch directories are removed.
Needs no root: a user may read the environment of their own processes. Standard library only, because it must stay small.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

FAREWELL = b"bye"
GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05


def marked_processes(mark: str) -> Iterator[int]:
    """The pids of this host whose environment carries PACELINE_MARK=mark, this process excepted."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and carries_mark(int(entry), mark):
            yield int(entry)


def carries_mark(pid: int, mark: str) -> bool:
    """Whether a process is here, no zombie, and of the job that this mark stands for."""
    needle = b"PACELINE_MARK=" + mark.encode()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            carries = needle in file.read().split(b"\0")
        with open(f"/proc/{pid}/stat", "rb") as file:
            zombie = file.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return False
    return carries and not zombie


def signal_marked(mark: str, number: int) -> int:
    """Send one signal to every marked process; the count of those it reached."""
    reached = 0
    for pid in marked_processes(mark):
        try:
            os.kill(pid, number)
            reached += 1
        except OSError:
            continue
    return reached


def end_marked(mark: str, grace_seconds: float = GRACE_SECONDS) -> int:
    """SIGTERM, then SIGKILL until none is left. The count of processes that the first signal reached."""
    reached = signal_marked(mark, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(True for _ in marked_processes(mark)):
        time.sleep(_POLL_SECONDS)
    last = time.monotonic() + grace_seconds
    # A process may fork between the look and the kill, so one round is not enough.
    while time.monotonic() < last and signal_marked(mark, signal.SIGKILL):
        time.sleep(_POLL_SECONDS)
    return reached


def guard(mark: str, pipe: int, scratch: list[str]) -> None:
    """Wait for the agent's farewell or its death, and clean up after it."""
    said = b""
    while chunk := os.read(pipe, 64):
        said += chunk
    if said != FAREWELL:
        end_marked(mark)
    for directory in scratch:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    guard(sys.argv[1], int(sys.argv[2]), sys.argv[3:])


if __name__ == "__main__":
    main()
