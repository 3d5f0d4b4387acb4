"""Each message of a host: from whom it counts, when, and with which values."""

import math
from dataclasses import replace
from typing import get_args

import msgspec
import pytest

from paceline.cli.programs.agents_page import agents_page
from paceline.diagnosis.case import Heartbeat
from paceline.facts import Placement, RankError, RankExit
from paceline.launch.coordinator.limits import (
    BURST_BYTES,
    BURST_MESSAGES,
    BYTES_PER_SECOND,
    MESSAGES_PER_SECOND,
    RateLimit,
)
from paceline.launch.job import messages
from paceline.launch.job.accepted_messages import RULES, Sender, SendingHost, objection, objection_to_first
from paceline.launch.job.messages import (
    Beat,
    ClaimMessage,
    EventMessage,
    ExitedMessage,
    Failure,
    GatheredMessage,
    HeartbeatMessage,
    IdleMessage,
    LinesMessage,
    Pong,
    ReadyMessage,
    RefusedMessage,
    ResumedMessage,
    SnapshotReply,
    StartAttemptMessage,
    StopMessage,
    StopRequest,
    TraceReply,
)
from paceline.launch.job.state import JobPhase

OWN = Placement(host="b", address="10.0.0.2", node_rank=1, first_rank=2, ranks=2)
EXIT = RankExit(host="b", rank=3, attempt=1, code=1, time_ns=5)
# What a host of the attempt rightly says, and the phase in which.
RIGHT = {
    ReadyMessage: (ReadyMessage(attempt=1), JobPhase.FETCHING),
    ExitedMessage: (ExitedMessage(exit=EXIT), JobPhase.RUNNING),
    IdleMessage: (IdleMessage(attempt=1, kept={2: [7, 6], 3: []}, step_count=7), JobPhase.STOPPING),
    ResumedMessage: (ResumedMessage(attempt=1, stepped_ns=5), JobPhase.RUNNING),
    RefusedMessage: (RefusedMessage(code="U22", what="a", saw="b", next="c"), JobPhase.FETCHING),
    ClaimMessage: (ClaimMessage(digests={"step/9.pt": "a" * 64}), JobPhase.RUNNING),
    GatheredMessage: (GatheredMessage(kinds=["model"], errors=[]), JobPhase.ENDED),
    EventMessage: (EventMessage(event={"event": "notice", "text": "hello"}), JobPhase.RUNNING),
    LinesMessage: (LinesMessage(kind="telemetry", lines=[{"t_ns": 1}]), JobPhase.RUNNING),
    HeartbeatMessage: (
        HeartbeatMessage(heartbeats=[Heartbeat(host="b", rank=2, at_ns=1, moved_ns=1)], calls=[]),
        JobPhase.RUNNING,
    ),
    SnapshotReply: (SnapshotReply(number=1, snapshots=[], hosts=[]), JobPhase.RUNNING),
    TraceReply: (TraceReply(number=1, traces={2: []}), JobPhase.RUNNING),
    StopRequest: (StopRequest(signal="SIGTERM", reason="Ctrl-C"), JobPhase.RUNNING),
    Pong: (Pong(sent_ns=1, at_ns=2), JobPhase.RUNNING),
    Beat: (Beat(sent_ns=1), JobPhase.RUNNING),
}
KINDS = sorted(RULES, key=lambda kind: kind.__name__)


def sending_host(phase, **changes):
    fields = {"attempt": 1, "proven": True, "placement": OWN, "gathering": frozenset({"model"}), **changes}
    return SendingHost(phase=phase, **fields)


