"""A case from the events of a run: whole, in part, and damaged."""

from dataclasses import replace

import pytest

from paceline.diagnosis.build_case import build_case, case_of
from paceline.diagnosis.case import Call, Divergence, Heartbeat, Level, Stall, StepTiming
from paceline.diagnosis.crash.exits import failures
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.facts import Evidence, RankError, RankExit, RankRecord, Run
from paceline.recording.fact_json import to_plain
from paceline.recording.jsonl import read_json_lines
from paceline.recording.writer import EventLog

RUN = Run(id="r-1", name="job", directory="/runs/r-1", command=("train.py",), started_ns=0, first_host="algo-1")
STARTED = {"t_ns": 1, "event": "attempt_started", "attempt": 0, "world_size": 2}
STALL = Stall(level=Level.STALL, since_ns=10_000, detected_ns=20_000, threshold_seconds=3.0, late=(1,), waiting=(0,))


def built(*events, ranks=(), **more):
    return build_case(RUN, events=events, ranks=ranks, hosts=("algo-1",), telemetry={}, now_ns=99, lasts=True, **more)


def record(rank, attempt=0, **more):
    return RankRecord(host="algo-1", rank=rank, attempt=attempt, **more)


def exited(rank, code, at, message=None, **more):
    error = RankError(type="RuntimeError", message=message, time_ns=at) if message else None
    return RankExit(host="algo-1", rank=rank, attempt=0, code=code, time_ns=at, error=error, **more)


def still(heartbeats=(), stall=STALL):
    return {
        "event": "standstill",
        "standstill": to_plain(stall),
        "pulses": [to_plain(heartbeat) for heartbeat in heartbeats],
    }


def heartbeat(rank, **more):
    return Heartbeat(host="algo-1", rank=rank, at_ns=20_000, moved_ns=10_000, **more)


def test_the_newest_attempt_is_judged_unless_one_is_named():
    events = (STARTED, {**STARTED, "attempt": 1, "world_size": 4})
    ranks = (record(0, step_count=7), record(0, attempt=1, step_count=2))
    assert built(*events, ranks=ranks).ranks[0].step_count == 2
    assert built(*events, ranks=ranks).world_size == 4
    assert built(*events, ranks=ranks, attempt=0).ranks[0].step_count == 7


def test_a_stall_comes_back_with_its_heartbeats():
    case = built(STARTED, still([heartbeat(0, phase="communication", calls={"0": 4}), heartbeat(1)]))
    assert case.stall == STALL
    assert case.heartbeats[0].calls == {"0": 4}
    assert sorted(case.heartbeats) == [0, 1]


def test_a_stall_that_is_over_or_of_an_earlier_attempt_is_none():
    over = {"event": "standstill_over", "after_seconds": 9.0}
    assert built(STARTED, still(), over).stall is None
    assert built(STARTED, still(), {**STARTED, "attempt": 1}).stall is None


@pytest.mark.parametrize(
    ("later", "ranks"),
    [
        ((), [0, 1]),
        (({"event": "standstill_over", "after_seconds": 9.0},), []),
        ((still([heartbeat(1)]),), [1]),
        (({"event": "notice", "text": "more"},), [0, 1]),
    ],
)
def test_a_difference_that_was_found_in_a_stall_brings_the_heartbeats_of_that_stall(later, ranks):
    differed = {"event": "divergence", "pulses": [to_plain(heartbeat(0)), to_plain(heartbeat(1))]}
    assert sorted(built(STARTED, differed, *later).heartbeats) == ranks
    assert sorted(built(STARTED, differed, *later, {**STARTED, "attempt": 1}).heartbeats) == []


def test_only_snapshots_since_the_stall_count_and_the_newest_wins():
    snapshots = [
        RankSnapshot(host="algo-1", rank=1, pid=5, at_ns=at, state=state)
        for at, state in ((1, "D"), (11_000, "R"), (12_000, "T"))
    ]
    events = [{"event": "look", "host": "algo-1", "rank": 1, "look": to_plain(snapshot)} for snapshot in snapshots]
    case = built(STARTED, still(), *events)
    assert case.snapshots[1].state == "T"
    assert built(STARTED, still(), events[0]).snapshots == {}


def test_host_snapshots_divergences_and_the_newest_timing_come_back():
    call = Call(index=3, operation="allreduce", issued_ns=5, shape=(4,))
    divergence = Divergence(
        group="0", ranks=(0, 1), index=3, found_ns=9, calls={0: call, 1: call}, windows={0: (call,), 1: (call,)}
    )
    timings = [StepTiming(window_seconds=1, from_step=1, to_step=n, step_seconds=0.1, ranks=()) for n in (5, 9)]
    case = built(
        STARTED,
        {"event": "divergence", "divergence": to_plain(divergence)},
        {"event": "host_look", "host": "algo-1", "look": to_plain(HostSnapshot(host="algo-1", at_ns=3, load_1m=2.0))},
        *({"event": "tempo", "tempo": to_plain(timing)} for timing in timings),
    )
    assert case.divergences == (divergence,)
    assert case.host_snapshots["algo-1"].load_1m == 2.0
    assert case.timing == timings[1]


