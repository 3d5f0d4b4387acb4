"""Every process of this host's job, also in other sessions, and the guardian that ends them when this agent has died."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from paceline.launch.agent import guardian
from paceline.prctl import Prctl, is_subreaper, set_process

REAP_SECONDS = 1.0
_FAREWELL_SECONDS = 10.0
_KILLED_POLL_SECONDS = 0.005


def guardian_argv() -> list[str]:
    """The argv that runs the guardian from its text: a pattern that matches this agent does not match the guardian."""
    python = os.path.realpath(sys.executable)
    return [
        # An environment may be called as agents are.
        f"/proc/{os.getpid()}/exe" if "paceline" in python else python,
        *("-I", "-S", "-c", Path(guardian.__file__).read_text(encoding="utf-8"), guardian.NAME),
    ]


def guardian_order(mark: str, scratch: Sequence[Path]) -> str:
    """The first line that the guardian reads."""
    return json.dumps({"mark": mark, "scratch": [str(directory) for directory in scratch]}) + "\n"


@dataclass(slots=True)
class JobProcesses:
    """Every process of one job on this host."""

    mark: str
    """The value of PACELINE_MARK in each of these processes."""
    told: IO[str]
    """The guardian's stdin, which gets a line for each session."""
    guardian_pid: int
    """Process id of the guardian."""
    adopts_of_others: bool = False
    """This agent may also adopt orphans that do not belong to the job."""
    lasting: set[int] = field(default_factory=set)
    """Process ids that belong to the job and to none of its attempts: they are no leftovers, and get no signals."""
    sessions: dict[int, int] = field(default_factory=dict)
    """Session id -> start ticks of its leader, for the session of each worker and of each orphan that ranks left behind."""

    def began(self, leader: int) -> None:
        """Note that a process of the job leads this session."""
        row = guardian.read_row(leader)
        ticks = row[2] if row is not None else 0
        if self.sessions.get(leader) == ticks:
            return
        self.sessions[leader] = ticks
        # A killed guardian guards nothing any more. The job goes on.
        with suppress(OSError):
            self.told.write(f"[{leader}, {ticks}]\n")
            self.told.flush()

    def here(self) -> Mapping[int, int]:
        """pid -> start ticks of every process of the attempt. The call takes milliseconds."""
        return guardian.job_processes(self.mark, self.sessions, self.lasting, _adopter())

    def also_removes(self, scratch: Sequence[Path]) -> None:
        """Tell the guardian of further directories that it removes in the end."""
        with suppress(OSError):
            self.told.write(json.dumps([str(directory) for directory in scratch]) + "\n")
            self.told.flush()

    def take_in(self) -> None:
        """Note what is below ranks now and could be taken for the next job of a chain once its rank has ended."""
        for pid in self.here():
            row = guardian.read_row(pid)
            if row is not None and row[1] not in self.sessions and guardian.is_apart(pid, row[1]):
                self.began(pid)

    def carries_mark(self, pid: int) -> bool:
        row = guardian.read_row(pid)
        return row is not None and row[3] != "Z" and guardian.carries_mark(pid, self.mark)

    def signal(self, number: int) -> int:
        """Send a signal to each process of the job. Returns how many processes it reached."""
        return guardian.signal_job(self.mark, self.sessions, number, self.lasting, _adopter())

    def end(self, grace_seconds: float) -> int:
        """End each process of the job. Returns how many processes there were."""
        return guardian.end_job(self.mark, self.sessions, grace_seconds, self.lasting, _adopter())

    async def kill(self, timeout_seconds: float) -> None:
        """Kill each process of the attempt, and wait until none is left, but not for long."""
        deadline = time.monotonic() + timeout_seconds
        self.reap_orphans()
        while await asyncio.to_thread(self.signal, signal.SIGKILL) and time.monotonic() < deadline:
            await asyncio.sleep(_KILLED_POLL_SECONDS)
            self.reap_orphans()

    async def reap_every_second(self) -> None:
        """Reap dead orphans from now on."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            self.reap_orphans()

    def reap_orphans(self) -> None:
        """Reap dead orphans, and remember the sessions of orphans that are alive.

        A process that this agent starts stays in the agent's session, or leads a session that the agent knows. If other programs may
        leave orphans to this agent, it only reaps them, unless they carry the mark.
        """
        own_session = os.getsid(0)
        for pid in _children():
            row = guardian.read_row(pid)
            known = pid == self.guardian_pid or pid in self.sessions or pid in self.lasting
            if row is None or row[1] == own_session or known:
                continue
            if row[3] == "Z":
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            elif not guardian.is_apart(pid, row[1]) and (not self.adopts_of_others or self.carries_mark(pid)):
                self.began(row[1])


def refused_calls(host: str, no_pidfd: str) -> Iterator[str]:
    """Which calls this kernel or its sandbox refuses, where the way around is worse. `no_pidfd`: the reason; "": there is one."""
    if no_pidfd:
        yield f"{host} has no pidfd ({no_pidfd}): threads wait for the ends of the ranks"
    if not is_subreaper():
        text = "what a rank leaves behind in a session of its own is not found there if it has lost the mark of the job"
        yield f"{host} does not let an agent adopt processes: {text}"


def _adopter() -> int | None:
    """This process if it gets all orphans of the job: a sandbox may refuse that."""
    return os.getpid() if is_subreaper() else None


def _children() -> list[int]:
    """The children of this process that it may have to reap: its main thread adopts orphans."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        # This kernel has no CONFIG_PROC_CHILDREN.
        return [pid for pid, row in guardian.table().items() if row[0] == os.getpid()]


@contextmanager
def guarded(mark: str, scratch: Sequence[Path]) -> Iterator[JobProcesses]:
    """Run a guardian during the block; it also removes the scratch directories. During the block this process adopts orphans of ranks."""
    # A shell that replaced itself with this agent leaves its children to the agent. A container's first process adopts all orphans.
    adopts_of_others = os.getpid() == 1 or bool(_children())
    with _adopting_orphans(), _started_guardian() as process:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(guardian_order(mark, scratch))
            process.stdin.flush()
        yield JobProcesses(mark, process.stdin, process.pid, adopts_of_others)
        # The farewell comes only after a good end: if an exception ends the agent, the guardian ends the processes that are left.
        with suppress(OSError):
            process.stdin.write(guardian.FAREWELL + "\n")


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """This process adopts its descendants' orphans during the block, and no longer afterwards: a notebook lives on after a job."""
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
