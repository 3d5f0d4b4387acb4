"""The states of a job as a pure function: `step(state, event) -> (state, actions)`.

`step` runs in the coordinator. It never reads a clock: every event carries `at`, in monotonic seconds. It never sends, starts or
writes anything: the coordinator carries out the actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paceline.diagnosis.crash.root_cause import by_blame
from paceline.facts import Job, Placement, RankExit
from paceline.launch.job.messages import (
    ExitedMessage,
    FinishMessage,
    IdleMessage,
    KillMessage,
    ReadyMessage,
    StartAttemptMessage,
    StartWorkersMessage,
    StopMessage,
)
from paceline.launch.job.outcome import (
    Outcome,
    Stop,
    StopKind,
    completed,
    failed,
    failed_step,
    host_lost,
    hung_step,
    mismatched,
    never_arrived,
    not_put_back,
    stopped,
)
from paceline.recording.rank_sets import newest_common
from paceline.spelling import plural

FIRST_NOTICE_SECONDS = 5.0
NEXT_NOTICE_SECONDS = 30.0
# A rank that hangs seldom acts on a SIGTERM, so a long grace would be lost time.
HUNG_GRACE_SECONDS = 10.0
# A step that kills a rank as often as this is what the script does, and not an accident.
MOST_DEATHS_AT_STEP = 3
# If a rank dies before any state was kept, the job may start again this many times without using up a restart.
MOST_BEGINNINGS = 3
# After a kernel out-of-memory kill the job resumes this often only: the same step would need the same memory.
MOST_RESUMES_AFTER_MEMORY = 1
# The fields with which every attempt begins, independent of the previous attempt.
_FRESH: dict[str, Any] = {
    "exits": (), "idle": frozenset(), "ready": frozenset(), "lost": None, "hung": None, "hung_ranks": (), "killed": frozenset(),
    "out_of_memory": frozenset(), "killing": False, "kept": {}, "step_count": 0, "made_count": 0,
}  # fmt: skip


class JobPhase(StrEnum):
    WAITING = "waiting"
    FETCHING = "fetching"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One host that has joined."""

    host: str
    """Name of the host."""
    address: str
    """The address at which the other hosts reach the host."""
    ranks: int
    """Number of ranks that the host starts."""
    node_rank: int | None = None
    """The node rank that the host asks for; None: the host is placed by arrival."""
    ports: tuple[int, ...] = ()
    """Free ports of the host for servers of its ranks; empty: the job needs none."""


# ---------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host was admitted."""

    at: float
    """Monotonic seconds."""
    member: Member
    """The member that joined."""


@dataclass(frozen=True, slots=True)
class HostLeft:
    """The connection to a host is lost."""

    at: float
    """Monotonic seconds."""
    host: str
    """Name of the host."""
    reason: str
    """How the connection ended, for people."""


@dataclass(frozen=True, slots=True)
class HostSaid:
    """A host of the job says what became of its ranks, or that it has its data."""

    at: float
    """Monotonic seconds."""
    host: str
    """Name of the host."""
    message: ExitedMessage | IdleMessage | ReadyMessage
    """What it says; an exit names this host."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The end of the job is requested."""

    at: float
    """Monotonic seconds."""
    stop: Stop
    """Who requests the end, and why."""
    now: bool = False
    """The ranks are killed without a grace."""


@dataclass(frozen=True, slots=True)
class HostLeaves:
    """The agent of a host, not the first, was asked to end."""

    at: float
    """Monotonic seconds."""
    host: str
    """Name of the host."""
    stop: Stop
    """Who asks, and why."""
    now: bool = False
    """The ranks are killed without a grace."""


@dataclass(frozen=True, slots=True)
class Hung:
    """A hang is confirmed, and the job must not continue with it."""

    at: float
    """Monotonic seconds."""
    reason: str
    """The confirmed hang, for people."""
    restart: bool
    """True: the job starts another attempt if restarts are left. False, or no restart left: the job ends."""
    resume: bool = False
    """The job goes on at the newest step that all ranks have kept. Where there is none, `restart` says what it does."""
    ranks: tuple[int, ...] = ()
    """The ranks that were seen to do nothing."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    at: float
    """Monotonic seconds."""


Event = HostJoined | HostLeft | HostSaid | StopRequested | HostLeaves | Hung | Tick

# --------------------------------------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Resume:
    """What the job goes on from after a rank was killed or hung."""

    step: int
    """The newest step that all ranks have kept."""
    cause: RankExit | None
    """How the rank ended that was killed first, or that hung; None: a run before this one saved the state."""
    step_count: int
    """The greatest number of steps that a rank had made."""
    hung: bool = False
    """The rank hung, and was killed for that."""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Report which hosts are missing, and what was seen of them."""

    waited_seconds: float
    """How long the job has waited for the missing hosts so far."""


