"""Ends every process of a host's job when the agent is gone, however the agent went.

A program of its own in a session of its own, started from this text, so that neither its command line nor its environment is found by
whoever ends agents by a pattern. Its stdin comes from the agent: one line of JSON with what to guard, then a line for each session that a
rank leads or has made. End of file without a farewell means that the agent died: every process of the job is ended, then the scratch
directories are removed. Of the job is what carries the mark in its environment, what is in one of the sessions, and whatever is below
those. Needs no root: a user may read the environment of their own processes. Standard library only, because it must stay small.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping

NAME = "job-guardian"
FAREWELL = "bye"
GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05

# (parent, session, start ticks, state) of one process.
Row = tuple[int, int, int, str]
# id of a session -> start ticks of its leader.
Sessions = Mapping[int, int]


def table() -> dict[int, Row]:
    """pid -> row of every process of this host."""
    found: dict[int, Row] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (row := read_row(int(entry))) is not None:
            found[int(entry)] = row
    return found


def read_row(pid: int) -> Row | None:
    """One process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode()
    except (OSError, IndexError, ValueError):
        return None


def carries_mark(pid: int, mark: str) -> bool:
    """Whether this process was started by the job that the mark stands for."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"PACELINE_MARK=" + mark.encode() in file.read().split(b"\0")
    except OSError:
        return False


def is_guardian(pid: int) -> bool:
    """Whether it is one of these: that of a job inside a rank clears up behind that job, and ends by itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().endswith(b"\0" + NAME.encode() + b"\0")
    except OSError:
        return False


def job_processes(mark: str, sessions: Sessions) -> dict[int, int]:
    """pid -> start ticks of every process of the job that is here, no zombie and no guardian.

    A number is nobody else's while a process of that session is left: one whose leader started at another time is another session.
    """
    rows = table()
    ours = {number for number, ticks in sessions.items() if number not in rows or rows[number][2] == ticks}
    own = {pid for pid, row in rows.items() if row[1] in ours or carries_mark(pid, mark)}
    below: dict[int, list[int]] = {}
    for pid, row in rows.items():
        below.setdefault(row[0], []).append(pid)
    waiting = list(own)
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in own:
                own.add(child)
                waiting.append(child)
    return {pid: rows[pid][2] for pid in own if rows[pid][3] != "Z" and pid != os.getpid() and not is_guardian(pid)}


def send(pid: int, ticks: int, number: int) -> bool:
    """Send a signal to the process that started then, and to no other that has its number by now; whether it was reached."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        row = read_row(pid)
        if row is None or row[2] != ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def signal_job(mark: str, sessions: Sessions, number: int) -> int:
    """Send one signal to every process of the job; the count of those it reached."""
    return sum(send(pid, ticks, number) for pid, ticks in job_processes(mark, sessions).items())


def end_job(mark: str, sessions: Sessions, grace_seconds: float = GRACE_SECONDS) -> int:
    """SIGTERM, then SIGKILL until none is left. The count of processes that the first signal reached."""
    reached = signal_job(mark, sessions, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and job_processes(mark, sessions):
        time.sleep(_POLL_SECONDS)
    last = time.monotonic() + grace_seconds
    # A process may fork between the look and the kill, so one round is not enough.
    while time.monotonic() < last and signal_job(mark, sessions, signal.SIGKILL):
        time.sleep(_POLL_SECONDS)
    return reached


def guard(lines: Iterator[str]) -> None:
    """Wait for the agent's farewell or its death, and clean up after it."""
    told = json.loads(next(lines))
    sessions: dict[int, int] = {}
    farewell = False
    for line in lines:
        farewell = line == FAREWELL
        if not farewell:
            number, ticks = json.loads(line)
            sessions[number] = ticks
    if not farewell:
        end_job(told["mark"], sessions)
    for directory in told["scratch"]:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Guard the job that stdin tells of; no signal that ends the agents ends this."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    guard(line.rstrip("\n") for line in sys.stdin)


if __name__ == "__main__":
    main()
