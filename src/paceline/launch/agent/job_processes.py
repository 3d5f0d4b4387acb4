"""Every process of this host's job, wherever it hides, and the guardian that ends them when this agent is gone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from paceline.launch.agent import guardian
from paceline.prctl import Prctl, is_subreaper, set_process

_FAREWELL_SECONDS = 10.0


def guardian_argv() -> list[str]:
    """The program from its text: a pattern that finds this agent does not find it."""
    return [
        os.path.realpath(sys.executable),
        *("-I", "-S", "-c", Path(guardian.__file__).read_text(encoding="utf-8"), guardian.NAME),
    ]


def guardian_order(mark: str, scratch: Sequence[Path]) -> str:
    """The first line that a guardian reads."""
    return json.dumps({"mark": mark, "scratch": [str(directory) for directory in scratch]}) + "\n"


@dataclass(slots=True)
class JobProcesses:
    """Every process of one job on this host."""

    mark: str
    """What each of these processes carries in PACELINE_MARK."""
    told: IO[str]
    """The guardian's stdin, which is told each session."""
    guardian_pid: int
    """Process id of the guardian."""
    adopts_of_others: bool = False
    """Orphans that come to this agent need not be the job's."""
    sessions: dict[int, int] = field(default_factory=dict)
    """Id -> start ticks of its leader: the session of each worker, and of each orphan that ranks left behind."""

    def began(self, leader: int) -> None:
        """A process of the job leads this session."""
        row = guardian.read_row(leader)
        ticks = row[2] if row is not None else 0
        if self.sessions.get(leader) == ticks:
            return
        self.sessions[leader] = ticks
        # A guardian that somebody has killed guards nothing any more; the job goes on.
        with suppress(OSError):
            self.told.write(f"[{leader}, {ticks}]\n")
            self.told.flush()

    def here(self) -> Mapping[int, int]:
        """pid -> start ticks of every process of the job; takes milliseconds."""
        return guardian.job_processes(self.mark, self.sessions)

    def carries_mark(self, pid: int) -> bool:
        row = guardian.read_row(pid)
        return row is not None and row[3] != "Z" and guardian.carries_mark(pid, self.mark)

    def signal(self, number: int) -> int:
        """Send a signal to each of them; the count of those it reached."""
        return guardian.signal_job(self.mark, self.sessions, number)

    def end(self, grace_seconds: float) -> int:
        """End each of them; the count of those that were here."""
        return guardian.end_job(self.mark, self.sessions, grace_seconds)

    def reap_orphans(self) -> None:
        """Wait for the dead that nobody else waits for, and keep in mind the sessions of those that live on without a parent.

        What this agent starts stays in its session, or is the leader of one that it knows. Where others may leave orphans to it, they
        are waited for and no more, unless they carry the mark.
        """
        own_session = os.getsid(0)
        for pid in _children():
            row = guardian.read_row(pid)
            if row is None or row[1] == own_session or pid == self.guardian_pid or pid in self.sessions:
                continue
            if row[3] == "Z":
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            elif not self.adopts_of_others or self.carries_mark(pid):
                self.began(row[1])


def _children() -> list[int]:
    """The children of this process that it may have to wait for: orphans come to its main thread."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        # A kernel without CONFIG_PROC_CHILDREN.
        return [pid for pid, row in guardian.table().items() if row[0] == os.getpid()]


@contextmanager
def guarded(mark: str, scratch: Sequence[Path]) -> Iterator[JobProcesses]:
    """A guardian for as long as the block lasts, which also removes the scratch directories; orphans of ranks come to this process."""
    # A shell that became this agent has left it what it had started; a container's first process is left everything.
    adopts_of_others = os.getpid() == 1 or bool(_children())
    with _adopting_orphans(), _started_guardian() as process:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(guardian_order(mark, scratch))
            process.stdin.flush()
        yield JobProcesses(mark, process.stdin, process.pid, adopts_of_others)
        # Said only after a good end: where an exception ends the agent, the guardian ends what it left behind.
        with suppress(OSError):
            process.stdin.write(guardian.FAREWELL + "\n")


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Orphans of this process's descendants come to it, and after the block go where they went before: a notebook lives on after a job."""
    before = is_subreaper()
    set_process(Prctl.SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        set_process(Prctl.SET_CHILD_SUBREAPER, int(before))


@contextmanager
def _started_guardian() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        guardian_argv(),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        text=True,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_FAREWELL_SECONDS)
