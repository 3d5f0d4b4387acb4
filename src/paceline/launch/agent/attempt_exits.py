"""Reports how the ranks of one attempt on a host ended. Why is judged first, except where the job waits to go on from kept state."""

import asyncio
import signal
import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any

from paceline.diagnosis.crash.root_cause import lost_a_loader_worker
from paceline.facts import RankExit
from paceline.launch.agent.companion import Companions
from paceline.launch.agent.exit_reason import HIDDEN, Ending, ExitContext, why_ended
from paceline.launch.agent.host_attempt import HostAttempt
from paceline.launch.agent.output import Pump
from paceline.launch.agent.telemetry import HostMonitor
from paceline.launch.agent.workers import WorkerEnd
from paceline.launch.job.messages import ExitedMessage
from paceline.launch.job.outcome import MISMATCH_CODE
from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.probes.sigkill_source import killed_for_memory


@dataclass(slots=True)
class AttemptExits:
    """The ends of one host's ranks in one attempt."""

    attempt: HostAttempt
    """With what the ranks are started."""
    began: float
    """When this host began the attempt, in monotonic seconds."""
    oom_before: OomCounters | None
    """Out-of-memory kills counted before the attempt; None: they were not counted."""
    pump: Pump
    """Keeps the end of each rank's output."""
    monitor: HostMonitor
    """Knows the processes of the ranks, and what they reported."""
    companions: Companions
    """The processes beside the ranks."""
    report: Callable[[ExitedMessage], None]
    """Sends the end of a rank to the coordinator."""
    event: Callable[..., None]
    """Records one event of this host."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Runs a task of the host."""
    told_to_save: frozenset[int] = frozenset()
    """Processes in which TensorFlow was told by SIGTERM that the job is stopped."""
    keep_state: bool = field(default=True, init=False)
    """Every rank keeps its state, as far as it is known from those that have ended."""
    # Ranks that have ended, and whose end was not reported yet.
    _unreported: dict[int, tuple[WorkerEnd, ExitContext]] = field(default_factory=dict, init=False)
    # Of each rank that has ended: what judges its end.
    _judging: dict[int, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def ended(self, end: WorkerEnd, others: Collection[int]) -> None:
        """A rank has ended: judge why, and report it. `others`: process ids of the ranks that have not."""
        rank, state = end.spec.rank, self.attempt.state
        ranks = self.monitor.ranks_by_pid()
        own_rank = {pid for pid, other in ranks.items() if other == rank or self.attempt.placement.ranks == 1}
        context = ExitContext(
            pump=self.pump.of_attempt(),
            errors=self.attempt.errors,
            said=self.monitor.last_words(end.pid),
            others=frozenset({*others, *ranks} - own_rank),
            below=frozenset() if end.pid in ranks else frozenset(own_rank),
            oom_before=self.oom_before,
            began=self.began,
            state_mismatch=end.code == MISMATCH_CODE and state is not None and state.stopped(end.spec.local_rank),
            not_put_back=end.code != 0 and state is not None and state.not_put_back(end.spec.local_rank),
            told_to_save=end.pid in self.told_to_save,
        )
        self.keep_state = self.keep_state and self._all_keep()
        self._judging[rank] = self.spawn(self._judge(end, context, may_resume=self.keep_state))
        if self.keep_state and was_killed(end, context):
            # Before it is judged who killed it: every other rank has to end too.
            self._report_early(end, context, resumable=True, out_of_memory=_may_be_memory(context))
        else:
            self._unreported[rank] = end, context

    async def judged(self) -> None:
        """Wait until every end is judged and reported."""
        await asyncio.gather(*self._judging.values())

    async def report_early(self) -> None:
        """Report every end, also those that are not judged yet. No rank is left."""
        unreported = self._unreported
        # Who has ended by itself may be the first one, or may only have lost its peer: its exception says which.
        by_itself = [rank for rank, (end, _) in unreported.items() if end.code > 0 and not end.signalled_by_us]
        await asyncio.gather(*(self._judging[rank] for rank in by_itself))
        for end, context in unreported.values():
            self._report_early(end, context)

    def report_not_run(self, rank: int, ending: Ending) -> None:
        """Report the end of a rank that has no process: it could not be started, or has ended before what it needs was lost."""
        self._report(self._exit(rank, ending, time.time_ns()))

    def _report(self, exit: RankExit, *, resumable: bool = False, out_of_memory: bool = False) -> None:
        self.report(ExitedMessage(exit=exit, resumable=resumable, out_of_memory=out_of_memory))

    def _report_early(
        self, end: WorkerEnd, context: ExitContext, *, resumable: bool = False, out_of_memory: bool = False
    ) -> None:
        """Report the end of a rank, before it is known why it ended. `_judge` reports it again when it is known."""
        ending = Ending(end.code, signalled_by_us=end.signalled_by_us)
        exit = self._exit(end.spec.rank, ending, end.time_ns, context)
        self.report(ExitedMessage(exit=exit, early=True, resumable=resumable, out_of_memory=out_of_memory))

    def _exit(self, rank: int, ending: Ending, time_ns: int, context: ExitContext | None = None) -> RankExit:
        return RankExit(
            host=self.attempt.identity.name,
            rank=rank,
            attempt=self.attempt.message.attempt,
            code=ending.code,
            time_ns=ending.done_ns or time_ns,
            error=ending.error,
            note=ending.note,
            signalled_by_us=ending.signalled_by_us,
            tail=ending.tail,
            state_mismatch=context is not None and context.state_mismatch,
            not_put_back=context is not None and context.not_put_back,
        )

    async def _judge(self, end: WorkerEnd, context: ExitContext, *, may_resume: bool) -> None:
        try:
            ending = await why_ended(end, context)
        except Exception as failure:
            # Other programs wrote the files and the kernel log from which the reason is read. The exit counts without a reason.
            note = f"why was not judged: {type(failure).__name__}: {failure}"
            ending = Ending(end.code, note=note, signalled_by_us=end.signalled_by_us)
        rank = f"rank {end.spec.rank} on {self.attempt.identity.name}"
        if self.companions.lost:
            ending = Ending(1, note=self.companions.lost)
        elif ending.code == 0 and self.companions.serve_others:
            self.event("notice", text=f"{rank} has ended; {self.companions.serves_until}")
        if ending.note == HIDDEN and ending.error is not None:
            self.event("notice", text=f"{rank} raised {ending.error.type}; {HIDDEN}")
        self._unreported.pop(end.spec.rank, None)
        exit = self._exit(end.spec.rank, ending, end.time_ns, context)
        # The kill of a rank was reported early.
        resumable = may_resume and exit.code > 0 and not exit.signalled_by_us and lost_a_loader_worker(exit)
        self._report(exit, resumable=resumable, out_of_memory=resumable and _may_be_memory(context))

    def _all_keep(self) -> bool:
        """Whether every rank of this host keeps its state, or may still begin to."""
        first_rank, state, headers = self.attempt.placement.first_rank, self.attempt.state, self.monitor.headers()
        step_counts = {rank - first_rank: header.step_count for rank, header in headers.items()}
        return state is not None and state.may_go_on(step_counts)


def was_killed(end: WorkerEnd, context: ExitContext) -> bool:
    """Whether a signal that did not come from this agent ended the rank in its work.

    A rank that is killed from outside as its interpreter shuts down may not have written all its data. One that crashes there will again.
    """
    by_another = end.code < 0 and not end.signalled_by_us and not end.overdue
    return by_another and (context.said is None or end.code == -signal.SIGKILL)


def _may_be_memory(context: ExitContext) -> bool:
    return context.oom_before is not None and killed_for_memory(
        context.oom_before, oom_counters(control_group("memory"))
    )
