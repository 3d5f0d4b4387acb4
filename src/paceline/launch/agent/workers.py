"""The worker processes of one attempt on this host: start, signal, escalate, watch. Decides nothing about the job."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paceline.launch.agent.exit_deadline import ExitDeadline
from paceline.launch.agent.job_processes import JobProcesses
from paceline.launch.agent.output import Destination, Pump
from paceline.probes.processes import read_io, read_stat

_UNKILLABLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What one worker process is started with."""

    rank: int
    """Its global rank."""
    local_rank: int
    """Its rank on this host."""
    argv: Sequence[str]
    """What is executed, with its arguments."""
    environment: Mapping[str, str]
    """All of its variables."""
    out: Destination
    """Where its stdout goes."""
    err: Destination
    """Where its stderr goes."""
    cpus: frozenset[int] | None = None
    """CPUs that it is bound to; None: all that the agent may use."""
    working_directory: str | None = None
    """The directory that it starts in; None: that of the agent."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended."""

    spec: WorkerSpec
    """What it was started with."""
    pid: int
    """Its process id."""
    code: int
    """Its exit code, or minus a signal's number, as in subprocess."""
    time_ns: int
    """When its end was seen, in Unix ns."""
    signalled_ns: int = 0
    """When the agent signalled it first, in Unix ns; 0: never."""
    overdue: bool = False
    """It was killed because its program was done and its interpreter hung in its shutdown."""

    @property
    def signalled_by_us(self) -> bool:
        """Whether we told it to end."""
        return self.signalled_ns > 0


@dataclass(slots=True)
class _Worker:
    """One worker process while it is watched."""

    spec: WorkerSpec
    """What it was started with."""
    process: subprocess.Popen[bytes]
    """The process."""
    pidfd: int
    """Descriptor that becomes readable when the process ends."""
    signalled_ns: int = 0
    """When the agent signalled it first, in Unix ns; 0: never."""
    overdue: bool = False
    """It was killed because its interpreter hung in its shutdown."""
    ended: bool = False
    """Its end has been taken in."""
    leaving: ExitDeadline | None = None
    """How long its interpreter may still take; None: its program is not done."""


