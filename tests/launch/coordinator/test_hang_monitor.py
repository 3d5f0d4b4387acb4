"""The hang_monitor before made-up hosts: what it asks, what it records, when it calls a stall confirmed, and that it survives itself."""

import asyncio
import threading
import time
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from paceline.diagnosis.case import Call, GroupCounters, Heartbeat, Level, Proof
from paceline.diagnosis.desync.call_records import RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.facts import Placement, RankExit, Run
from paceline.findings import Cause, CauseFinding
from paceline.launch.coordinator.hang_monitor import HangMonitor
from paceline.launch.job.messages import (
    HeartbeatMessage,
    SnapshotReply,
    SnapshotRequest,
    StartAttemptMessage,
    TraceReply,
    TraceRequest,
)

SECOND = 1_000_000_000
ENTRY = TraceEntry(group="0", index=1, operation="allreduce", created_ns=60 * SECOND)
FORM = StartAttemptMessage(
    attempt=0,
    placements=(
        Placement(host="a", address="10.0.0.1", node_rank=0, first_rank=0, ranks=1),
        Placement(host="b", address="10.0.0.2", node_rank=1, first_rank=1, ranks=1),
    ),
    master_addr="10.0.0.1",
    store_port=1,
)
RUN = Run(id="r-1", name="j", directory="/nowhere", command=(), started_ns=0, first_host="a")


IDLE = RankSnapshot(
    host="", rank=0, pid=1, at_ns=0, state="S", cpu_fraction=0.0, read_bytes_per_second=0.0, written_bytes_per_second=0.0
)  # fmt: skip


@dataclass
class Hosts:
    """Two hosts with a rank each, and a hang_monitor. `silent` hosts answer nothing."""

    events: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    hung: list = field(default_factory=list)
    silent: set = field(default_factory=set)
    snapshot: RankSnapshot = field(default_factory=lambda: IDLE)
    # How much later than it is the snapshots are taken.
    later_seconds: float = 0.0

    def __post_init__(self):
        self.hang_monitor = HangMonitor(
            run=RUN, ask=self.ask, record=self.record, hung=self.hung.append, causes=(ASLEEP,)
        )
        self.hang_monitor.attempt_started(FORM)

    def record(self, name, **fields):
        event = {"t_ns": time.time_ns(), "event": name, **fields}
        self.events.append(event)
        self.hang_monitor.noted(event)

    def ask(self, host, message):
        self.asked.append((host, message))
        if host in self.silent:
            return
        if isinstance(message, SnapshotRequest):
            at_ns = time.time_ns() + int(self.later_seconds * SECOND)
            snapshots = [replace(self.snapshot, host=host, rank=rank, at_ns=at_ns) for rank in message.ranks]
            self.hang_monitor.answered(host, SnapshotReply(number=message.number, snapshots=snapshots, hosts=[]))
        else:
            traces = {rank: [ENTRY] for rank in (0, 1)}
            self.hang_monitor.answered(host, TraceReply(number=message.number, traces=traces))

    def heartbeat(self, host, rank, *, enqueued, completed, stood_seconds, attempt=0):
        now = time.time_ns()
        heartbeat = Heartbeat(
            host=host, rank=rank, at_ns=now, moved_ns=now - int(stood_seconds * SECOND), attempt=attempt, pid=100 + rank, state="S",
            step_count=20, step_seconds=0.02, phase="training",
            groups=(GroupCounters(name="0", enqueued=enqueued, completed=completed),),
        )  # fmt: skip
        self.hang_monitor.heard(host, HeartbeatMessage(heartbeats=[heartbeat], calls=[]))

    def stand_still(self, stood_seconds=5.0):
        """Rank 0 waits in collective 18, which rank 1 has not entered."""
        self.heartbeat("a", 0, enqueued=18, completed=17, stood_seconds=stood_seconds)
        self.heartbeat("b", 1, enqueued=17, completed=17, stood_seconds=stood_seconds)

    @property
    def looked(self):
        return [(host, message) for host, message in self.asked if isinstance(message, SnapshotRequest)]

    def names(self):
        return [event["event"] for event in self.events]


def find_late(case):
    if case.stall is not None:
        for rank in case.stall.late:
            yield CauseFinding(code="T01", title="late", level=case.stall.level, ranks=(rank,))


ASLEEP = Cause("T01", "late", "T01 late", find_late)


def differ(hosts):
    """The ranks issue different calls."""
    for host, rank, operation in (("a", 0, "allreduce"), ("b", 1, "broadcast")):
        call = Call(index=1, operation=operation, issued_ns=time.time_ns(), dtype="float32", shape=(4,))
        calls = RankCalls(rank=rank, group="0", group_ranks=(0, 1), calls=(call,), lost=0)
        hosts.hang_monitor.heard(host, HeartbeatMessage(heartbeats=[], calls=[calls]))