@dataclass(frozen=True, slots=True)
class ReportRestart:
    """Report that the attempt has ended and another attempt follows."""

    attempt: int
    """Number of the next attempt."""
    restarts_left: int
    """Restarts that remain after this restart."""
    reason: str
    """Why the previous attempt ended, for people."""
    resume: Resume | None = None
    """What the next attempt goes on from; None: its ranks begin at the start of the script."""
    made_count: int = 0
    """The greatest number of steps that a rank is known to have made in the attempt."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """The host's part of the job is over; the job goes on without it."""

    host: str
    """Name of the host."""
    outcome: Outcome
    """How its part ended."""


Action = (
    StartAttemptMessage
    | StartWorkersMessage
    | StopMessage
    | KillMessage
    | ReportWaiting
    | ReportRestart
    | Dismiss
    | FinishMessage
)
"""What hosts are told is a message already."""

# ----------------------------------------------------------------------------------------------------------------- state


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """All that `step` uses for its decisions. Times are monotonic seconds."""

    job: Job
    """The job as the first host's command line describes it."""
    phase: JobPhase = JobPhase.WAITING
    """The phase of the job."""
    members: tuple[Member, ...] = ()
    """The members that are connected, in the order in which they joined."""
    attempt: int = 0
    """Number of the current attempt, counted from 0. While the job waits for hosts, it is the number of the next attempt."""
    restarts_left: int = 0
    """How many more times all ranks may be started again after a failure."""
    placements: tuple[Placement, ...] = ()
    """Each host's part of the current attempt; empty before the attempt has started."""
    exits: tuple[RankExit, ...] = ()
    """The ranks of the current attempt that have ended, in the order in which the coordinator learned it."""
    idle: frozenset[str] = field(default_factory=frozenset)
    """Hosts of the current attempt that have no rank left or have left."""
    ready: frozenset[str] = field(default_factory=frozenset)
    """Hosts that have fetched their data for the current attempt."""
    lost: tuple[str, str] | None = None
    """Name of the host whose loss ends the current attempt, and the reason; None: no host is lost."""
    stop: Stop | None = None
    """Why the job ends; None: no end was requested."""
    leaving: Mapping[str, Stop] = field(default_factory=dict)
    """Hosts of the current attempt that leave the job when their ranks have ended, and why."""
    hung: str | None = None
    """The confirmed hang that ends the current attempt so that another attempt can start; None: there is none."""
    hung_ranks: tuple[int, ...] = ()
    """The ranks that hung in a job that goes on from its kept state after a hang; empty: it does not."""
    waiting_since: float = 0.0
    """When the job began to wait for the hosts of the current attempt."""
    enough_since: float | None = None
    """When at least `min_hosts` hosts were connected; None: fewer are connected."""
    next_notice: float = 0.0
    """When the missing hosts are reported next."""
    started_at: float | None = None
    """When the ranks of the first attempt were started; None: not yet. The time limit counts from this time."""
    formed_before: bool = False
    """An attempt has started before, so the next attempt does not wait for the last call."""
    killed: frozenset[int] = field(default_factory=frozenset)
    """Ranks of the current attempt that were killed in their work, or whose loader worker was, on hosts that keep their state."""
    out_of_memory: frozenset[int] = field(default_factory=frozenset)
    """Those of `killed` that the kernel may have killed for memory."""
    killing: bool = False
    """The ranks of the current attempt were killed at once, because their state is kept."""
    kept: Mapping[str, Mapping[int, Sequence[int]] | None] = field(default_factory=dict)
    """Idle host -> rank -> the steps whose state it keeps; None: it keeps none."""
    step_count: int = 0
    """The greatest number of steps that a rank of an idle host has made, as far as it keeps state."""
    made_count: int = 0
    """The same as the ranks themselves have counted."""
    resume: Resume | None = None
    """What the current attempt goes on from, or the next one while the job waits; None: the start of the script."""
    resume_placements: tuple[Placement, ...] = ()
    """The hosts that keep the state of `resume`, and their ranks; empty: those of the first attempt."""
    keeps_state: bool = True
    """False: an attempt could not put its state back, and no further one keeps any."""
    deaths_at_step: int = 0
    """How often a rank was killed or hung since the newest step that all ranks have kept was `resume.step`."""
    beginnings: int = 0
    """How often the job began again although no restart was left, because no state had been kept."""
    resumes_after_memory: int = 0
    """How often the job resumed after a rank that may have been killed for memory."""
    only_resumes: bool = False
    """The user named the saved state with which the job begins, and does not want to train from the start instead."""
    hash_seed: int | None = None
    """PYTHONHASHSEED of all ranks in every attempt; None: they have none."""
    agent_store: bool = False
    """A process of the first host's agent can hold the store. A rank alone serves its own, which nobody else needs."""