def test_every_message_has_a_rule_or_is_the_first_hosts_alone():
    of_the_first = {
        "Hello",
        "Welcome",
        "StartAttemptMessage",
        "StartWorkersMessage",
        "ClaimedMessage",
        "GatherMessage",
        "StopMessage",
    }
    of_the_first |= {"KillMessage", "FinishMessage", "SnapshotRequest", "TraceRequest", "Ping"}
    every = {kind.__name__ for kind in get_args(messages.Message)}
    assert {kind.__name__ for kind in RULES} | of_the_first == every
    assert set(RIGHT) == set(RULES)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_host_rightly_says_counts(kind):
    message, phase = RIGHT[kind]
    assert messages.decode(messages.encode(message)) == message
    assert objection(message, sending_host(phase)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_guest_only_a_sign_of_life_the_clock_and_a_proven_wish_count(kind):
    message, phase = RIGHT[kind]
    found = objection(message, sending_host(phase, placement=None, proven=False))
    assert (found is None) == (kind in (Pong, Beat))
    assert found is None or (found.told and not found.breach)
    proven = objection(message, sending_host(phase, placement=None))
    assert (proven is None) == (kind in (Pong, Beat, StopRequest))


@pytest.mark.parametrize("phase", JobPhase)
@pytest.mark.parametrize("kind", KINDS)
def test_in_another_phase_it_is_passed_over_without_a_word(kind, phase):
    found = objection(RIGHT[kind][0], sending_host(phase))
    if phase in RULES[kind].phases:
        assert found is None
    else:
        assert found is not None and not found.breach and not found.told


BREACHES = [
    (ReadyMessage(attempt=2), JobPhase.FETCHING),
    (IdleMessage(attempt=2), JobPhase.RUNNING),
    (IdleMessage(attempt=1, kept={1: [7], 2: [7]}), JobPhase.RUNNING),
    (IdleMessage(attempt=1, kept={4: []}), JobPhase.RUNNING),
    (ResumedMessage(attempt=2, stepped_ns=5), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, state_mismatch=True)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, code=0, not_put_back=True)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, error=RankError(type="E", message="m" * 65537, time_ns=1))), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, rank=1)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, rank=4)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, rank=-1)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, code=256)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, code=-65)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, attempt=2)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, attempt=-1)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, time_ns=1 << 63)), JobPhase.RUNNING),
    (ExitedMessage(exit=replace(EXIT, tail="x" * 70_000)), JobPhase.RUNNING),
    (ClaimMessage(digests={"../x": "a" * 64}), JobPhase.RUNNING),
    (ClaimMessage(digests={"/etc/passwd": "a" * 64}), JobPhase.RUNNING),
    (GatheredMessage(kinds=["output"], errors=[]), JobPhase.ENDED),
    (EventMessage(event={"event": "notice", "text": "x" * 70_000}), JobPhase.RUNNING),
    (EventMessage(event={"event": "notice", "t_ns": 1 << 63}), JobPhase.RUNNING),
    (LinesMessage(kind="logs", lines=[{"a": math.inf}]), JobPhase.RUNNING),
    (LinesMessage(kind="logs", lines=[{"a": math.nan}]), JobPhase.RUNNING),
    (LinesMessage(kind="logs", lines=[{"a": [[[[[[[[[[[[[[1]]]]]]]]]]]]]]}]), JobPhase.RUNNING),
    (StopRequest(signal="SIGNONE", reason="no"), JobPhase.RUNNING),
    (StartAttemptMessage(attempt=1, placements=(), master_addr="x", store_port=1), JobPhase.RUNNING),
]


@pytest.mark.parametrize(("message", "phase"), BREACHES, ids=lambda part: type(part).__name__)
def test_a_value_out_of_its_range_ends_the_connection(message, phase):
    found = objection(message, sending_host(phase))
    assert found is not None and found.breach


def test_what_the_ranks_left_is_told_once_and_only_when_somebody_asked():
    message, phase = RIGHT[GatheredMessage]
    for early in (sending_host(phase, gathering=None), sending_host(phase, has_gathered=True)):
        found = objection(message, early)
        assert found is not None and found.breach


NO_MESSAGES = [
    b'{"type":"idle","attempt":-1}',
    b'{"type":"idle","attempt":2147483648}',
    b'{"type":"idle","attempt":1.5}',
    b'{"type":"idle","attempt":1,"kept":{"0":[0]}}',
    b'{"type":"idle","attempt":1,"kept":{"0":[3,2,1]}}',
    b'{"type":"idle","attempt":1,"kept":{"-1":[1]}}',
    b'{"type":"idle","attempt":1,"kept":{"0":[9223372036854775808]}}',
    b'{"type":"idle","attempt":1,"kept":[1]}',
    b'{"type":"idle","attempt":1,"step_count":-1}',
    b'{"type":"resumed","attempt":1,"stepped_ns":-1}',
    b'{"type":"resumed","attempt":-1,"stepped_ns":1}',
    b'{"type":"form","attempt":1,"hosts":[],"master_addr":"a","store_port":1,"resume_step":0}',
    b'{"type":"form","attempt":1,"hosts":[],"master_addr":"a","store_port":1,"hash_seed":4294967296}',
    b'{"type":"kill","reason":"","at_once":"yes"}',
    b'{"type":"claim","digests":{"a":"00"}}',
    b'{"type":"claim","digests":{"":"' + b"0" * 64 + b'"}}',
    b'{"type":"gathered","kinds":["model","model","output"],"errors":[]}',
    b'{"type":"gathered","kinds":["secrets"],"errors":[]}',
    b'{"type":"gathered","parts":{"model":"file:///etc"},"errors":[]}',
    b'{"type":"gathered","kinds":[],"errors":[{"code":"rm -rf","what":"","saw":"","next":""}]}',
    b'{"type":"look_reply","number":-1,"looks":[],"hosts":[]}',
    b'{"type":"trace_reply","number":0,"traces":{"-1":[]}}',
    b'{"type":"pong","sent_ns":-1,"at_ns":0}',
    b'{"type":"pong","sent_ns":9223372036854775808,"at_ns":0}',
    b'{"type":"beat","sent_ns":1e99}',
    b'{"type":"stop_request","signal":"$(id)","reason":""}',
    b'{"type":"stop","signal":"SIGTERM","grace_seconds":-1,"reason":""}',
    b'{"type":"stop","signal":"SIGTERM","grace_seconds":1e300,"reason":""}',
    b'{"type":"finish","outcome":{"exit_code":256,"status":"Failed","secondary_status":"Failed","reason":""}}',
    b'{"type":"finish","outcome":{"exit_code":0,"status":"Perhaps","secondary_status":"Failed","reason":""}}',
    b'{"type":"form","attempt":0,"hosts":[],"master_addr":"a/b","store_port":1}',
    b'{"type":"form","attempt":0,"hosts":[],"master_addr":"a","store_port":70000}',
    b'{"type":"welcome","run_id":"../x","name":"n","job_name":"j"}',
    b'{"type":"lines","kind":"../x","lines":[]}',
    b'{"type":"event","event":[]}',
    b'{"type":"refused","code":"U05","what":"' + b"x" * 70_000 + b'","saw":"","next":""}',
    b"[" * 5000,
]


