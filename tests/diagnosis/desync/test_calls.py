"""Calls of several ranks side by side: what is a divergence, what is not, and how long it takes to say so."""

import random

import pytest

from paceline.diagnosis.case import Call, Site
from paceline.diagnosis.desync.calls import WINDOW, CallComparison, RankCalls, differences

NAMES = {"a": 10, "b": 20, "c": 30, "d": 40}


def call(index, line=10, **fields):
    site = fields.pop("site", Site(file="train.py", line=line))
    known = {"operation": "all_reduce", "reduce_op": "SUM", "dtype": "float32", "shape": (4,), "size_bytes": 16}
    return Call(**{"index": index, "issued_ns": index, "site": site, "step": index // 2, **known, **fields})


def issued(rank, text, first=1, **fields):
    """Calls by letter, each from a line of its own: "abab"."""
    calls = tuple(call(at, NAMES[letter], **fields) for at, letter in enumerate(text, first))
    return RankCalls(rank, "0", (0, 1), calls, backend="gloo")


def compared(*of_ranks, final=True):
    comparison = CallComparison()
    for of_rank in of_ranks:
        comparison.add(of_rank)
    return comparison.divergences(5, final=final)


@pytest.mark.parametrize(
    ("name", "value"),
    [("operation", "broadcast"), ("reduce_op", "MAX"), ("root", 1), ("dtype", "int32"), ("shape", (8,))],
)
def test_a_call_that_exchanges_something_else_is_found(name, value):
    root = {"root": 0} if name == "root" else {}
    mine, theirs = call(3, **root), call(3, **{name: value})
    (found,) = compared(RankCalls(0, "0", (0, 1), (mine,)), RankCalls(1, "0", (0, 1), (theirs,)))
    assert differences(mine, theirs) == (name,)
    assert (found.index, found.ranks, found.calls, found.since_step) == (3, (0, 1), {0: mine, 1: theirs}, 1)


def test_what_one_side_does_not_know_is_no_difference():
    bare = Call(index=1, operation="all_reduce", issued_ns=0)
    assert differences(bare, call(1)) == ()


def test_a_rank_that_is_behind_or_was_not_read_throughout_is_no_divergence():
    assert compared(issued(0, "abababab"), issued(1, "abab")) == ()
    assert compared(issued(0, "abababab"), issued(1, "abab", first=5)) == ()


def test_another_place_in_the_code_alone_is_no_divergence():
    assert compared(issued(0, "ab" * 40), issued(1, "cb" * 40)) == ()
    # One rank first does its work, then lets the others: two lines, the same barrier.
    assert compared(issued(0, "ab", operation="barrier"), issued(1, "ba", operation="barrier")) == ()


@pytest.mark.parametrize(("one", "other", "index"), [("abab", "abba", 3), ("abcdab", "abdcab", 3), ("abc", "cab", 1)])
def test_the_same_calls_in_another_order_are_found(one, other, index):
    (found,) = compared(issued(0, one), issued(1, other))
    assert found.index == index


def test_an_order_is_found_where_a_thread_has_no_line_that_led_to_it():
    """The same two lines in another order, one of them reached from nowhere in the user's code."""

    def lines(rank, *places):
        calls = [
            call(at, site=Site(file="train.py", line=line, callers=callers))
            for at, (line, callers) in enumerate(places, 1)
        ]
        return RankCalls(rank, "0", (0, 1), tuple(calls), backend="gloo")

    usual = lines(0, (10, ("train.py:40",)), (20, ("train.py:41",)))
    (found,) = compared(usual, lines(1, (20, ("train.py:45",)), (10, ())))
    assert found.index == 1
    assert compared(usual, lines(1, (10, ()), (20, ("train.py:45",)))) == ()


def test_an_order_is_found_when_its_calls_come_in_pieces_and_whoever_comes_first():
    for first in (0, 1):
        comparison = CallComparison()
        texts = {0: "ababab", 1: "abbaab"}
        for at in range(6):
            for rank in (first, 1 - first):
                comparison.add(issued(rank, texts[rank][at], first=at + 1))
        (found,) = comparison.divergences(5, final=True)
        assert found.index == 3


def test_a_divergence_is_said_at_the_second_time_of_asking_and_once():
    comparison = CallComparison()
    comparison.add(issued(0, "aa"))
    comparison.add(issued(1, "aa", dtype="int32"))
    assert comparison.divergences(5) == ()
    comparison.add(issued(0, "b", first=3))
    (found,) = comparison.divergences(6)
    assert (found.index, found.found_ns, len(found.windows[0]), found.counts) == (1, 5, 3, {0: 3, 1: 2})
    comparison.add(issued(1, "b", first=3, shape=(1,)))
    assert comparison.divergences(7) == ()


def test_nothing_is_held_back_where_enough_follows():
    assert len(compared(issued(0, "a" * 30), issued(1, "a" * 30, dtype="int32"), final=False)) == 1


def test_groups_are_compared_each_for_itself():
    comparison = CallComparison()
    comparison.add(issued(0, "ab"))
    comparison.add(RankCalls(1, "1", (1, 2), (call(1, shape=(9,)),)))
    assert comparison.divergences(5, final=True) == ()


def test_sends_and_receives_are_passed_over():
    sent = Call(index=0, operation="send", issued_ns=0, root=1)
    received = Call(index=0, operation="recv", issued_ns=0, root=0)
    assert compared(RankCalls(0, "0", (), (sent, call(1))), RankCalls(1, "0", (), (received, call(1)))) == ()


def test_what_ranks_may_hand_over_in_sizes_of_their_own_is_not_compared_by_bytes():
    one = call(1, operation="all_gather", size_bytes=16)
    assert differences(one, call(1, operation="all_gather", size_bytes=64)) == ()
    assert differences(call(1, size_bytes=16), call(1, size_bytes=64)) == ("size_bytes",)


def test_windows_stay_small_with_many_ranks_and_many_calls():
    comparison = CallComparison()
    for start in range(1, 2000, 100):
        for rank in range(20):
            odd = {"dtype": "int32"} if rank == 13 and start > 1900 else {}
            comparison.add(issued(rank, "a" * 100, first=start, **odd))
    (found,) = comparison.divergences(5)
    assert found.index == 1901 and len(found.windows) == 8 and 13 in found.windows
    assert max(map(len, found.windows.values())) <= 2 * WINDOW + 1


def test_healthy_ranks_in_any_interleaving_never_diverge():
    random.seed(1)
    for _ in range(20):
        comparison = CallComparison()
        text = "".join(random.choice("abcd") for _ in range(200))
        done = [0, 0, 0]
        while min(done) < 200:
            rank = random.randrange(3)
            upto = min(200, done[rank] + random.randrange(1, 9))
            comparison.add(issued(rank, text[done[rank] : upto], first=done[rank] + 1))
            done[rank] = upto
            assert comparison.divergences(5, final=True) == ()


def made(*members_of_ranks, again=False, group="1"):
    """What the ranks' calls say of who is in their group: one tuple for each rank; `again`: every rank calls twice."""
    comparison = CallComparison()
    for turn in range(1 + again):
        for rank, members in enumerate(members_of_ranks):
            comparison.add(RankCalls(rank, group, members, (call(turn + 1),)))
    return comparison


@pytest.mark.parametrize("again", [False, True])
def test_a_group_that_has_other_members_on_some_ranks_is_said_once(again):
    comparison = made((0, 3), (1, 2), (1, 2), (0, 3), again=again)
    (mixed,) = comparison.mixed_groups(7)
    assert (mixed.group, mixed.found_ns) == ("1", 7)
    assert mixed.members == {0: (0, 3), 1: (1, 2), 2: (1, 2), 3: (0, 3)}
    assert comparison.mixed_groups(8) == () and comparison.divergences(8, final=True) == ()


@pytest.mark.parametrize(
    "members",
    [((0, 1), (0, 1)), ((0, 1), ()), ((), ()), ((0,), (1,)), ((0, 1), (0, 1), (0, 1))],
    ids=["the same", "one is not known", "none is known", "each rank alone", "an outsider"],
)
def test_a_group_with_the_same_members_everywhere_is_not_mixed(members):
    assert made(*members).mixed_groups(7) == ()


@pytest.mark.parametrize("group", ["0", "0 of initialisation 2", "1"])
def test_ranks_that_make_two_worlds_of_their_own_mix_nothing(group):
    assert made((0, 1), (0, 1), (0, 1, 2), (0, 1, 2), (0, 1, 2), group=group).mixed_groups(7) == ()


def test_of_very_many_ranks_one_of_each_kind_is_shown():
    low, high = tuple(range(500)), tuple(range(500, 502))
    (mixed,) = made(*[low] * 500, high, high).mixed_groups(7)
    assert len(mixed.members) == 64 and mixed.members[0] == low and mixed.members[500] == high
