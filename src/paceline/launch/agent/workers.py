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
    """One worker process: what to execute, with what environment, where its output goes, on which CPUs."""

    rank: int
    local_rank: int
    argv: Sequence[str]
    environment: Mapping[str, str]
    out: Destination
    err: Destination
    cpus: frozenset[int] | None = None
    working_directory: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended; `code` as in subprocess. `signalled_ns`: when we signalled it first, or 0. `overdue`: at its exit deadline."""

    spec: WorkerSpec
    pid: int
    code: int
    time_ns: int
    signalled_ns: int = 0
    overdue: bool = False

    @property
    def signalled_by_us(self) -> bool:
        """Whether we told it to end."""
        return self.signalled_ns > 0


@dataclass(slots=True)
class _Worker:
    spec: WorkerSpec
    process: subprocess.Popen[bytes]
    pidfd: int
    signalled_ns: int = 0
    overdue: bool = False
    ended: bool = False
    leaving: ExitDeadline | None = None


@dataclass(slots=True)
class Workers:
    """`on_end` is called once per worker, `on_idle` once, after the last one.

    `rank_processes` tells which processes below the workers are ranks (mp.spawn children, the Python below a shell script), so
    that a signal reaches them and not their DataLoader workers, whose death would break a script that wants to save first.
    """

    processes: JobProcesses
    pump: Pump
    on_end: Callable[[WorkerEnd], None]
    on_idle: Callable[[], None]
    rank_processes: Callable[[], Sequence[int]] = lambda: ()
    whole_group: bool = False
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
