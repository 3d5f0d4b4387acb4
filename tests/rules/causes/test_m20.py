"""M20: ranks that make different process groups."""

from contextlib import suppress

import pytest

from paceline.diagnosis.case import Call, GroupCounters, MixedGroup, Site
from paceline.diagnosis.verdict import diagnose
from paceline.findings import Confidence, Unknown
from paceline.rules import discover

C10D = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
LOCAL = "4a2ad14e7181d5235b64cf37fcd715cb5ce5c8e7"


@pytest.fixture
def stuck(case, snapshot, heartbeat, stall):
    """Ranks that wait in new_group at these lines. `local`: ranks that made a group with its members alone. Fields: of every heartbeat."""

    def make(*lines, local=(), torch="2.15.0+cu132", late=(), without_snapshot=(), **fields):
        ranks = range(len(lines))
        snapshots = [
            snapshot(
                rank,
                f"{C10D}:757 _create_gloo_process_group",
                f"{C10D}:7270 _new_group_with_tag",
                f"{C10D}:7137 new_group",
                f"/home/me/train.py:{lines[rank]} <module>",
            )
            for rank in ranks
            if rank not in without_snapshot
        ]
        made = {rank: {LOCAL: tuple(local)} if rank in local else {} for rank in ranks}
        known = {"rendezvous": {"torch": torch}, "step_count": 0}
        heartbeats = [heartbeat(rank, **{**known, "group_ranks": made[rank], **fields}) for rank in ranks]
        still = stall(late=late, waiting=tuple(rank for rank in ranks if rank not in late), basis="stacks")
        return case(world_size=len(lines), still=still, snapshots=snapshots, heartbeats=heartbeats)

    return make


@pytest.mark.parametrize("torch", ["2.14.1", "2.15.0+cu132", "2.16.0.dev20261101", "3.0"])
def test_groups_of_their_members_alone_that_some_ranks_made_are_counted_from_torch_2_14_on(found, stuck, torch):
    (finding,) = found("M20", stuck(9, 9, 9, local=(0, 1), torch=torch))
    assert (finding.confidence, finding.ranks) == (Confidence.HIGH, ())
    assert "ranks 0-1 made 1 group" in finding.saw[1] and "rank 2 made no groups" in finding.saw[2]
    assert any("2.14" in text for text in finding.next)


@pytest.mark.parametrize("torch", ["2.13.0", "2.4.1", "", "nightly"])
def test_before_they_are_no_cause_and_neither_on_a_torch_that_is_not_known(found, stuck, torch):
    assert found("M20", stuck(9, 9, 9, local=(0, 1), torch=torch)) == []


def test_such_a_group_on_every_rank_is_none(found, stuck):
    assert found("M20", stuck(9, 9, 9, local=(0, 1, 2))) == []


@pytest.mark.parametrize("torch", ["2.4.1", "2.15.0"])
def test_ranks_at_different_lines_make_different_groups_on_every_torch(found, stuck, torch):
    (finding,) = found("M20", stuck(9, 12, 9, torch=torch))
    assert finding.confidence is Confidence.HIGH and finding.saw[0].startswith("ranks 0,2 in new_group at")
    assert not any("2.14" in text for text in finding.next)


@pytest.mark.parametrize("fields", [{"step_count": 3}, {"groups": (GroupCounters(name="0", enqueued=2, completed=2),)}])
def test_one_line_is_likely_where_the_ranks_exchanged_before(found, stuck, fields):
    (finding,) = found("M20", stuck(9, 9, 9, **fields))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "fields", [{}, {"groups": (GroupCounters(name="0", enqueued=1, completed=0),)}, {"step_count": None}]
)
def test_ranks_that_may_never_have_reached_each_other_are_not_said_to_differ(found, stuck, fields):
    assert found("M20", stuck(9, 9, 9, **fields)) == []


def test_with_a_late_rank_the_late_rank_is_the_cause(found, stuck):
    assert found("M20", stuck(9, 12, 9, late=(1,))) == []


def test_late_ranks_in_new_group_for_which_the_others_wait_elsewhere_make_a_group_alone(
    found, case, snapshot, stall, stuck
):
    making = stuck(9, 9, 9).snapshots
    training = snapshot(0, "/home/me/train.py:30 <module>")
    still = stall(late=(1, 2), waiting=(0,), group="0", operation="all_reduce")
    (finding,) = found("M20", case(still=still, snapshots=[training, making[1], making[2]]))
    assert (finding.confidence, finding.ranks) == (Confidence.LIKELY, (1, 2))
    assert finding.saw == (
        "ranks 1-2 in new_group at /home/me/train.py:9 in <module>",
        "rank 0 in all_reduce of group 0 at /home/me/train.py:30 in <module>",
    )