@pytest.mark.parametrize("payload", NO_MESSAGES, ids=lambda payload: payload[:60].decode())
def test_a_value_that_nobody_may_say_is_no_message(payload):
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        messages.decode(payload)


def test_a_failure_of_a_host_has_four_parts():
    said = GatheredMessage(kinds=[], errors=[Failure(code="E53", what="a", saw="b", next="c")])
    assert messages.decode(messages.encode(said)) == said


FIRST = Placement(host="a", address="10.0.0.1", node_rank=0, first_rank=0, ranks=2)


@pytest.mark.parametrize(
    "placements",
    [
        (FIRST,),
        (FIRST, replace(OWN, ranks=3)),
        (FIRST, replace(OWN, first_rank=3)),
        (FIRST, replace(OWN, node_rank=2)),
        (OWN, FIRST),
        (FIRST, OWN, replace(OWN, node_rank=2, first_rank=4)),
    ],
)
def test_a_host_does_not_start_ranks_that_are_not_its_own(placements):
    form = StartAttemptMessage(attempt=0, placements=placements, master_addr="a", store_port=1)
    assert "placements" in objection_to_first(form, "b", 2)
    assert objection_to_first(msgspec.structs.replace(form, placements=(FIRST, OWN)), "b", 2) == ""


def test_the_first_attempt_goes_on_from_no_kept_step():
    form = StartAttemptMessage(attempt=0, placements=(FIRST, OWN), master_addr="a", store_port=1, resume_step=3)
    assert "kept step" in objection_to_first(form, "b", 2)
    assert objection_to_first(msgspec.structs.replace(form, attempt=1), "b", 2) == ""


def test_a_host_needs_the_port_of_the_store():
    form = StartAttemptMessage(attempt=0, placements=(FIRST, OWN), master_addr="a", store_port=0)
    assert "port" in objection_to_first(form, "b", 2)


def test_a_host_sends_no_signal_that_there_is_not():
    stop = StopMessage(signal="SIGNONE", grace_seconds=1.0, reason="")
    assert objection_to_first(stop, "b", 2)
    assert objection_to_first(msgspec.structs.replace(stop, signal="SIGTERM"), "b", 2) == ""


def test_a_host_may_say_much_at_once_and_then_no_more_than_its_rate():
    rate_limit = RateLimit(0.0)
    assert rate_limit.wait_seconds(BURST_BYTES, 0.0) == 0
    assert rate_limit.wait_seconds(BYTES_PER_SECOND, 0.0) == pytest.approx(1.0)
    assert rate_limit.wait_seconds(0, 10.0) == 0
    many = RateLimit(0.0)
    waits = [many.wait_seconds(1, 0.0) for _ in range(int(BURST_MESSAGES + MESSAGES_PER_SECOND))]
    assert waits[int(BURST_MESSAGES) - 1] == 0 and waits[-1] == pytest.approx(1.0)


def test_the_page_is_what_the_rules_say(repository):
    assert {rule.sender for rule in RULES.values()} == set(Sender)
    assert (repository / "docs/agents.md").read_text() == agents_page(), "run `make docs`"