@pytest.fixture
def hosts():
    return Hosts()


def test_a_stall_is_looked_at_on_both_sides_recorded_and_judged(hosts):
    hosts.stand_still()
    asyncio.run(hosts.hang_monitor.turn())
    assert sorted((host, message.ranks) for host, message in hosts.looked) == [("a", [0]), ("b", [1])]
    assert hosts.names() == ["look", "look", "standstill", "cause"]
    snapshots = {event["rank"]: event["look"] for event in hosts.events if event["event"] == "look"}
    assert (snapshots[0].role, snapshots[1].role) == ("witness", "suspect")
    assert hosts.hang_monitor.case(lasts=True).snapshots[0] is snapshots[0]
    assert hosts.events[2]["standstill"].late == (1,)
    assert hosts.events[3]["finding"].ranks == (1,)


def test_a_stall_that_lasts_is_said_once_and_confirmed_by_the_second_snapshot(hosts):
    async def play():
        hosts.stand_still()
        await hosts.hang_monitor.turn()
        await hosts.hang_monitor.turn()
        assert len(hosts.looked) == 2 and not hosts.hung
        hosts.hang_monitor.stall_tracker.next_snapshot_at = 0.0
        hosts.later_seconds = 2.0
        await hosts.hang_monitor.turn()

    asyncio.run(play())
    assert len(hosts.looked) == 4
    (hang,) = hosts.hung
    assert (hang.proof, hang.ranks, hang.waiting) == (Proof.WAITED_FOR, (1,), (0,))
    assert hang.reason.startswith("rank 1 has stood still while rank 0 waits for it; rank 1 is ")
    assert hosts.names().count("standstill") == hosts.names().count("cause") == 1
    assert hosts.events[-1]["confirmation"] == hang
    assert hosts.hang_monitor.case(lasts=True).confirmation == hang


def test_a_rank_that_gets_somewhere_is_waited_for_and_never_confirmed_as_hung(hosts):
    hosts.snapshot = replace(hosts.snapshot, state="R", cpu_fraction=1.0, stack_moved=True)

    async def play():
        hosts.stand_still()
        for _ in range(3):
            await hosts.hang_monitor.turn()
            hosts.hang_monitor.stall_tracker.next_snapshot_at = 0.0

    asyncio.run(play())
    assert next(e for e in hosts.events if e["event"] == "standstill")["standstill"].level == "waiting"
    assert not hosts.hung


def test_going_on_is_said_and_the_same_trouble_may_be_said_again(hosts):
    async def play():
        hosts.stand_still()
        await hosts.hang_monitor.turn()
        hosts.heartbeat("a", 0, enqueued=40, completed=39, stood_seconds=0.0)
        hosts.heartbeat("b", 1, enqueued=39, completed=39, stood_seconds=0.0)
        await hosts.hang_monitor.turn()
        hosts.stand_still()
        await hosts.hang_monitor.turn()

    asyncio.run(play())
    assert [name for name in hosts.names() if name != "look"] == [
        "standstill", "cause", "standstill_over", "standstill", "cause",
    ]  # fmt: skip


def test_a_late_rank_that_begins_to_leave_is_news_once(hosts):
    async def play():
        hosts.stand_still()
        await hosts.hang_monitor.turn()
        for rank, heartbeat in hosts.hang_monitor.heartbeats.items():
            hosts.hang_monitor.heartbeats[rank] = replace(
                heartbeat, finalizing_ns=heartbeat.at_ns if rank == 1 else None
            )
        for _ in range(2):
            hosts.hang_monitor.stall_tracker.next_snapshot_at = 0.0
            await hosts.hang_monitor.turn()

    asyncio.run(play())
    recorded = [event["pulses"] for event in hosts.events if event["event"] == "standstill"]
    assert [[heartbeat.finalizing_ns is not None for heartbeat in heartbeats] for heartbeats in recorded] == [
        [False, False],
        [True, False],
    ]


def test_the_end_of_a_wait_names_the_rank_that_ended(hosts):
    async def play():
        hosts.stand_still()
        await hosts.hang_monitor.turn()
        hosts.hang_monitor.exited(RankExit(host="b", rank=1, code=0, attempt=0, time_ns=time.time_ns()))
        hosts.heartbeat("a", 0, enqueued=18, completed=18, stood_seconds=0.0)
        await hosts.hang_monitor.turn()

    asyncio.run(play())
    assert hosts.events[-1]["event"] == "standstill_over" and hosts.events[-1]["ended"] == [1]