def begin(
    job: Job,
    at: float,
    saved_step: int | None = None,
    *,
    is_named: bool = True,
    hash_seed: int | None = None,
    agent_store: bool = False,
) -> JobState:
    """The state before any host has joined. `saved_step`: the first attempt goes on from it; None: from the start of the script.

    `is_named`: the user named that step. Otherwise the job begins at the start if its state cannot be put back.
    """
    return JobState(
        job=job,
        restarts_left=job.max_restarts,
        waiting_since=at,
        next_notice=at + FIRST_NOTICE_SECONDS,
        resume=None if saved_step is None else Resume(saved_step, None, saved_step),
        only_resumes=is_named and saved_step is not None,
        hash_seed=hash_seed,
        agent_store=agent_store,
    )


def step(state: JobState, event: Event) -> tuple[JobState, tuple[Action, ...]]:
    """The new state and the actions that follow from one event.

    Holds: after FinishMessage every further event gives (same state, ()); restarts_left never grows.
    """
    if state.phase is JobPhase.ENDED:
        return state, ()
    match event:
        case HostJoined():
            return _advance(_joined(state, event), event.at)
        case HostLeft():
            return _left(state, event)
        case HostSaid(at, host, message):
            return _received(state, host, message, at)
        case StopRequested():
            return _stop_asked(state, event)
        case HostLeaves():
            return _leaves(state, event)
        case Hung():
            return _hung(state, event)
        case Tick():
            return _tick(state, event)


def _received(
    state: JobState, host: str, message: ExitedMessage | IdleMessage | ReadyMessage, at: float
) -> tuple[JobState, tuple[Action, ...]]:
    match message:
        case ExitedMessage():
            return _rank_exited(state, message)
        case IdleMessage():
            return _host_idle(state, host, message, at)
        case ReadyMessage():
            return _host_ready(state, host, message, at)


def _joined(state: JobState, event: HostJoined) -> JobState:
    members = tuple(member for member in state.members if member.host != event.member.host) + (event.member,)
    enough = len(members) >= state.job.min_hosts
    return replace(state, members=members, enough_since=(state.enough_since or event.at) if enough else None)


def _advance(state: JobState, at: float) -> tuple[JobState, tuple[Action, ...]]:
    """Start an attempt if enough hosts are connected; otherwise keep waiting."""
    if state.phase is not JobPhase.WAITING or len(state.members) < state.job.min_hosts:
        return state, ()
    everybody = len(state.members) >= state.job.max_hosts
    last_call_over = state.enough_since is not None and at - state.enough_since >= state.job.last_call_seconds
    # After the first attempt the remaining hosts are known: a last call would only lengthen the interruption.
    if not (everybody or last_call_over or state.formed_before):
        return state, ()
    placements = _place(state.members[: state.job.max_hosts])
    # Other hosts, or the same with other ranks, do not have the state.
    resume = state.resume if _without_ports(state.resume_placements) in ((), _without_ports(placements)) else None
    fresh = replace(state, placements=placements, formed_before=True, resume=resume, **_FRESH)
    # Ranks that wait for a host that still downloads would time out. If there is data to fetch, all ranks start together.
    running = replace(fresh, phase=JobPhase.FETCHING) if state.job.fetches else _running(fresh, at)
    start = StartAttemptMessage(
        attempt=state.attempt,
        placements=placements,
        master_addr=state.job.master_addr,
        store_port=state.job.store_port or 0,
        gradients=state.job.gradients,
        allow_lossy=state.job.allow_lossy,
        together=state.job.fetches,
        resume_step=None if resume is None else resume.step,
        keeps_state=state.keeps_state,
        agent_store=state.agent_store and sum(placed.ranks for placed in placements) > 1,
        hash_seed=state.hash_seed,
    )
    return running, (start,)


