import random
from collections.abc import Mapping

import pytest

from paceline.diagnosis.hang.wait_chains import (
    Chains,
    Delay,
    Delayed,
    GroupProgress,
    Together,
    follow_chains,
    messages_as_groups,
)

_SEEDS = range(40)


def _follow(
    groups: Mapping[str, Mapping[int, GroupProgress]],
    members: Mapping[str, tuple[int, ...]],
    silent: tuple[int, ...] = (),
) -> Chains[str]:
    everybody = {rank for ranks in members.values() for rank in ranks}
    return follow_chains(groups, members, everybody - {*silent})


def _in(number: int) -> GroupProgress:
    return GroupProgress(number, number)


def test_nothing_that_is_open_is_no_wait() -> None:
    assert _follow({"0": {0: GroupProgress(6), 1: GroupProgress(5)}}, {"0": (0, 1)}) == Chains()


def test_a_rank_that_has_not_issued_the_collective_is_the_end() -> None:
    found = _follow({"0": {0: _in(5), 1: GroupProgress(4), 2: _in(5)}}, {"0": (0, 1, 2)})
    assert found.ends == (1,) and found.waiting == (0, 2) and not found.together
    assert found.delays == (Delayed(1, Delay.NOT_COME, "0", 5, (0, 2)),)


def test_a_collective_that_is_over_elsewhere_shows_the_device_that_is_behind() -> None:
    found = _follow({"0": {0: _in(9), 1: GroupProgress(9, 7), 2: _in(9)}}, {"0": (0, 1, 2)})
    assert found.ends == (1,)
    assert found.delays == (Delayed(1, Delay.BEHIND, "0", 7, (0, 2)),)


def test_a_member_without_anything_in_a_group_is_late_if_its_recorder_was_read() -> None:
    groups, members = {"0": {0: _in(5), 2: _in(5)}}, {"0": (0, 1, 2)}
    assert _follow(groups, members).delays == (Delayed(1, Delay.ABSENT, "0", 5, (0, 2)),)
    unread = _follow(groups, members, silent=(1,))
    assert not unread.ends and not unread.together
    assert unread.unheard == (1,)