@dataclass(slots=True)
class Workers:
    """The worker processes of one attempt."""

    processes: JobProcesses
    """Every process of the job on this host."""
    pump: Pump
    """Takes over each worker's output."""
    on_end: Callable[[WorkerEnd], None]
    """Is called once for each worker that has ended."""
    on_idle: Callable[[], None]
    """Is called once, after the last of them."""
    rank_processes: Callable[[], Sequence[int]] = lambda: ()
    """Process ids below the workers that are ranks (mp.spawn children, the Python below a shell script). A signal reaches these, and not
    their DataLoader workers, whose death would break a script that wants to save first."""
    whole_group: bool = False
    """The program is not Python: a signal also reaches every other process of the job that is no child of a rank."""
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _escalation: asyncio.TimerHandle | None = None
    _idle_said: bool = False

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Start every worker, or none: when one cannot be started those before it are killed.

        Raises:  OSError: the program cannot be executed
        """
        try:
            for spec in specs:
                self._start_one(spec)
        except OSError:
            self.kill()
            raise

    def pids(self) -> dict[int, int]:
        """Rank to pid of the workers that are still here."""
        return {w.spec.rank: w.process.pid for w in self._workers.values() if not w.ended}

    def stop(self, signal_name: str, grace_seconds: float) -> None:
        """Signal every rank once; SIGKILL what is left after the grace. A later call never puts the SIGKILL off."""
        number = signal.Signals[signal_name]
        now_ns = time.time_ns()
        for pid in self._targets():
            _send(pid, number)
            # A stopped process (Ctrl-Z, kill -STOP) would act on no signal but SIGKILL, after the whole grace.
            if (stat := read_stat(pid)) is not None and stat.state == "T":
                _send(pid, signal.SIGCONT)
        for worker in self._alive():
            worker.signalled_ns = worker.signalled_ns or now_ns
        # Without a worker there is nothing to wait for, and the mark is that of the next attempt's processes too.
        if not self._alive():
            return
        loop = asyncio.get_running_loop()
        kill_at = loop.time() + grace_seconds
        if self._escalation is not None:
            kill_at = min(kill_at, self._escalation.when())
            self._escalation.cancel()
        self._escalation = loop.call_at(kill_at, self.kill)

    def kill(self) -> None:
        """SIGKILL every worker and every process below it, also those that left its session."""
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
        for worker in self._alive():
            worker.signalled_ns = worker.signalled_ns or time.time_ns()
            _send(worker.process.pid, signal.SIGKILL)
        self.processes.signal(signal.SIGKILL)
        if self._alive():
            asyncio.get_running_loop().call_later(_UNKILLABLE_SECONDS, self._give_up)

    def enforce_exit_deadline(self, leaving_since_ns: Mapping[int, int], now_ns: int) -> None:
        """Kill a worker whose program is done (pid -> Unix ns since when) but whose interpreter hangs in its shutdown."""
        for worker in self._alive():
            pid = worker.process.pid
            stat = read_stat(pid)
            if pid not in leaving_since_ns or stat is None:
                continue
            worker.leaving = worker.leaving or ExitDeadline(leaving_since_ns[pid])
            if worker.leaving.is_over(now_ns, stat.own_cpu_seconds, read_io(pid)):
                worker.overdue = True
                _send(pid, signal.SIGKILL)

    # --------------------------------------------------------------------------------------------------------- inside

    def _start_one(self, spec: WorkerSpec) -> None:
        process = subprocess.Popen(
            spec.argv,
            env=dict(spec.environment),
            cwd=spec.working_directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.processes.began(process.pid)
        if spec.cpus:
            os.sched_setaffinity(process.pid, spec.cpus)
        assert process.stdout is not None and process.stderr is not None
        self.pump.add(os.dup(process.stdout.fileno()), spec.rank, "out", spec.out)
        self.pump.add(os.dup(process.stderr.fileno()), spec.rank, "err", spec.err)
        process.stdout.close()
        process.stderr.close()
        worker = _Worker(spec, process, os.pidfd_open(process.pid))
        self._workers[process.pid] = worker
        asyncio.get_running_loop().add_reader(worker.pidfd, self._reap, worker)

    def _alive(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if not worker.ended]

    def _targets(self) -> list[int]:
        own = [worker.process.pid for worker in self._alive()]
        # What a ring says may be old (its pid is somebody else's by now) or of another pid namespace.
        ranks = [pid for pid in self.rank_processes() if pid not in own and self.processes.carries_mark(pid)]
        if not self.whole_group:
            return own + ranks
        known = {*own, *ranks}
        others = [pid for pid in self.processes.here() if pid not in known and not _is_child_of(pid, ranks)]
        return [*own, *ranks, *others]

    def _reap(self, worker: _Worker) -> None:
        code = worker.process.wait()
        self._end(worker, code)

    def _end(self, worker: _Worker, code: int) -> None:
        time_ns = time.time_ns()
        asyncio.get_running_loop().remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        worker.ended = True
        end = WorkerEnd(worker.spec, worker.process.pid, code, time_ns, worker.signalled_ns, worker.overdue)
        self.on_end(end)
        if not self._alive() and not self._idle_said:
            self._idle_said = True
            if self._escalation is not None:
                self._escalation.cancel()
            self.on_idle()

    def _give_up(self) -> None:
        """A process in uninterruptible sleep cannot be killed; the job must end without it."""
        for worker in self._alive():
            self._end(worker, -signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    # Gone already, or not ours to signal (`sudo python`): the others get theirs, and the job ends without it.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _is_child_of(pid: int, parents: Sequence[int]) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.parent in parents
