"""What kind of disagreement a divergence is, by what comes before and after it."""

import pytest

from paceline.diagnosis.case import Call, Site
from paceline.diagnosis.desync.calls import CallComparison, RankCalls
from paceline.diagnosis.desync.desync import DesyncKind, disagreement_of

# Letter -> what it is and where it stands.
LETTERS = {
    "a": ("all_reduce", (4,), "float32", 10),
    "b": ("all_reduce", (8,), "float32", 11),
    "A": ("all_reduce", (4,), "float32", 12),
    "x": ("all_reduce", (1,), "float32", 50),
    "i": ("all_reduce", (4,), "int32", 10),
    "s": ("all_reduce", (9,), "float32", 10),
    "r": ("broadcast", (4,), "float32", 60),
    "|": ("barrier", None, None, 70),
}


def divergence(**texts):
    """The divergence of ranks whose calls are given by letter; a blank begins a new step."""
    comparison = CallComparison()
    for name, text in texts.items():
        calls, step = [], 0
        for letter in text:
            if letter == " ":
                step += 1
                continue
            operation, shape, dtype, line = LETTERS[letter]
            site = Site(file="train.py", line=line)
            more = {"shape": shape, "dtype": dtype, "site": site, "step": step}
            calls.append(Call(index=len(calls) + 1, operation=operation, issued_ns=0, **more))
        comparison.add(RankCalls(int(name[1:]), "0", (), tuple(calls)))
    (found,) = comparison.divergences(1, final=True)
    return found


@pytest.mark.parametrize(
    ("mine", "theirs", "kind", "sure"),
    [
        # The same line, another tensor.
        ("a a a i a a", "a a a a a a", DesyncKind.VALUES, True),
        ("a a a s", "a a a a", DesyncKind.SHAPE, True),
        # Another branch, the same tensor, and then both wait.
        ("a a a r", "a a a a", DesyncKind.OPERATION, False),
        ("a a a r a a", "a a a a a a", DesyncKind.OPERATION, True),
        # A call that nobody else makes, after which all goes on one later.
        ("ab ab xab ab", "ab ab ab ab", DesyncKind.EXTRA, True),
        ("ab ab x", "ab ab a", DesyncKind.EXTRA, False),
        ("a a |", "a a a", DesyncKind.EXTRA, False),
        # One call left out.
        ("ab ab b ab", "ab ab ab ab", DesyncKind.MISSING, True),
        ("ab ab b", "ab ab a", DesyncKind.MISSING, False),
        # One call too many, which was made elsewhere before, and both sides stand there.
        ("x ab ab x", "x ab ab a", DesyncKind.EXTRA, False),
        ("x a a x", "x a a a", DesyncKind.EXTRA, False),
        # Changed places.
        ("ab ab ba ab", "ab ab ab ab", DesyncKind.ORDER, True),
        ("ba ab", "ab ab", DesyncKind.ORDER, True),
    ],
)
def test_the_kind_is_told_by_what_comes_before_and_after(mine, theirs, kind, sure):
    found = disagreement_of(divergence(r0=theirs, r1=mine))
    assert (found.kind, found.sure) == (kind, sure)
    mirrored = disagreement_of(divergence(r0=mine, r1=theirs))
    assert mirrored.kind is kind


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_the_one_that_leaves_the_habit_is_named(odd):
    texts = ["a a a a", "a a a a"]
    texts[odd] = "a a a i"
    found = disagreement_of(divergence(r0=texts[0], r1=texts[1]))
    assert (found.odd, found.usual, found.told_apart, found.blamed) == ((odd,), (1 - odd,), True, (odd,))


def test_of_two_ranks_without_a_habit_both_are_named():
    found = disagreement_of(divergence(r0="a", r1="s"))
    assert (found.told_apart, found.blamed) == (False, (0, 1))


def test_of_many_ranks_the_few_are_named():
    found = disagreement_of(divergence(r0="s", r1="a", r2="a", r3="a"))
    assert (found.odd, found.blamed, found.usual) == ((0,), (0,), (1, 2, 3))


def test_equal_tensors_from_other_branches_in_a_new_step_are_no_excess():
    # Both ranks come to lines that they have never seen.
    found = disagreement_of(divergence(r0="a a x", r1="a a r"))
    assert found.kind is DesyncKind.OPERATION