def test_ranks_on_their_way_out_are_neither_looked_at_nor_said_to_go_on(hosts):
    async def play():
        hosts.stand_still()
        await hosts.hang_monitor.turn()
        hosts.hang_monitor.ending = True
        hosts.hang_monitor.stall_tracker.next_snapshot_at = 0.0
        hosts.heartbeat("a", 0, enqueued=40, completed=40, stood_seconds=0.0)
        await hosts.hang_monitor.turn()

    asyncio.run(play())
    assert hosts.names() == ["look", "look", "standstill", "cause"]


def test_a_host_that_does_not_answer_is_asked_again_and_then_told_as_it_is(hosts, monkeypatch):
    monkeypatch.setattr("paceline.launch.coordinator.hang_monitor.ANSWER_SECONDS", 0.01)
    hosts.silent = {"b"}

    async def play():
        hosts.stand_still()
        for _ in range(3):
            await hosts.hang_monitor.turn()
            hosts.hang_monitor.stall_tracker.next_snapshot_at = 0.0

    asyncio.run(play())
    assert [event["rank"] for event in hosts.events if event["event"] == "look"] == [0]
    (event,) = [event for event in hosts.events if event["event"] == "standstill"]
    assert event["standstill"].level == "waiting" and "no snapshot" in event["standstill"].progress[0]
    assert not hosts.hung


def test_nobody_speaks_for_the_ranks_of_another_host(hosts):
    hosts.heartbeat("a", 1, enqueued=1, completed=1, stood_seconds=0.0)
    assert hosts.hang_monitor.heartbeats == {}


def test_a_heartbeat_of_an_attempt_that_is_over_is_passed_over(hosts):
    hosts.heartbeat("b", 1, enqueued=1, completed=1, stood_seconds=0.0, attempt=1)
    assert hosts.hang_monitor.heartbeats == {}


def test_heartbeats_come_onto_this_hosts_clock(hosts):
    now = time.time_ns()
    hosts.hang_monitor.clock("b", now, now + 30 * SECOND, now)
    hosts.heartbeat("b", 1, enqueued=1, completed=1, stood_seconds=0.0)
    assert hosts.hang_monitor.heartbeats[1].at_ns < now - 29 * SECOND


def test_different_calls_are_recorded_once_with_both_places(hosts):
    differ(hosts)

    async def play():
        await hosts.hang_monitor.turn()
        await hosts.hang_monitor.turn()

    asyncio.run(play())
    assert hosts.names() == ["divergence"]


@pytest.mark.parametrize("stands", [True, False])
def test_a_difference_of_the_recorders_is_judged_with_the_heartbeats_of_a_stall_that_is_not_judged_yet(
    hosts, monkeypatch, stands
):
    monkeypatch.setattr("paceline.launch.coordinator.hang_monitor._HELD_BACK_NS", 0)
    seen = []
    hosts.hang_monitor.causes = (Cause("T02", "t", "T02 t", lambda case: seen.append(case) or ()),)
    if stands:
        # Both ranks have come, so that the stall counts only after several looks.
        for host, rank in (("a", 0), ("b", 1)):
            hosts.heartbeat(host, rank, enqueued=18, completed=17, stood_seconds=5.0)
    traces = {
        rank: [replace(ENTRY, index=2, operation=operation)]
        for rank, operation in ((0, "all_reduce"), (1, "broadcast"))
    }

    async def play():
        await hosts.hang_monitor.turn()
        await hosts.hang_monitor.compare(traces)
        # The calls behind the first difference may still come.
        await hosts.hang_monitor.turn()
        await hosts.hang_monitor.turn()

    asyncio.run(play())
    assert hosts.names() == ["divergence"]
    assert seen[-1].divergences and sorted(seen[-1].heartbeats) == ([0, 1] if stands else [])


def test_the_end_is_judged_with_the_exits(hosts):
    seen = []
    hosts.hang_monitor.causes = (Cause("T02", "t", "T02 t", lambda case: seen.append(case) or ()),)
    exit = RankExit(host="b", rank=1, attempt=0, code=-9, time_ns=1)
    hosts.hang_monitor.exited(exit)
    hosts.record("rank_exited", host="b", rank=1, attempt=0, code=-9, time_ns=1)
    asyncio.run(hosts.hang_monitor.conclude(hosts.hang_monitor.last_case()))
    assert not seen[0].lasts and [found.code for found in seen[0].exits] == [-9]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_finding_about_an_attempt_that_was_resumed_is_recorded_with_that(hosts, resumed):
    found = CauseFinding(code="T02", title="killed", level=Level.CRASH, ranks=(1,))
    hosts.hang_monitor.causes = (Cause("T02", "t", "T02 t", lambda case: (found,)),)
    hosts.hang_monitor.exited(RankExit(host="b", rank=1, attempt=0, code=-9, time_ns=1))
    hosts.record("rank_exited", host="b", rank=1, attempt=0, code=-9, time_ns=1)
    asyncio.run(hosts.hang_monitor.conclude(hosts.hang_monitor.last_case(), resumed=resumed))
    (told,) = [event for event in hosts.events if event["event"] == "cause"]
    assert told.get("resumed", False) is resumed


