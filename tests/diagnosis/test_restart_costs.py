"""What restarts cost, from what the ranks of each attempt have noted."""

import pytest

from paceline.diagnosis.restart_costs import EVENT, NotUsed, Restart, restart, totals
from paceline.facts import RankRecord
from paceline.recording.fact_json import to_plain

HOUR_NS = 3600 * 10**9
STARTED_NS = 1000 * HOUR_NS
NOTHING, OLD, OWN = 0, STARTED_NS - HOUR_NS, STARTED_NS + HOUR_NS


def ranks(attempt, steps, *, saved=0, loaded=NOTHING, saves=None, **more):
    """Two ranks of which the first saves and loads."""
    seconds = 1.0 if (saves if saves is not None else saved) else 0.0
    first = RankRecord(
        host="a",
        rank=0,
        attempt=attempt,
        step_count=steps,
        saved_steps=saved,
        checkpoint_seconds=seconds,
        loaded_ns=loaded,
        **more,
    )
    return [
        first,
        RankRecord(
            host="a",
            rank=1,
            attempt=attempt,
            step_count=steps and steps - 1,
            saved_steps=0,
            checkpoint_seconds=0.0,
            loaded_ns=None if loaded is None else NOTHING,
        ),
    ]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([(12, {})], {}, (False, "", 12)),
        ([(12, {"saved": 10})], {}, (False, "", 12)),
        ([(12, {"saved": 10})], {"loaded": OLD}, (False, NotUsed.OLDER, 12)),
        ([(12, {"saved": 10})], {"loaded": OWN}, (True, "", 2)),
        ([(12, {"saves": True})], {"loaded": OWN}, (False, NotUsed.WITHOUT_STEPS, 12)),
        ([(12, {"saves": True})], {"loaded": OWN, "optimizer_loaded": True}, (True, "", 12)),
        ([(12, {"saves": True}), (9, {"saved": 5})], {"loaded": OWN}, (True, "", 4)),
        ([(12, {"saved": 10})], {"loaded": OWN, "parameters_asked": 4}, (False, NotUsed.NOTHING_TAKEN, 12)),
        ([(12, {"saved": 10})], {"loaded": OWN, "parameters_asked": 4, "parameters_loaded": 1}, (True, "", 2)),
        ([(12, {"saved": 10}), (7, {"loaded": OWN, "parameters_asked": 4})], {}, (False, "", 7)),
        ([(12, {})], {"loaded": OWN}, (True, "", None)),
        ([(12, {})], {"loaded": None}, (None, "", None)),
        ([(None, {})], {}, (False, "", None)),
        ([(0, {})], {}, (False, "", 0)),
        ([(12, {}), (7, {})], {}, (False, "", 7)),
        ([(12, {"saved": 10}), (7, {"loaded": OWN})], {}, (False, "", 17)),
        ([(12, {"saved": 10}), (7, {"loaded": OWN, "saved": 5})], {"loaded": OWN}, (True, "", 2)),
        ([(12, {"saved": 10}), (3, {"loaded": OWN})], {"loaded": OWN}, (True, "", 3)),
        ([(12, {}), (7, {"loaded": OWN})], {}, (False, "", None)),
    ],
)
def test_what_is_lost_are_the_steps_since_what_was_loaded(before, now, expected):
    attempts = [ranks(number, steps, **more) for number, (steps, more) in enumerate(before)]
    found = restart(attempts, ranks(len(before), 1, **now), job_started_ns=STARTED_NS)
    assert found.attempt == len(before)
    assert (found.loaded, found.not_used, found.lost_steps) == expected


def event(**fields):
    return {"event": EVENT, "restart": to_plain(Restart(**fields))}


@pytest.mark.parametrize(
    ("events", "count", "lost"),
    [
        ([], 0, 0),
        ([{"event": "restart", "attempt": 1}], 1, None),
        ([{"event": "restart", "attempt": 1}, event(attempt=1, loaded=False, lost_steps=12)], 1, 12),
        ([event(attempt=1, loaded=False, lost_steps=12), event(attempt=2, loaded=True, lost_steps=3)], 2, 15),
        ([event(attempt=1, loaded=False, lost_steps=12), {"event": "restart", "attempt": 2}], 2, None),
        ([{"event": EVENT, "restart": {"attempt": "x"}}, {"event": EVENT}, {"event": "restart"}], 0, 0),
    ],
)
def test_restarts_are_counted_and_what_one_of_them_cost_is_not_guessed(events, count, lost):
    found = totals(events)
    assert (found.count, found.lost_steps) == (count, lost)