def test_a_chain_over_groups_ends_at_the_rank_that_waits_for_nobody() -> None:
    members = {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    groups = {
        "1": {0: GroupProgress(4), 1: GroupProgress(4)},
        "2": {2: _in(4), 3: GroupProgress(3)},
        "3": {0: _in(4), 2: GroupProgress(3)},
        "4": {1: _in(4), 3: GroupProgress(3)},
    }
    found = _follow(groups, members)
    assert found.ends == (3,) and found.waiting == (0, 1, 2)
    assert {delay.group for delay in found.delays} == {"2", "4"}


def test_if_all_members_are_in_nobody_is_missing() -> None:
    found = _follow({"0": {rank: GroupProgress(6, 5) for rank in range(3)}}, {"0": (0, 1, 2)})
    assert not found.ends and found.waiting == (0, 1, 2)
    assert found.together == (Together("0", 5, (0, 1, 2)),)


def test_a_rank_inside_a_collective_that_does_not_end_is_not_missing_in_another_group() -> None:
    members = {"tp": (0, 1), "dp": (0, 2)}
    found = _follow({"tp": {0: _in(7), 1: _in(7)}, "dp": {0: GroupProgress(2), 2: _in(3)}}, members)
    assert not found.ends
    assert found.together == (Together("tp", 7, (0, 1)),)


def test_all_members_in_and_one_of_them_queued_behind_another_group_is_no_hung_collective() -> None:
    members = {"tp": (0, 1), "pp": (1, 2)}
    found = _follow({"tp": {0: _in(7), 1: _in(7)}, "pp": {1: _in(3), 2: GroupProgress(2)}}, members)
    assert found.ends == (2,) and not found.together


def test_what_is_queued_behind_another_group_says_nothing_about_whom_a_rank_waits_for() -> None:
    # All wait in "tp". Rank 0's host ran ahead into "dp"; rank 1 waits for its device before it goes there.
    members = {"tp": (0, 1), "dp": (0, 1, 2)}
    groups = {"tp": {0: _in(7), 1: _in(7)}, "dp": {0: GroupProgress(3, 3, first=False), 1: GroupProgress(2), 2: _in(3)}}
    found = _follow(groups, members)
    assert not found.ends and found.together == (Together("tp", 7, (0, 1)),)


def test_a_rank_that_has_issued_the_collective_delays_it_while_it_waits_in_another_group() -> None:
    members = {"tp": (0, 1), "dp": (1, 2)}
    groups = {"tp": {0: GroupProgress(6), 1: _in(7)}, "dp": {1: GroupProgress(3, 3, first=False), 2: _in(3)}}
    found = _follow(groups, members)
    assert found.ends == (0,) and found.waiting == (1, 2)


def test_a_rank_is_behind_if_what_it_is_in_is_over_elsewhere_and_the_next_is_queued() -> None:
    members = {"tp": (0, 1), "dp": (1, 2)}
    groups = {"tp": {0: GroupProgress(7), 1: _in(7)}, "dp": {1: GroupProgress(3, 3, first=False), 2: _in(3)}}
    found = _follow(groups, members)
    assert found.ends == (1,)
    assert found.delays == (Delayed(1, Delay.QUEUED, "dp", 3, (2,)),)


def test_a_group_whose_members_are_not_known_never_shows_that_nobody_is_missing() -> None:
    found = follow_chains({"0": {0: _in(5), 1: _in(5)}}, {}, {0, 1})
    assert not found.together and not found.ends
    assert found.waiting == (0, 1)


def test_a_message_without_its_other_side_is_a_wait_for_that_rank() -> None:
    send, receive = ("0", 0, 1), ("0", 0, 2)
    groups = messages_as_groups({0: {send}, 2: {receive}}, heard={0, 1, 2})
    found = follow_chains(groups, {message: message[1:] for message in groups}, {0, 1, 2})
    assert found.ends == (1,) and found.waiting == (0, 2)


def test_a_ring_of_messages_without_one_rank_ends_at_that_rank() -> None:
    world = range(5)
    messages = {rank: {("0", rank, (rank + 1) % 5), ("0", (rank - 1) % 5, rank)} for rank in world if rank != 3}
    groups = messages_as_groups(messages, heard=world)
    found = follow_chains(groups, {message: message[1:] for message in groups}, world)
    assert found.ends == (3,) and found.waiting == (0, 1, 2, 4) and not found.together


def test_a_rank_that_was_not_read_is_not_late_for_a_message() -> None:
    groups = messages_as_groups({0: {("0", 0, 1)}}, heard={0})
    found = follow_chains(groups, {message: message[1:] for message in groups}, {0})
    assert not found.ends and found.unheard == (1,)


@pytest.mark.parametrize("seed", _SEEDS)
def test_the_late_rank_is_the_end_in_any_grid_of_groups(seed: int) -> None:
    groups, members, late = _grid_with_one_late_rank(random.Random(seed))
    found = _follow(groups, members)
    assert found.ends == (late,)
    assert late not in found.waiting


@pytest.mark.parametrize("seed", _SEEDS)
def test_devices_that_are_behind_are_the_ends_wherever_they_are(seed: int) -> None:
    draw = random.Random(seed)
    world = draw.randint(3, 40)
    behind = draw.sample(range(world), draw.randint(1, world - 1))
    issued, opened = draw.randint(20, 30), draw.randint(2, 9)
    at = {
        rank: GroupProgress(issued, opened)
        if rank in behind
        else GroupProgress(issued + draw.randint(0, 3), draw.randint(11, 20))
        for rank in range(world)
    }
    # The others are not equally far: those that are behind the furthest delay them too, but wait themselves.
    found = _follow({"0": at}, {"0": tuple(range(world))})
    assert found.ends == tuple(sorted(behind))
    assert {delay.how for delay in found.delays} == {Delay.BEHIND}


@pytest.mark.parametrize("seed", _SEEDS)
def test_names_and_order_of_ranks_change_nothing(seed: int) -> None:
    draw = random.Random(seed)
    groups, members, _ = _grid_with_one_late_rank(draw)
    everybody = sorted({rank for ranks in members.values() for rank in ranks})
    shuffled = dict(zip(everybody, draw.sample(range(1000), len(everybody)), strict=True))
    names = dict(zip(groups, draw.sample(range(1000), len(groups)), strict=True))
    renamed = {
        str(names[name]): dict(draw.sample([(shuffled[rank], one) for rank, one in at.items()], len(at)))
        for name, at in draw.sample(list(groups.items()), len(groups))
    }
    found = follow_chains(
        renamed,
        {str(names[name]): tuple(shuffled[rank] for rank in ranks) for name, ranks in members.items()},
        shuffled.values(),
    )
    before = _follow(groups, members)
    assert set(found.ends) == {shuffled[rank] for rank in before.ends}
    assert set(found.waiting) == {shuffled[rank] for rank in before.waiting}
    assert {(d.rank, d.how, d.group, d.number) for d in found.delays} == {
        (shuffled[d.rank], d.how, str(names[d.group]), d.number) for d in before.delays
    }


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_rank_that_was_not_read_is_never_an_end(seed: int) -> None:
    draw = random.Random(seed)
    groups, members, late = _grid_with_one_late_rank(draw)
    unread = {name: {rank: one for rank, one in at.items() if rank != late} for name, at in groups.items()}
    found = _follow(unread, members, silent=(late,))
    assert late not in found.ends and not found.together
    assert found.unheard == (late,)


@pytest.mark.parametrize("seed", _SEEDS)
def test_ranks_that_are_all_over_everywhere_wait_for_nobody(seed: int) -> None:
    groups, members, _ = _grid_with_one_late_rank(random.Random(seed))
    over = {name: {rank: GroupProgress(one.issued) for rank, one in at.items()} for name, at in groups.items()}
    assert _follow(over, members) == Chains()


def _grid_with_one_late_rank(
    draw: random.Random,
) -> tuple[dict[str, dict[int, GroupProgress]], dict[str, tuple[int, ...]], int]:
    """Rows and columns of a grid of ranks, each a group; every rank calls its row, then its column, round after round, and one stops."""
    rows, columns = draw.randint(2, 5), draw.randint(2, 5)
    ranks = [(row, column) for row in range(rows) for column in range(columns)]
    number = {at: index for index, at in enumerate(ranks)}
    members = {f"row{row}": tuple(number[at] for at in ranks if at[0] == row) for row in range(rows)}
    members |= {f"column{column}": tuple(number[at] for at in ranks if at[1] == column) for column in range(columns)}
    late, stop = draw.choice(ranks), draw.randint(0, 9)
    issued = {name: dict.fromkeys(of_group, 0) for name, of_group in members.items()}
    over = dict.fromkeys(members, 0)
    inside: dict[tuple[int, int], str] = {}
    calls = dict.fromkeys(ranks, 0)
    moved = True
    while moved:
        moved = False
        for at in draw.sample(ranks, len(ranks)):
            if at in inside or (at == late and calls[at] == stop):
                continue
            name = f"row{at[0]}" if calls[at] % 2 == 0 else f"column{at[1]}"
            issued[name][number[at]] += 1
            inside[at], moved = name, True
            calls[at] += 1
            if min(issued[name].values()) > over[name]:
                over[name] += 1
                inside = {one: where for one, where in inside.items() if where != name}
    return (
        {
            name: {
                rank: GroupProgress(count, count if count > over[name] else None) for rank, count in of_group.items()
            }
            for name, of_group in issued.items()
        },
        members,
        number[late],
    )
