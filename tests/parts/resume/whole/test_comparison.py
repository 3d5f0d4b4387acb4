"""The comparison sees everything that may differ, and nothing where nothing does."""

import pytest
from comparison import compare, compare_ranks
from hypothesis import given
from hypothesis import strategies as st

REFERENCE = [
    "begin parameters 12",
    *(f"step {n} loss {n / 7!r}" for n in range(1, 6)),
    "epoch 0 mean 0.5",
    *(f"step {n} loss {n / 7!r}" for n in range(6, 11)),
    "epoch 1 mean 0.4",
    "final 0badc0de",
]


def complaints(made, most_redone=2):
    return compare(REFERENCE, made, most_redone=most_redone).complaints


def changed(at, line):
    return [*REFERENCE[:at], line, *REFERENCE[at + 1 :]]


def test_the_same_lines_are_equal():
    assert compare(REFERENCE, REFERENCE, most_redone=0) == (lines := compare(REFERENCE, REFERENCE, most_redone=9))
    assert lines.complaints == () and lines.redone_steps == ()


def test_a_step_made_again_with_the_same_text_is_counted():
    lines = compare(REFERENCE, [*REFERENCE[:4], REFERENCE[3], *REFERENCE[4:]], most_redone=1)
    assert lines.complaints == () and lines.redone_steps == (1,)


def test_a_step_made_again_with_another_text_is_wrong():
    (complaint,) = complaints([*REFERENCE[:4], "step 3 loss 0.43", *REFERENCE[4:]])
    assert "'step 3', made again differs" in complaint


def test_a_line_with_another_last_digit_is_wrong():
    (complaint,) = complaints(changed(9, REFERENCE[9][:-1] + "0"))
    assert "'step 8' differs" in complaint


@pytest.mark.parametrize("at", range(len(REFERENCE)))
def test_a_missing_line_is_wrong(at):
    (complaint,) = complaints(REFERENCE[:at] + REFERENCE[at + 1 :])
    assert "missing" in complaint


@pytest.mark.parametrize("at", range(len(REFERENCE) + 1))
def test_a_line_of_its_own_is_wrong(at):
    (complaint,) = complaints([*REFERENCE[:at], "step 99 loss 1.0", *REFERENCE[at:]])
    assert "no line of the undisturbed run" in complaint


def test_another_final_state_is_wrong():
    (complaint,) = complaints(changed(len(REFERENCE) - 1, "final deadbeef"))
    assert "deadbeef" in complaint


def test_two_lines_in_another_order_are_wrong():
    made = list(REFERENCE)
    made[3], made[4] = made[4], made[3]
    (complaint,) = complaints(made)
    assert "missing" in complaint


def test_two_lines_in_one_are_wrong():
    (complaint,) = complaints([*REFERENCE[:3], REFERENCE[3][:9] + REFERENCE[3], *REFERENCE[4:]])
    assert "differs" in complaint


def test_the_lines_before_the_loop_may_come_again_and_go_on_in_the_middle():
    lines = compare(REFERENCE, [*REFERENCE[:9], REFERENCE[0], *REFERENCE[9:]], most_redone=0)
    assert lines.complaints == () and lines.redone_steps == (0,)


def test_going_back_and_leaving_a_step_out_is_wrong():
    (complaint,) = complaints([*REFERENCE[:6], REFERENCE[2], *REFERENCE[4:]])
    assert "follows" in complaint


def test_beginning_again_from_nothing_is_wrong():
    lines = compare(REFERENCE, [*REFERENCE[:9], *REFERENCE], most_redone=2)
    assert lines.complaints == ("7 steps made again after one kill",) and lines.redone_steps == (7,)


def test_ending_in_the_middle_of_what_was_made_again_is_wrong():
    (complaint,) = complaints([*REFERENCE, REFERENCE[-3]])
    assert "went back after the last line" in complaint


def test_no_line_is_wrong():
    assert complaints([]) and not compare([], [], most_redone=0).complaints


def test_equal_lines_in_the_reference_are_said():
    assert compare(["step 1 a", "step 1 a"], ["step 1 a"], most_redone=0).complaints


def test_a_rank_without_a_file_is_wrong():
    found, _ = compare_ranks({0: REFERENCE, 1: REFERENCE}, {0: REFERENCE}, most_redone=2, restarts=0)
    assert [complaint.split(":")[0] for complaint in found] == ["rank 1"]


def test_a_rank_too_many_is_wrong():
    found, _ = compare_ranks({0: REFERENCE}, {0: REFERENCE, 1: REFERENCE}, most_redone=2, restarts=0)
    assert [complaint.split(":")[0] for complaint in found] == ["rank 1"]


def test_going_back_without_a_restart_is_wrong():
    made = [*REFERENCE[:4], REFERENCE[3], *REFERENCE[4:]]
    assert compare_ranks({0: REFERENCE}, {0: made}, most_redone=2, restarts=0)[0]
    assert compare_ranks({0: REFERENCE}, {0: made}, most_redone=2, restarts=1) == ([], [1])


def test_what_a_restart_cost_is_that_of_the_rank_that_lost_most():
    again = [*REFERENCE[:4], REFERENCE[3], *REFERENCE[4:]]
    twice = [*REFERENCE[:4], *REFERENCE[2:4], *REFERENCE[4:]]
    reference = {0: REFERENCE, 1: REFERENCE}
    assert compare_ranks(reference, {0: again, 1: twice}, most_redone=2, restarts=1) == ([], [2])


@given(st.lists(st.tuples(st.integers(0, len(REFERENCE)), st.integers(0, 2)), max_size=4), st.booleans())
def test_any_kills_that_lose_little_are_equal(kills, writes_the_beginning):
    made, at = [], 0
    for until, back in sorted(kills):
        if until < at:
            continue
        made += REFERENCE[at:until]
        at = max(0, until - back)
        if writes_the_beginning and 1 < at < len(REFERENCE) and made:
            made.append(REFERENCE[0])
    made += REFERENCE[at:]
    assert complaints(made, most_redone=4) == ()


@given(st.permutations(REFERENCE))
def test_any_other_order_is_wrong(made):
    assert (complaints(made, most_redone=0) == ()) == (made == REFERENCE)
