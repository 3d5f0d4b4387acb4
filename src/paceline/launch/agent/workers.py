"""Starts, watches, signals and kills the worker processes of one attempt on this host. It decides nothing about the job."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from paceline.launch.agent.exit_deadline import ExitDeadline
from paceline.launch.agent.fork_server_client import STATE_VARIABLE, ForkedProcess, ForkRefused, ForkServer
from paceline.launch.agent.job_processes import JobProcesses
from paceline.launch.agent.output import Destination, Pump
from paceline.launch.agent.process_end import ProcessEnd
from paceline.probes.other_processes import below, read_processes
from paceline.probes.process_status import read_caught_signals
from paceline.probes.processes import read_io, read_stat

_UNKILLABLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The settings with which one worker process is started."""

    rank: int
    """The worker's global rank."""
    local_rank: int
    """The worker's rank on this host."""
    argv: Sequence[str]
    """The program and its arguments."""
    environment: Mapping[str, str]
    """All environment variables of the worker."""
    out: Destination
    """The destination of the worker's stdout."""
    err: Destination
    """The destination of the worker's stderr."""
    cpus: frozenset[int] | None = None
    """The CPUs to which the worker is bound; None: all CPUs that the agent may use."""
    working_directory: str | None = None
    """The directory in which the worker starts; None: the agent's directory."""
    state: int | None = None
    """Descriptor of the buffer in which the worker keeps its state; None: it keeps none."""
    new_argv: Sequence[str] | None = None
    """What a new process executes in place of `argv`; None: `argv`."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended."""

    spec: WorkerSpec
    """The settings with which the worker was started."""
    pid: int
    """The worker's process id."""
    code: int
    """The worker's exit code, or minus a signal's number, as in subprocess."""
    time_ns: int
    """When the end was seen, in Unix ns."""
    signalled_ns: int = 0
    """When the agent first signalled the worker, in Unix ns; 0: never."""
    overdue: bool = False
    """The worker was killed because its program was done and its interpreter hung in the shutdown."""

    @property
    def signalled_by_us(self) -> bool:
        """Whether the agent signalled the worker."""
        return self.signalled_ns > 0


@dataclass(slots=True)
class _Worker:
    """One worker process while it is watched."""

    spec: WorkerSpec
    """The settings with which the worker was started."""
    process: subprocess.Popen[bytes] | ForkedProcess
    """The worker's process."""
    end: ProcessEnd | None = None
    """What tells that the process has ended; None: it is not asked for yet."""
    signalled_ns: int = 0
    """When the agent first signalled the worker, in Unix ns; 0: never."""
    overdue: bool = False
    """The worker was killed because its interpreter hung in the shutdown."""
    ended: bool = False
    """The end of the process was handled."""
    leaving: ExitDeadline | None = None
    """The deadline for the interpreter's shutdown; None: the program is not done."""