def test_an_end_with_nothing_wrong_is_not_judged(hosts):
    hosts.hang_monitor.exited(RankExit(host="b", rank=1, attempt=0, code=0, time_ns=1))
    assert hosts.hang_monitor.last_case() is None


def test_a_difference_whose_cause_is_being_sought_as_the_job_ends_is_still_said(hosts):
    begun = threading.Event()
    may_go_on = threading.Event()

    def find(case):
        begun.set()
        may_go_on.wait(10)
        return [CauseFinding(code="T03", title="t", level=Level.DIVERGENCE, ranks=(1,))] if case.divergences else ()

    hosts.hang_monitor.causes = (Cause("T03", "t", "T03 t", find),)
    differ(hosts)

    async def play():
        await hosts.hang_monitor.turn()
        turn = asyncio.create_task(hosts.hang_monitor.turn())
        await asyncio.to_thread(begun.wait, 10)
        end = asyncio.create_task(hosts.hang_monitor.conclude(hosts.hang_monitor.last_case()))
        await asyncio.sleep(0)
        may_go_on.set()
        await end
        turn.cancel()

    asyncio.run(play())
    assert hosts.names() == ["divergence", "cause"]


def test_what_fails_in_here_is_said_once_and_the_watch_goes_on(hosts, monkeypatch):
    monkeypatch.setattr("paceline.launch.coordinator.hang_monitor.TURN_SECONDS", 0.0)
    turns = []

    class Broken:
        def observe(self, heartbeats, now_ns):
            turns.append(now_ns)
            raise ValueError("of its own kind")

    hosts.hang_monitor._detector = Broken()

    async def play():
        watching = asyncio.create_task(hosts.hang_monitor.watch())
        async with asyncio.timeout(10):
            while len(turns) < 3:
                await asyncio.sleep(0)
        watching.cancel()

    asyncio.run(play())
    assert hosts.names() == ["notice"]
    assert "of its own kind" in hosts.events[0]["text"]


def test_traces_come_from_every_host_and_of_its_own_ranks(hosts):
    now = time.time_ns()
    hosts.hang_monitor.clock("b", now, now + 30 * SECOND, now)
    traces = asyncio.run(hosts.hang_monitor.traces())
    assert {rank: entries[0].created_ns for rank, entries in traces.items()} == {0: 60 * SECOND, 1: 30 * SECOND}
    assert [(host, type(message)) for host, message in hosts.asked] == [("a", TraceRequest), ("b", TraceRequest)]


def test_an_attempt_that_begins_during_a_snapshot_has_no_part_in_it(hosts):
    ask = hosts.ask

    def begin_anew(host, message):
        ask(host, message)
        if hosts.hang_monitor.attempt == 0:
            hosts.hang_monitor.attempt_started(msgspec.structs.replace(FORM, attempt=1))

    hosts.hang_monitor.ask = begin_anew
    hosts.stand_still()
    asyncio.run(hosts.hang_monitor.turn())
    assert hosts.names() == [] and hosts.hang_monitor.stall_tracker is None


def test_a_clock_is_recorded_when_it_moves_by_more_than_a_millisecond_and_its_error(hosts):
    now = time.time_ns()
    offsets_ms = [(0.5, 0.1), (30, 200), (30, 2), (30.5, 1), (35, 0.5), (500, 0.2)]
    for at, (offset_ms, way_ms) in enumerate(offsets_ms):
        sent, way, offset = now + at * SECOND, round(way_ms * 1e6), round(offset_ms * 1e6)
        hosts.hang_monitor.offsets.clear()
        hosts.hang_monitor.clock("b", sent, sent + way + offset, sent + 2 * way)
    told = [(event["offset_ns"], event["error_ns"]) for event in hosts.events if event["event"] == "clock"]
    assert told == [(30_000_000, 2_000_000), (500_000_000, 200_000)]


def test_what_a_host_says_wrongly_costs_it_nothing(hosts):
    hosts.hang_monitor.take("a", HeartbeatMessage(heartbeats=[None], calls=[]))
    assert hosts.names() == ["notice"]


def test_of_a_week_of_timings_and_snapshots_only_the_newest_are_kept(hosts):
    for number in range(20_000):
        hosts.record("look", host="b", rank=1, attempt=0, look={"host": "b", "rank": 1, "pid": 5, "at_ns": number})
    hosts.record("rank_started", host="b", rank=1, attempt=0, pid=5)
    case = hosts.hang_monitor.case(lasts=True)
    assert case.snapshots[1].at_ns == 19_999 and len(case.events) == 2