def test_of_ranks_that_wait_each_line_is_said_once_and_none_of_a_rank_that_was_not_looked_at(
    found, case, snapshot, stall, stuck
):
    making = stuck(9, 9, 9, 9, 9).snapshots
    still = stall(late=(4,), waiting=(0, 1, 2, 3), group="0", operation="barrier")
    at = {0: "/home/me/train.py:30 <module>", 1: "/home/me/train.py:31 <module>", 3: "/home/me/train.py:30 <module>"}
    (finding,) = found(
        "M20", case(still=still, snapshots=[*(snapshot(rank, line) for rank, line in at.items()), making[4]])
    )
    assert finding.saw[1:] == (
        "ranks 0,3 in barrier of group 0 at /home/me/train.py:30 in <module>",
        "rank 1 in barrier of group 0 at /home/me/train.py:31 in <module>",
        "rank 2 in barrier of group 0",
    )


def test_a_group_that_is_not_known_is_not_named(found, case, snapshot, stall, stuck):
    still = stall(late=(1,), waiting=(0,), group=None, operation=None)
    snapshots = [snapshot(0, "/home/me/train.py:30 <module>"), stuck(9, 9).snapshots[1]]
    (finding,) = found("M20", case(still=still, snapshots=snapshots))
    assert finding.saw[-1] == "rank 0 in a collective at /home/me/train.py:30 in <module>"


@pytest.mark.parametrize("seen", [(0, 1), (1, 2), (0, 2), (0,), ()])
def test_late_ranks_are_in_new_group_alone_only_if_each_was_looked_at_and_one_that_waits(
    found, case, snapshot, stall, stuck, seen
):
    making = stuck(9, 9, 9).snapshots
    snapshots = {0: snapshot(0, "/home/me/train.py:30 <module>"), 1: making[1], 2: making[2]}
    still = stall(late=(1, 2), waiting=(0,), group="0", operation="all_reduce")
    assert found("M20", case(still=still, snapshots=[snapshots[rank] for rank in seen])) == []


@pytest.fixture
def first_calls(case, heartbeat, stall):
    """Two ranks in the first call of a group of both: under these names, at these lines."""

    def make(names=("1", "2"), lines=(18, 18), indices=(1, 1), members=(0, 1), waiting=(0, 1)):
        heartbeats = [
            heartbeat(
                rank,
                last_call=Call(
                    index=indices[rank],
                    operation="all_reduce",
                    issued_ns=1,
                    site=Site(file="/home/me/train.py", line=lines[rank], function="train"),
                ),
                calls={"0": 7, names[rank]: indices[rank]},
                group_ranks={names[rank]: members},
            )
            for rank in (0, 1)
        ]
        return case(world_size=2, still=stall(late=(), waiting=waiting, basis="stacks"), heartbeats=heartbeats)

    return make


def test_a_group_of_the_same_ranks_that_has_another_name_on_some_never_meets(found, first_calls):
    (finding,) = found("M20", first_calls())
    assert (finding.confidence, finding.ranks) == (Confidence.LIKELY, ())
    assert finding.saw[1:] == ("the group is called 1 on rank 0", "the group is called 2 on rank 1")


@pytest.mark.parametrize(
    "fields",
    [
        {"names": ("1", "1")},
        # Two groups in another order, which is M16.
        {"lines": (18, 19)},
        {"indices": (1, 2)},
        {"indices": (3, 3)},
        {"members": (0, 1, 2)},
    ],
)
def test_anything_else_about_the_first_calls_is_another_cause(found, first_calls, fields):
    with suppress(Unknown):
        assert found("M20", first_calls(**fields)) == []


def test_a_rank_elsewhere_is_no_new_group(found, case, snapshot, stall, stuck):
    both = stuck(9, 12)
    elsewhere = snapshot(1, "/home/me/train.py:12 <module>")
    assert found("M20", case(still=stall(late=(), waiting=(0, 1)), snapshots=[both.snapshots[0], elsewhere])) == []


def test_a_rank_that_was_not_looked_at_leaves_it_likely(found, stuck):
    (finding,) = found("M20", stuck(9, 12, 9, without_snapshot=(2,)))
    assert finding.confidence is Confidence.LIKELY


def test_without_any_snapshot_it_is_not_judged(found, stuck):
    with pytest.raises(Unknown):
        found("M20", stuck(9, 12, without_snapshot=(0, 1)))


@pytest.fixture
def mixed(case, exit_of):
    """A case in which a group has other members on some ranks, and rank 1 raised afterwards, where it did."""

    def make(members, raises):
        exits = [exit_of(1, error=("AssertionError", ""))] if raises else []
        return case(
            still=False, world_size=4, exits=exits, mixed_groups=(MixedGroup(group="1", members=members, found_ns=1),)
        )

    return make


@pytest.mark.parametrize("raises", [True, False])
def test_a_group_with_other_members_on_some_ranks_is_the_cause_of_what_comes_after_it(found, mixed, raises):
    case = mixed({0: (0, 3), 1: (1, 2), 2: (1, 2), 3: (0, 3)}, raises)
    (finding,) = found("M20", case)
    assert finding.confidence is Confidence.HIGH
    assert finding.saw[0] == "ranks 0,3 made group 1 by a new_group of ranks 0,3"
    assert finding.saw[1] == "ranks 1-2 made group 1 by a new_group of ranks 1-2"
    assert bool(finding.ruled_out) is raises
    said = diagnose(case, discover("causes")).findings
    assert [finding.code for finding in said if finding.confidence is Confidence.HIGH] == ["M20"]