@dataclass(slots=True)
class Workers:
    """The worker processes of one attempt."""

    processes: JobProcesses
    """Every process of the job on this host."""
    pump: Pump
    """Copies each worker's output."""
    on_end: Callable[[WorkerEnd], None]
    """Called once for each worker that has ended."""
    on_idle: Callable[[], None]
    """Called once, after the last worker has ended."""
    rank_processes: Callable[[], Sequence[int]] = lambda: ()
    """Process ids of ranks below the workers (mp.spawn children, the Python below a shell script). A signal goes to these processes. It
    does not go to their DataLoader workers: a script that wants to save first would break if they died."""
    whole_group: bool = False
    """The program is not Python: a signal also goes to every other process of the job that is not below a rank."""
    fork_server: ForkServer | None = None
    """The process from which workers are forked; None: each worker is a new process."""
    not_forked: str = ""
    """Why workers were not forked although there is a fork server; "": they were."""
    no_pidfd: str = ""
    """Why the ends of workers are waited for by threads; "": they are not."""
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _escalation: asyncio.TimerHandle | None = None
    _idle_said: bool = False

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Start every worker, or none: if one worker cannot be started, the workers before it are killed.

        Raises:  OSError: the program cannot be executed
        """
        try:
            for spec in specs:
                self._start_one(spec)
        except OSError:
            self.kill()
            raise

    def pids(self) -> dict[int, int]:
        """Rank -> pid of the workers that have not ended."""
        return {w.spec.rank: w.process.pid for w in self._workers.values() if not w.ended}

    def pass_on(self, signal_name: str) -> None:
        """Send a signal to the ranks that have a handler for it. It would end the others."""
        number = signal.Signals[signal_name]
        for pid in self.pids().values():
            if number in read_caught_signals(pid):
                _send(pid, number)

    def stop(self, signal_name: str, grace_seconds: float) -> None:
        """Signal every rank once, and send SIGKILL to the ranks that are left after the grace. A later call never delays the SIGKILL."""
        number = signal.Signals[signal_name]
        now_ns = time.time_ns()
        self.processes.take_in()
        for pid in self.targets():
            _send(pid, number)
            # A stopped process (Ctrl-Z, kill -STOP) acts on no signal except SIGKILL, which comes only after the whole grace.
            if (stat := read_stat(pid)) is not None and stat.state == "T":
                _send(pid, signal.SIGCONT)
        for worker in self._alive():
            worker.signalled_ns = worker.signalled_ns or now_ns
        # Without a worker there is nothing to wait for. The next attempt's processes have the same mark, so no later kill may be planned.
        if not self._alive():
            return
        loop = asyncio.get_running_loop()
        kill_at = loop.time() + grace_seconds
        if self._escalation is not None:
            kill_at = min(kill_at, self._escalation.when())
            self._escalation.cancel()
        self._escalation = loop.call_at(kill_at, self.kill)

    def kill(self) -> None:
        """Send SIGKILL to every worker and every process below it, including processes that left its session."""
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
        for worker in self._alive():
            worker.signalled_ns = worker.signalled_ns or time.time_ns()
        # The workers are among them, and still the parents of all that they have started and not given away.
        self.processes.signal(signal.SIGKILL)
        for worker in self._alive():
            _send(worker.process.pid, signal.SIGKILL)
        if self._alive():
            asyncio.get_running_loop().call_later(_UNKILLABLE_SECONDS, self._give_up)

    def enforce_exit_deadline(self, deadlines: Mapping[int, ExitDeadline], now_ns: int) -> None:
        """Kill each worker whose program is done but whose interpreter hangs in its shutdown.

        `deadlines`: pid -> the one that begins once its program is done; the first of a process counts.
        """
        for worker in self._alive():
            pid = worker.process.pid
            stat = read_stat(pid)
            if pid not in deadlines or stat is None:
                continue
            worker.leaving = worker.leaving or deadlines[pid]
            if worker.leaving.is_over(now_ns, stat.own_cpu_seconds, read_io(pid)):
                worker.overdue = True
                _send(pid, signal.SIGKILL)

    # --------------------------------------------------------------------------------------------------------- inside

    def _start_one(self, spec: WorkerSpec) -> None:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        try:
            process = self._forked(spec, out_end, err_end) or _new_process(spec, out_end, err_end)
        except OSError:
            os.close(out)
            os.close(err)
            raise
        finally:
            os.close(out_end)
            os.close(err_end)
        self.processes.began(process.pid)
        if spec.cpus:
            os.sched_setaffinity(process.pid, spec.cpus)
        self.pump.add(out, spec.rank, "out", spec.out)
        self.pump.add(err, spec.rank, "err", spec.err)
        worker = self._workers[process.pid] = _Worker(spec, process)
        worker.end = ProcessEnd(process.pid, partial(self._reap, worker))
        self.no_pidfd = worker.end.refused

    def _forked(self, spec: WorkerSpec, out: int, err: int) -> ForkedProcess | None:
        """The worker as a fork; None, with the reason in `not_forked`: it has to be a new process, as all that follow it."""
        if self.fork_server is None or self.not_forked:
            return None
        try:
            return self.fork_server.fork(spec.argv, spec.environment, spec.working_directory, out, err, spec.state)
        except ForkRefused as refused:
            self.not_forked = str(refused)
            return None

    def _alive(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if not worker.ended]

    def targets(self) -> list[int]:
        """Process ids of what a signal goes to: the workers that have not ended, and the ranks below them; none once all have ended."""
        if not self._alive():
            return []
        own = [worker.process.pid for worker in self._alive()]
        # A ring's pid may be old (another process has it now), or may belong to another pid namespace.
        ranks = [pid for pid in self.rank_processes() if pid not in own and self.processes.carries_mark(pid)]
        if not self.whole_group:
            return own + ranks
        # Not only children: under the start method forkserver, a process between starts the workers of a rank.
        passed_over = {*own, *ranks, *below(ranks, read_processes())}
        return [*own, *ranks, *(pid for pid in self.processes.here() if pid not in passed_over)]

    def _reap(self, worker: _Worker) -> None:
        code = worker.process.wait()
        self._end(worker, code)

    def _end(self, worker: _Worker, code: int) -> None:
        time_ns = time.time_ns()
        if worker.end is not None:
            worker.end.close()
        worker.ended = True
        end = WorkerEnd(worker.spec, worker.process.pid, code, time_ns, worker.signalled_ns, worker.overdue)
        self.on_end(end)
        if not self._alive() and not self._idle_said:
            self._idle_said = True
            if self._escalation is not None:
                self._escalation.cancel()
            self.on_idle()

    def _give_up(self) -> None:
        """Stop waiting for a process that cannot be killed because it is in uninterruptible sleep: the job must end without it."""
        for worker in self._alive():
            self._end(worker, -signal.SIGKILL)


def _new_process(spec: WorkerSpec, out: int, err: int) -> subprocess.Popen[bytes]:
    # The descriptor has the same number in the new process.
    state = {} if spec.state is None else {STATE_VARIABLE: str(spec.state)}
    return subprocess.Popen(
        spec.new_argv or spec.argv,
        env={**spec.environment, **state},
        cwd=spec.working_directory,
        stdout=out,
        stderr=err,
        pass_fds=() if spec.state is None else (spec.state,),
        start_new_session=True,
    )


def _send(pid: int, number: int) -> None:
    # The process has ended, or we may not signal it (`sudo python`). The other processes get the signal, and the job ends without it.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