def _running(state: JobState, at: float) -> JobState:
    return replace(state, phase=JobPhase.RUNNING, started_at=at if state.started_at is None else state.started_at)


def _place(members: tuple[Member, ...]) -> tuple[Placement, ...]:
    ordered = sorted(members, key=lambda member: (member.node_rank is None, member.node_rank or 0))
    placements: list[Placement] = []
    first_rank = 0
    for node_rank, member in enumerate(ordered):
        placements.append(
            Placement(
                host=member.host,
                address=member.address,
                node_rank=node_rank,
                first_rank=first_rank,
                ranks=member.ranks,
                ports=member.ports,
            )
        )
        first_rank += member.ranks
    return tuple(placements)


def _without_ports(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    return tuple(replace(placement, ports=()) for placement in placements)


def _left(state: JobState, event: HostLeft) -> tuple[JobState, tuple[Action, ...]]:
    members = tuple(member for member in state.members if member.host != event.host)
    enough = len(members) >= state.job.min_hosts
    state = replace(state, members=members, enough_since=state.enough_since if enough else None)
    placed = event.host in {placement.host for placement in state.placements}
    if state.phase is JobPhase.WAITING or not placed:
        return state, ()
    finished_well = event.host in state.idle and _all_ended_well(state, event.host)
    state = replace(state, idle=state.idle | {event.host})
    if state.phase in (JobPhase.FETCHING, JobPhase.RUNNING) and not finished_well:
        state = replace(state, phase=JobPhase.STOPPING, lost=(event.host, event.reason))
        grace_seconds = state.job.shutdown_timeout_seconds
        stop = StopMessage(
            signal="SIGTERM", grace_seconds=grace_seconds, reason=f"host {event.host} is lost", after_failure=True
        )
        after, actions = _when_all_idle(state, event.at)
        return after, actions if after.phase is not JobPhase.STOPPING else (stop,)
    return _when_all_idle(state, event.at)


def _rank_exited(state: JobState, message: ExitedMessage) -> tuple[JobState, tuple[Action, ...]]:
    if message.exit.attempt != state.attempt or not any(_holds(placed, message.exit) for placed in state.placements):
        return state, ()
    # The exit of a rank that was killed comes twice: at once, and again when it is known who killed it.
    others = tuple(exit for exit in state.exits if exit.rank != message.exit.rank)
    state = _with_killed(replace(state, exits=others + (message.exit,)), message)
    if state.phase is JobPhase.RUNNING and _is_done(state):
        grace_seconds = state.job.shutdown_timeout_seconds
        stop = StopMessage(
            signal="SIGTERM", grace_seconds=grace_seconds, reason="rank 0, the chief, has ended", after_failure=True
        )
        return replace(state, phase=JobPhase.STOPPING), (stop,)
    if message.exit.code == 0 or state.phase not in (JobPhase.RUNNING, JobPhase.STOPPING):
        return state, ()
    if _first_was_killed(state) and not _ends_for_another_reason(state):
        first = by_blame(state.exits)[0]
        kill = KillMessage(
            reason=f"rank {first.rank} {'was killed' if first.code < 0 else 'lost a loader worker'}", at_once=True
        )
        return replace(state, phase=JobPhase.STOPPING, killing=True), (kill,)
    if message.exit.not_put_back and _first_was_not_put_back(state) and not _ends_for_another_reason(state):
        kill = KillMessage(reason=f"the state of rank {message.exit.rank} could not be put back", at_once=True)
        return replace(state, phase=JobPhase.STOPPING, killing=True), (kill,)
    if state.phase is JobPhase.RUNNING:
        grace_seconds = state.job.shutdown_timeout_seconds
        stop = StopMessage(
            signal="SIGTERM", grace_seconds=grace_seconds, reason=f"rank {message.exit.rank} failed", after_failure=True
        )
        return replace(state, phase=JobPhase.STOPPING), (stop,)
    return state, ()


def _is_done(state: JobState) -> bool:
    """Whether rank 0 has ended a job that it ends alone, before any other rank has failed."""
    return (
        state.job.ends_with_rank_0
        and any(exit.rank == 0 and exit.code == 0 for exit in state.exits)
        and all(exit.code == 0 or exit.signalled_by_us for exit in state.exits)
    )


def _with_killed(state: JobState, message: ExitedMessage) -> JobState:
    if not (
        state.job.resume
        and state.keeps_state
        and message.resumable
        and message.exit.code != 0
        and not message.exit.signalled_by_us
    ):
        return state
    rank = {message.exit.rank}
    out_of_memory = state.out_of_memory | rank if message.out_of_memory else state.out_of_memory
    return replace(state, killed=state.killed | rank, out_of_memory=out_of_memory)


def _first_was_killed(state: JobState) -> bool:
    """Whether the failure that all others follow is the death of a rank whose state is kept."""
    failures = by_blame(state.exits)
    return bool(failures) and failures[0].rank in state.killed


def _first_was_not_put_back(state: JobState) -> bool:
    """Whether ranks ended because their state could not be put back, and no rank was killed before that."""
    resumed = state.resume is not None and not _first_was_killed(state)
    return resumed and any(exit.not_put_back for exit in state.exits)


def _ends_for_another_reason(state: JobState) -> bool:
    return bool(state.killing or state.stop or state.hung or state.lost)


def _host_idle(state: JobState, host: str, message: IdleMessage, at: float) -> tuple[JobState, tuple[Action, ...]]:
    if message.attempt != state.attempt or host not in {placed.host for placed in state.placements}:
        return state, ()
    members = tuple(replace(member, ports=message.ports) if member.host == host else member for member in state.members)
    state = replace(
        state,
        members=members,
        idle=state.idle | {host},
        kept={**state.kept, host: message.kept},
        step_count=max(state.step_count, message.step_count),
        made_count=max(state.made_count, message.made_count),
    )
    return _when_all_idle(state, at)


def _host_ready(state: JobState, host: str, message: ReadyMessage, at: float) -> tuple[JobState, tuple[Action, ...]]:
    if state.phase is not JobPhase.FETCHING or message.attempt != state.attempt:
        return state, ()
    state = replace(state, ready=state.ready | {host})
    missing = {placement.host for placement in state.placements} - state.ready
    return (state, ()) if missing else (_running(state, at), (StartWorkersMessage(attempt=state.attempt),))


def _when_all_idle(state: JobState, at: float) -> tuple[JobState, tuple[Action, ...]]:
    if any(placement.host not in state.idle for placement in state.placements):
        return state, ()
    if state.stop is not None:
        return _finish(state, stopped(state.stop, state.exits))
    if any(exit.state_mismatch for exit in state.exits):
        return _finish(state, mismatched(state.exits))
    if state.hung is not None:
        return _after_hang(state, state.hung, at) if state.hung_ranks else _restart(state, at)
    if state.lost is None and _is_done(state):
        return _finish(state, completed())
    if state.lost is None and state.leaving:
        host, stop = next(iter(state.leaving.items()))
        return _restart(state, at, costs=0, reason=f"host {host} left: {stop.reason}")
    if state.lost is None and all(exit.code == 0 for exit in state.exits):
        unknown = next((p.host for p in state.placements if not _all_ended_well(state, p.host)), None)
        if unknown is None:
            return _finish(state, completed())
        state = replace(state, lost=(unknown, "its agent did not say how its ranks ended"))
    if state.lost is None and _first_was_not_put_back(state):
        return _begin_again(state, at)
    if state.lost is None and _first_was_killed(state) and _all_keep(state):
        return _after_kill(state, at)
    if state.restarts_left > 0:
        return _restart(state, at)
    return _finish(state, host_lost(*state.lost) if state.lost is not None else failed(state.exits))


def _holds(placement: Placement, exit: RankExit) -> bool:
    return placement.host == exit.host and 0 <= exit.rank - placement.first_rank < placement.ranks


def _all_ended_well(state: JobState, host: str) -> bool:
    ranks = sum(placement.ranks for placement in state.placements if placement.host == host)
    codes = {exit.rank: exit.code for exit in state.exits if exit.host == host}
    return len(codes) == ranks and not any(codes.values())


def _after_kill(state: JobState, at: float) -> tuple[JobState, tuple[Action, ...]]:
    """A rank was killed, and every host keeps state: go on at the newest step that all ranks have, if there is one."""
    cause = by_blame(state.exits)[0]
    step = _newest_kept(state)
    if step is None:
        if state.restarts_left > 0:
            return _restart(state, at)
        if state.beginnings < MOST_BEGINNINGS:
            state = replace(state, beginnings=state.beginnings + 1)
            return _restart(state, at, costs=0, more=_without_a_kept_step(state.step_count))
        return _finish(state, failed(state.exits, more=f"no step had been kept, {MOST_BEGINNINGS + 1} times"))
    deaths = _deaths_at(state, step)
    if deaths >= MOST_DEATHS_AT_STEP:
        return _finish(state, failed_step(step, deaths, state.exits))
    after_memory = state.resumes_after_memory + (cause.rank in state.out_of_memory)
    if after_memory > MOST_RESUMES_AFTER_MEMORY:
        if state.restarts_left > 0:
            return _restart(state, at)
        return _finish(state, failed(state.exits, more="it was killed for memory before, and once more is not tried"))
    state = replace(state, deaths_at_step=deaths, resumes_after_memory=after_memory)
    return _restart(state, at, costs=0, resume=Resume(step, cause, max(state.step_count, step)))


def _after_hang(state: JobState, hung: str, at: float) -> tuple[JobState, tuple[Action, ...]]:
    """All ranks were killed because some hung: go on at the newest step that all ranks have kept, if there is one."""
    step = _newest_kept(state) if _all_keep(state) else None
    ended = Stop(StopKind.HANG, "SIGKILL", hung)
    if step is None:
        return _restart(state, at) if state.restarts_left > 0 else _finish(state, stopped(ended))
    deaths = _deaths_at(state, step)
    if deaths >= MOST_DEATHS_AT_STEP:
        return _finish(state, hung_step(step, deaths, ended))
    ordered = sorted(by_blame(state.exits), key=lambda exit: exit.rank not in state.hung_ranks)
    resume = Resume(step, ordered[0], max(state.step_count, step), hung=True)
    return _restart(replace(state, deaths_at_step=deaths), at, costs=0, resume=resume)


def _all_keep(state: JobState) -> bool:
    """Whether every host keeps the state of its ranks."""
    return all(state.kept.get(placement.host) is not None for placement in state.placements)


def _newest_kept(state: JobState) -> int | None:
    """The newest step that all ranks have kept; None: there is none."""
    kept = {rank: steps for of_host in state.kept.values() for rank, steps in (of_host or {}).items()}
    ranks = range(sum(placement.ranks for placement in state.placements))
    return newest_common({rank: kept.get(rank, ()) for rank in ranks})


def _deaths_at(state: JobState, step: int) -> int:
    """How often ranks were killed or hung, this time included, since `step` was the newest step that all have kept."""
    repeated = state.resume is not None and step <= state.resume.step
    return state.deaths_at_step + 1 if repeated else 1


def _without_a_kept_step(step_count: int) -> str:
    if not step_count:
        return "no step had been kept yet: the job begins again from the beginning"
    return f"no step is kept that all ranks can go on from: {step_count} {plural(step_count, 'step')} made again"


def _begin_again(state: JobState, at: float) -> tuple[JobState, tuple[Action, ...]]:
    """The kept state cannot be put back: begin as if none had been kept, and keep no more."""
    assert state.resume is not None
    if state.resume.cause is None and state.only_resumes:
        return _finish(state, not_put_back(state.resume.step, state.exits))
    reason = (
        f"the state of step {state.resume.step} could not be put back: the job begins again from the beginning, "
        "and keeps no more state (F05)"
    )
    return _restart(replace(state, keeps_state=False), at, costs=0, reason=reason)


def _restart(
    state: JobState, at: float, *, costs: int = 1, resume: Resume | None = None, more: str = "", reason: str = ""
) -> tuple[JobState, tuple[Action, ...]]:
    """Start another attempt. `costs`: restarts that it uses up; `more`: what is said behind the reason; `reason`: said in its place."""
    reason = (
        reason
        or state.hung
        or (f"host {state.lost[0]} was lost" if state.lost else failed(state.exits, more=more).reason)
    )
    dismissed = tuple(Dismiss(host, stopped(stop)) for host, stop in state.leaving.items())
    state = replace(
        state,
        phase=JobPhase.WAITING,
        leaving={},
        attempt=state.attempt + 1,
        restarts_left=state.restarts_left - costs,
        resume=resume,
        resume_placements=() if resume is None else state.placements,
        deaths_at_step=0 if resume is None else state.deaths_at_step,
        placements=(),
        waiting_since=at,
        next_notice=at + FIRST_NOTICE_SECONDS,
    )
    said = ReportRestart(state.attempt, state.restarts_left, reason, resume, state.made_count)
    state, actions = _advance(state, at)
    return state, (said, *dismissed, *actions)


def _leaves(state: JobState, event: HostLeaves) -> tuple[JobState, tuple[Action, ...]]:
    """A host of an elastic job leaves: all ranks are asked to save and end, and the others go on without it. That costs no restart."""
    if state.job.min_hosts == state.job.max_hosts:
        return _stop_asked(state, StopRequested(event.at, event.stop, event.now))
    members = tuple(member for member in state.members if member.host != event.host)
    enough = len(members) >= state.job.min_hosts
    state = replace(state, members=members, enough_since=state.enough_since if enough else None)
    if event.host not in {placement.host for placement in state.placements}:
        return state, (Dismiss(event.host, stopped(event.stop)),)
    was_asked, was_stopping = event.host in state.leaving, state.phase is JobPhase.STOPPING
    state = replace(state, phase=JobPhase.STOPPING, leaving={**state.leaving, event.host: event.stop})
    if event.now:
        return state, (KillMessage(reason=event.stop.reason),)
    if was_asked or was_stopping:
        return state, ()
    return state, (
        StopMessage(signal=event.stop.signal, grace_seconds=state.job.stop_grace_seconds, reason=event.stop.reason),
    )


def _stop_asked(state: JobState, event: StopRequested) -> tuple[JobState, tuple[Action, ...]]:
    first, stop = state.stop is None, state.stop or event.stop
    state = replace(state, stop=stop)
    if state.phase is JobPhase.WAITING:
        return _finish(state, stopped(stop))
    already_stopping = state.phase is JobPhase.STOPPING
    state = replace(state, phase=JobPhase.STOPPING)
    if event.now:
        return state, (KillMessage(reason=stop.reason),)
    if not first or (already_stopping and stop.kind is StopKind.LIMIT):
        return state, ()
    return state, (StopMessage(signal=stop.signal, grace_seconds=state.job.stop_grace_seconds, reason=stop.reason),)


def _hung(state: JobState, event: Hung) -> tuple[JobState, tuple[Action, ...]]:
    if state.phase is not JobPhase.RUNNING:
        return state, ()
    if event.resume and state.job.resume and state.keeps_state:
        # The state is outside of the ranks, so there is nothing for which a grace would be given.
        state = replace(state, hung=event.reason, hung_ranks=event.ranks, phase=JobPhase.STOPPING, killing=True)
        return state, (KillMessage(reason=event.reason, at_once=True),)
    if event.restart and state.restarts_left > 0:
        state = replace(state, hung=event.reason)
    else:
        state = replace(state, stop=Stop(StopKind.HANG, "SIGTERM", event.reason))
    grace_seconds = min(HUNG_GRACE_SECONDS, state.job.shutdown_timeout_seconds)
    return replace(state, phase=JobPhase.STOPPING), (
        StopMessage(signal="SIGTERM", grace_seconds=grace_seconds, reason=event.reason, after_failure=True),
    )


def _tick(state: JobState, event: Tick) -> tuple[JobState, tuple[Action, ...]]:
    limit = state.job.max_run_seconds
    began = state.started_at if state.stop is None else None
    if limit is not None and began is not None and event.at - began >= limit:
        reason = f"the limit of {limit:g} s (--max-run) was reached"
        return _stop_asked(state, StopRequested(event.at, Stop(StopKind.LIMIT, "SIGTERM", reason)))
    if state.phase is not JobPhase.WAITING:
        return state, ()
    formed, actions = _advance(state, event.at)
    if actions:
        return formed, actions
    waited = event.at - state.waiting_since
    if len(state.members) < state.job.min_hosts and waited >= state.job.join_timeout_seconds:
        missing = state.job.min_hosts - len(state.members)
        return _finish(state, never_arrived(missing, state.job.min_hosts, waited))
    if len(state.members) < state.job.min_hosts and event.at >= state.next_notice:
        return replace(state, next_notice=state.next_notice + NEXT_NOTICE_SECONDS), (ReportWaiting(waited),)
    return state, ()


def _finish(state: JobState, outcome: Outcome) -> tuple[JobState, tuple[Action, ...]]:
    return replace(state, phase=JobPhase.ENDED), (FinishMessage(outcome=outcome),)