def test_a_job_is_judged_by_the_same_case_while_it_runs_and_from_its_recording(tmp_path):
    snapshot = RankSnapshot(host="algo-1", rank=1, pid=5, at_ns=11_000)
    timing = StepTiming(window_seconds=1, from_step=1, to_step=5, step_seconds=0.1, ranks=())
    events = (
        STARTED,
        {"t_ns": 2, "event": "tempo", "tempo": timing},
        {"t_ns": 3, "event": "standstill", "standstill": STALL, "pulses": [heartbeat(0, calls={"0": 4})]},
        {"t_ns": 4, "event": "look", "rank": 1, "look": snapshot},
    )
    log = EventLog(tmp_path / "events.jsonl")
    for event in events:
        log.append(event)
    recorded, complaint = read_json_lines(log.path)
    live, later = built(*events), built(*recorded)
    assert live.snapshots[1] is snapshot and live.stall is STALL and live.timing is timing
    assert not complaint and replace(live, events=()) == replace(later, events=())


def test_a_malformed_event_is_named_and_the_rest_counts():
    bad = [
        {"event": "look", "look": {"rank": "none"}},
        {"event": "divergence", "divergence": None},
        {"event": "tempo"},
        {"event": "rank_exited", "rank": [1]},
        {"event": "standstill", "standstill": 7},
        {"event": "waiting", "missing": {"ranks": 1}},
    ]
    case = built(STARTED, still([heartbeat(1)]), *bad, not_judged=("telemetry of algo-1: none",))
    assert case.stall == STALL
    assert case.not_judged[0] == "telemetry of algo-1: none"
    assert {line.split()[1] for line in case.not_judged[1:]} == {
        "look",
        "divergence",
        "tempo",
        "rank_exited",
        "standstill",
    }


def test_events_of_a_later_version_are_read_as_far_as_they_are_known():
    event = still()
    event["standstill"]["mood"] = "bad"
    assert built(STARTED, event).stall == STALL


def test_exits_lead_with_the_first_fall_and_end_with_what_we_stopped():
    exits = (
        exited(0, 1, 2_000, "Connection closed by peer [127.0.0.1]:9"),
        exited(1, -15, 1_000, signalled_by_us=True),
        exited(2, 1, 3_000, "no such column"),
    )
    case = built(STARTED, ranks=[record(exit.rank, exit=exit) for exit in exits])
    assert [exit.rank for exit in case.exits] == [2, 0, 1]


def test_exits_are_found_in_events_where_no_record_has_them():
    event = {
        "event": "rank_exited",
        "host": "algo-1",
        "rank": 1,
        "attempt": 0,
        "code": -9,
        "time_ns": 5,
        "tail": "bye",
        "x": 1,
    }
    case = built(STARTED, event)
    assert [(exit.rank, exit.code) for exit in case.exits] == [(1, -9)]
    assert case.tails == {1: "bye"}


def test_a_rank_that_left_with_0_leads_where_its_peers_only_lost_the_connection():
    exits = (exited(0, 1, 2_000, "Connection closed by peer"), exited(1, 0, 1_900))
    case = built(STARTED, ranks=[record(exit.rank, exit=exit) for exit in exits])
    assert [exit.rank for exit in case.exits] == [1, 0]


def test_a_rank_that_left_with_0_is_named_where_others_were_seen_to_wait_for_it():
    case = built(STARTED, still(), ranks=[record(1, exit=exited(1, 0, 9_000)), record(0)])
    assert [exit.rank for exit in case.exits] == [1]


def test_an_end_with_0_after_the_work_is_no_early_end():
    done = [record(rank, exit=exited(rank, 0, 5_000 + rank)) for rank in (0, 1)]
    assert built(STARTED, ranks=done).exits == ()
    late_failure = [record(0, exit=exited(0, 1, 2_000_000, "disk full")), record(1, exit=exited(1, 0, 1_000_000))]
    assert [exit.rank for exit in built(STARTED, ranks=late_failure).exits] == [0]


def test_an_exception_before_an_end_with_0_counts_as_its_failure():
    hidden = (exited(0, 0, 2_000, "Connection closed by peer"), exited(1, 0, 2_100, "no rows"))
    case = built(STARTED, ranks=[record(exit.rank, exit=exit) for exit in hidden])
    assert {exit.rank for exit in case.exits} == {0, 1}
    assert [exit.rank for exit in failures(case)] == [1]


def test_missing_hosts_are_those_of_the_latest_wait_and_gone_once_the_job_formed():
    first = {"event": "waiting", "missing": [{"host": "node 1", "ranks": [2, 3], "saw": "x"}, {"host": "node 2"}]}
    second = {"event": "waiting", "missing": [{"host": "node 2", "ranks": [4, 5], "saw": "y"}]}
    assert built(first, second).missing_hosts == (second["missing"][0],)
    assert built(first, STARTED).missing_hosts == ()


def test_a_case_of_evidence_carries_its_losses():
    evidence = Evidence(
        run=RUN, hosts=("algo-1",), ranks=(record(0),), events=(), telemetry={"algo-1": ({"t_ns": 1},)},
        not_judged=("algo-1 attempt 0 rank_0.seg: ends inside a record",),
    )  # fmt: skip
    case = case_of(evidence, now_ns=1, lasts=False, tails={0: "text"})
    assert case.not_judged == evidence.not_judged
    assert case.tails == {0: "text"} and case.telemetry["algo-1"][0]["t_ns"] == 1


def test_nothing_at_all_makes_an_empty_case():
    case = built()
    assert case.world_size is None and case.exits == () and case.stall is None and case.attempt == 0
