"""The way of `auto`: plain DDP, a trial, a second look, back. Pure: a simulated cluster says what each step takes."""

import marshal
from dataclasses import replace

import pytest

from paceline.parts.comm.auto.prediction import PLAIN, MeasuredNetwork, StepProfile
from paceline.parts.comm.auto.tuning_policy import (
    LOOKS,
    PhaseTiming,
    TuningPhase,
    TuningPolicy,
    is_enough,
    typical_seconds,
)
from paceline.parts.plan.planner.collective import MIB

NETWORK = MeasuredNetwork(ranks=4, hosts=4, hop_seconds=11e-3, bytes_per_second=1.2e9, ring_hop_seconds=21e-3)
TRAINING = StepProfile(
    gradient_bytes=(MIB // 8,) * 32, step_seconds=0.0, backward_seconds=0.0, exposed_seconds=None
)  # fmt: skip
PLAIN_STEP = PhaseTiming(step_seconds=0.28, backward_seconds=0.02, exposed_seconds=0.25)


def walk(truth, strategies=("direct", "hierarchical"), plain=PLAIN_STEP, between=lambda policy: policy):
    """Let a course run where `truth(strategy, turn)` is what a step takes; every exchange it went through, and what it said.

    `between`: what becomes of the policy before each turn.
    """
    policy = TuningPolicy(TRAINING, NETWORK, strategies)
    went, said, now = [PLAIN], [], PLAIN
    for turn in range(10):
        measured = (
            plain
            if turn == 0
            else PhaseTiming(step_seconds=truth(now, turn), backward_seconds=0.02, exposed_seconds=0.2)
        )
        policy = between(policy)
        step = policy.judge(measured)
        if step.text:
            said.append(step.text)
        if step.choice is not None:
            now = step.choice.strategy
            went.append(now)
        if policy.phase is TuningPhase.OVER:
            return went, said
    raise AssertionError("a course has to end")


def test_what_wins_by_far_stays_after_one_trial():
    went, said = walk(lambda strategy, turn: 0.07 if strategy == "direct" else 0.28)
    assert went == [PLAIN, "direct"]
    assert "expected, plain DDP takes 280 ms" in said[0]
    assert (
        said[-1].startswith("direct") and ": 70.0 ms a step (expected " in said[-1] and "plain DDP 280 ms)" in said[-1]
    )


def test_what_is_wrong_gives_way_to_the_next_and_then_to_plain_ddp():
    went, said = walk(lambda strategy, turn: 0.35)
    assert went == [PLAIN, "direct", "hierarchical", PLAIN]
    assert said[-1].startswith("plain DDP again, 280 ms a step: hierarchical") and "took 350 ms, expected" in said[-1]


def test_a_small_win_is_held_against_plain_ddp_once_more():
    went, _ = walk(lambda strategy, turn: 0.24 if strategy == "direct" else 0.28, ("direct",))
    assert went == [PLAIN, "direct", PLAIN, "direct"]


def loaded(policy):
    """A policy of another process that goes on with the state of this one, which has been written and read."""
    another = TuningPolicy(TRAINING, replace(NETWORK, hop_seconds=1e-3), ("hierarchical",))
    another.load_state_dict(marshal.loads(marshal.dumps(policy.state_dict())))
    return another


@pytest.mark.parametrize("seconds", [0.07, 0.24, 0.35])
def test_a_policy_that_is_loaded_before_each_turn_decides_as_one_that_was_never_interrupted(seconds):
    def truth(strategy, turn):
        return seconds if strategy == "direct" else 0.28

    assert walk(truth, between=loaded) == walk(truth)


def test_steps_that_were_slow_at_first_make_no_strategy_look_good():
    # Everything takes 0.23 s after the first phase: data loaders and caches are warm.
    went, said = walk(lambda strategy, turn: 0.23, ("direct",))
    assert went == [PLAIN, "direct", PLAIN] and said[-1].startswith("plain DDP again, 230 ms a step")


def test_where_nothing_wins_nothing_is_touched():
    went, said = walk(
        lambda strategy, turn: 0.0, plain=PhaseTiming(step_seconds=3.0, backward_seconds=2.0, exposed_seconds=0.05)
    )
    assert went == [PLAIN]
    assert said == ["plain DDP: 3000 ms a step, 50.0 ms of it for the exchange; nothing is clearly better"]


@pytest.mark.parametrize("seed", range(50))
def test_it_always_ends_and_never_with_what_was_measured_slower(seed):
    import random

    draw = random.Random(seed)
    truths = {name: draw.uniform(0.05, 0.5) for name in ("direct", "hierarchical", PLAIN)}
    went, _ = walk(lambda strategy, turn: truths[strategy])
    assert went[-1] == PLAIN or truths[went[-1]] < 0.28


def test_enough_is_a_second_or_many_steps_or_a_few_long_ones():
    assert [is_enough(count, count * 0.3) for count in LOOKS] == [False, True, True, True, True, True]
    assert [is_enough(count, count * 0.001) for count in LOOKS] == [False, False, False, False, False, True]
    assert is_enough(2, 12.0) and not is_enough(1, 100.0)


def test_what_happens_now_and_then_is_no_part_of_a_step():
    assert typical_seconds([1.0, 1.0, 1.0, 60.0]) == 1.0
    assert typical_seconds([2.0]) == 2.0
    assert typical_seconds([1.0, 3.0]) == 1.0
