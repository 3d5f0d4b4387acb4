"""When a resume is complete."""

import msgspec
import pytest

from paceline.facts import Placement, RankExit
from paceline.launch.coordinator.resume_costs import ResumeMonitor
from paceline.launch.job.messages import ResumedMessage, StartAttemptMessage
from paceline.launch.job.state import Resume

SECOND = 10**9
CAUSE = RankExit(host="b", rank=2, attempt=0, code=-9, time_ns=100 * SECOND)
RESUME = Resume(step=7, cause=CAUSE, step_count=8)
FORM = StartAttemptMessage(
    attempt=1,
    placements=(
        Placement(host="a", address="a", node_rank=0, first_rank=0, ranks=2),
        Placement(host="b", address="b", node_rank=1, first_rank=2, ranks=1),
    ),
    master_addr="a",
    store_port=1,
    resume_step=7,
)


@pytest.fixture
def events():
    return []


@pytest.fixture
def monitor(events):
    clocks = {"a": 0, "b": 50 * SECOND}
    return ResumeMonitor(lambda event, **fields: events.append((event, fields)), clocks.__getitem__)


def stepped(seconds, attempt=1):
    return ResumedMessage(attempt=attempt, stepped_ns=int(seconds * SECOND))


def test_a_resume_is_told_when_the_last_host_has_made_a_step_on_one_clock(monitor, events):
    monitor.began(FORM, RESUME)
    monitor.take("a", stepped(50.2))
    assert events == []
    # The clock of b is 50 s ahead.
    monitor.take("b", stepped(100.31))
    ((event, fields),) = events
    assert event == "resumed"
    # The line on disk has every key, in this order.
    assert list(fields.items()) == [
        ("attempt", 1), ("step", 7), ("rank", 2), ("host", "b"), ("signal", "SIGKILL"), ("hung", False), ("seconds", 0.31),
        ("steps_again", 1),
    ]  # fmt: skip


def test_what_was_said_twice_of_another_attempt_or_without_a_resume_is_told_once_or_never(monitor, events):
    monitor.take("a", stepped(50.2))
    monitor.began(FORM, RESUME)
    monitor.take("a", stepped(50.2, attempt=0))
    for _ in range(2):
        monitor.take("a", stepped(50.2))
    assert events == []
    for _ in range(2):
        monitor.take("b", stepped(100.31))
    assert len(events) == 1
    monitor.began(msgspec.structs.replace(FORM, attempt=2, resume_step=None), None)
    for host in ("a", "b"):
        monitor.take(host, stepped(60.0, attempt=2))
    assert len(events) == 1
