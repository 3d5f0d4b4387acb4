"""Ends every process of a host's job when the agent has died, whatever the reason.

The guardian is a separate program in its own session. It is started from this text: a user who kills agents by a pattern finds the guardian
neither by its command line nor by its environment. The agent writes to its stdin: first one line of JSON that says what to guard, then a
line for each session that a rank leads or has made, and one for further scratch directories. End of file without a farewell means that the
agent died. Then the guardian ends every process of the job and removes the scratch directories. A process belongs to the job if its
environment has the mark, if it is in one of the sessions, or if it is a descendant of such a process. The next job of a chain, which a rank
has started for itself, inherits the mark and belongs to no one: see `is_apart`. The guardian needs no root: a user may read the environment
of their own processes. It imports the standard library only, because it must stay small.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping

NAME = "job-guardian"
# In capitals: a pattern that finds agents must not find this text.
_US = b"PACELINE".lower()
FAREWELL = "bye"
GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05

# (parent, session, start ticks, state) of one process.
Row = tuple[int, int, int, str]
# Id of a session -> start ticks of its leader.
Sessions = Mapping[int, int]


def table() -> dict[int, Row]:
    """pid -> row of every process of this host."""
    found: dict[int, Row] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (row := read_row(int(entry))) is not None:
            found[int(entry)] = row
    return found


def read_row(pid: int) -> Row | None:
    """The row of one process; None: the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode()
    except (OSError, IndexError, ValueError):
        return None


def carries_mark(pid: int, mark: str) -> bool:
    """Whether this process belongs to the job with this mark."""
    return b"PACELINE_MARK=" + mark.encode() in _words(pid, "environ")


def is_guardian(pid: int) -> bool:
    """Whether the process is a guardian. The guardian of a job inside a rank cleans up after that job and ends by itself."""
    return _words(pid, "cmdline")[-2:] == [NAME.encode(), b""]


def is_apart(pid: int, session: int) -> bool:
    """Whether the process begins something of its own, where no process of the job is its parent: the next job of a chain.

    It leads its session, and it is a launcher or has an empty PACELINE_MARK: `PACELINE_MARK= setsid ./next.sh &`.
    """
    return pid == session and (_is_launcher(_words(pid, "cmdline")[:-1]) or b"PACELINE_MARK=" in _words(pid, "environ"))


def _is_launcher(argv: list[bytes]) -> bool:
    words = [os.path.basename(word) for word in argv]
    if words and words[0].startswith((b"python", b"pypy")):
        del words[0]
        while words and words[0].startswith(b"-") and words[0] != b"-m":
            del words[: 2 if words[0] in (b"-X", b"-W") else 1]
        if words[:1] == [b"-m"]:
            return words[1:2] in ([b"torch.distributed.run"], [b"torch.distributed.launch"]) or _starts_job(words[1:])
    return words[:1] == [b"torchrun"] or _starts_job(words)


def _starts_job(words: list[bytes]) -> bool:
    return words[:1] == [_US] and words[1:2] in ([b"run"], [b"submit"])


def _words(pid: int, name: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def job_processes(
    mark: str, sessions: Sessions, but: Collection[int] = (), adopter: int | None = None
) -> dict[int, int]:
    """pid -> start ticks of every process of the job, without zombies, guardians, and the processes `but`.

    The kernel does not reuse a session's id while a process of that session is left. If the leader started at another time, the session
    is another one. `adopter`: the process that gets all orphans of the job; None: it has ended. Whatever carries the mark and is not
    below it was started by somebody else for the job, as a service does.
    """
    rows = table()
    ours = {number for number, ticks in sessions.items() if number not in rows or rows[number][2] == ticks}
    below: dict[int, list[int]] = {}
    for pid, row in rows.items():
        below.setdefault(row[0], []).append(pid)
    adopted = None if adopter is None else _tree({adopter}, below)
    in_session = {pid for pid, row in rows.items() if row[1] in ours}
    marked = {pid for pid in (rows if adopted is None else adopted) if carries_mark(pid, mark)}
    own = _tree(in_session | marked, below)
    apart = {pid for pid in own if rows[pid][0] not in own and rows[pid][1] not in ours and is_apart(pid, rows[pid][1])}
    if apart:
        own -= {pid for pid in _tree(apart, below) if rows[pid][1] not in ours}
    own -= {os.getpid(), *but}
    return {pid: rows[pid][2] for pid in own if rows[pid][3] != "Z" and not is_guardian(pid)}


def _tree(pids: Collection[int], below: Mapping[int, list[int]]) -> set[int]:
    """These processes and all below them."""
    found = set(pids)
    waiting = list(pids)
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def send(pid: int, ticks: int, number: int) -> bool:
    """Send a signal to the process `pid` if its start ticks match, so that a reused pid gets no signal. Whether the signal was sent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):
        # This kernel or its sandbox has no pidfd, and a pid is reused a moment after it was looked at only where all others were used.
        descriptor = None
    try:
        row = read_row(pid)
        if row is None or row[2] != ticks:
            return False
        if descriptor is None or not _sent(descriptor, number):
            os.kill(pid, number)
        return True
    except OSError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _sent(descriptor: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        raise
    except OSError:
        return False
    return True


def signal_job(
    mark: str, sessions: Sessions, number: int, but: Collection[int] = (), adopter: int | None = None
) -> int:
    """Send one signal to every process of the job, and count the processes that it reached."""
    return sum(send(pid, ticks, number) for pid, ticks in job_processes(mark, sessions, but, adopter).items())


def end_job(
    mark: str,
    sessions: Sessions,
    grace_seconds: float = GRACE_SECONDS,
    but: Collection[int] = (),
    adopter: int | None = None,
) -> int:
    """Send SIGTERM, then SIGKILL until no process of the job is left. Returns how many processes the first signal reached."""
    reached = signal_job(mark, sessions, signal.SIGTERM, but, adopter)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and job_processes(mark, sessions, but, adopter):
        time.sleep(_POLL_SECONDS)
    last = time.monotonic() + grace_seconds
    # A process may fork after it was listed and before it is killed, so one round is not enough.
    while time.monotonic() < last and signal_job(mark, sessions, signal.SIGKILL, but, adopter):
        time.sleep(_POLL_SECONDS)
    return reached


def guard(lines: Iterator[str]) -> None:
    """Wait for the agent's farewell or its death, and clean up after it."""
    told = json.loads(next(lines))
    sessions: dict[int, int] = {}
    farewell = False
    for line in lines:
        farewell = line == FAREWELL
        if farewell:
            continue
        first, *rest = json.loads(line)
        if isinstance(first, str):
            told["scratch"] += [first, *rest]
        else:
            sessions[first] = rest[0]
    if not farewell:
        end_job(told["mark"], sessions)
    for directory in told["scratch"]:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Guard the job that stdin describes. The signals that end the agents do not end the guardian."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    guard(line.rstrip("\n") for line in sys.stdin)


if __name__ == "__main__":
    main()
