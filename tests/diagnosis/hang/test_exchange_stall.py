"""Who holds up whom in paceline's own exchange, from made-up rows of the ranks' rings."""

from dataclasses import replace

from paceline.diagnosis.case import GroupCounters, Heartbeat
from paceline.diagnosis.hang.lagging_ranks import LaggingRank
from paceline.diagnosis.hang.stall import StallDetector
from paceline.diagnosis.snapshots import RankSnapshot

SECOND = 1_000_000_000
NOW = 1_795_000_000 * SECOND


def stood(rank, seconds=4.0, *, groups=None, **fields):
    """A rank that has not moved for `seconds`; `groups`: what the flight recorder says, name -> (entered, over)."""
    counters = (
        None
        if groups is None
        else tuple(
            GroupCounters(name=name, enqueued=entered, completed=over) for name, (entered, over) in groups.items()
        )
    )
    known = {"host": "algo-1", "at_ns": NOW, "moved_ns": NOW - int(seconds * SECOND), "pid": 100 + rank, "state": "S"}
    more = {"phase": "training", "step_count": 12, "step_seconds": 0.02, "groups": counters}
    return Heartbeat(**{"rank": rank, **known, **more, **fields})


def observe(*heartbeats):
    return StallDetector().observe({heartbeat.rank: heartbeat for heartbeat in heartbeats}, NOW)


def in_lane(rank, entered, over, seconds=4.0, name="gradients/0", ranks=None, **fields):
    lane = GroupCounters(
        name=name,
        enqueued=entered,
        completed=over,
        ranks=ranks,
        everybody=ranks is None,
        operation="all_reduce",
        dtype="float32",
        numel=7240,
    )
    return stood(rank, seconds, exchanges=(lane,), **fields)


def test_a_rank_that_has_not_come_to_an_exchange_of_ours_is_late():
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 12, 12, 6.0))
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "exchanges")
    assert (found.group, found.index, found.operation, found.payload) == (
        *("gradients/0", 13),
        *("all_reduce", "7,240 float32"),
    )


def test_a_rank_that_never_came_to_any_exchange_of_ours_is_late():
    found = observe(in_lane(0, 1, 0), stood(1))
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "exchanges")


def test_who_cannot_notice_that_its_last_exchange_is_over_waits_for_nobody():
    """A stopped rank: nothing of its Python runs that would note the end of what the others have left behind them."""
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 12, 11, 5.1, state="T"))
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "exchanges")
    found = observe(*(in_lane(rank, 13, 12, 5.0) for rank in (0, 2)), in_lane(1, 12, 11, 5.1, state="T"))
    assert (found.waiting, found.late) == ((0, 2), (1,))


def test_who_was_stopped_inside_the_exchange_in_which_the_others_wait_is_late():
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 13, 12, 5.1, state="T"), in_lane(2, 13, 12, 5.0))
    assert (found.waiting, found.late, found.basis) == ((0, 2), (1,), "exchanges")
    # A process that is frozen shows D, and its flight recorder is as silent.
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 13, 12, 5.1, state="D"))
    assert (found.waiting, found.late, found.basis) == ((0,), (1,), "exchanges")
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 13, 12, 5.1, state="D", groups={}))
    assert found.late == ()
    # Not where somebody else has not come at all.
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 13, 12, 5.1, state="T"), in_lane(2, 12, 12, 5.0))
    assert found.late == (2,)


def test_who_stands_in_an_exchange_that_others_have_not_left_either_is_not_late():
    found = observe(in_lane(0, 13, 12), in_lane(1, 13, 12), in_lane(2, 12, 12))
    assert (found.waiting, found.late) == ((0, 1), (2,))


def test_lanes_of_one_name_among_other_ranks_are_not_compared():
    ours, theirs = {"ranks": (0, 1)}, {"ranks": (2, 3)}
    found = observe(
        *(in_lane(0, 13, 12, **ours), in_lane(1, 12, 12, **ours)),
        *(in_lane(rank, 90, 90, 0.1, **theirs) for rank in (2, 3)),
    )
    assert (found.waiting, found.late) == ((0,), (1,))


def test_a_lane_whose_members_nobody_knows_is_not_compared():
    lane = GroupCounters(name="lane", enqueued=13, completed=12)
    found = observe(stood(0, exchanges=(lane,)), stood(1, exchanges=(replace(lane, enqueued=90, completed=90),)))
    assert found.basis != "exchanges"


def test_a_chain_through_torchs_group_and_our_lane_ends_at_who_stands_outside_of_both():
    lane = {"name": "gradients/0"}
    first = in_lane(0, 12, 12, groups={"0": (5, 4)}, **lane)
    second = in_lane(1, 13, 12, groups={"0": (4, 4)}, **lane)
    third = in_lane(2, 12, 12, groups={"0": (5, 4)}, **lane)
    fourth = in_lane(3, 12, 12, groups={"0": (5, 5)}, **lane)
    found = observe(first, second, third, fourth)
    assert found.late == (3,)


def test_a_late_rank_that_was_looked_at_reads_well():
    found = observe(in_lane(0, 13, 12, 5.0), in_lane(1, 12, 12, 6.0))
    late = LaggingRank(RankSnapshot(host="h", rank=1, pid=1, at_ns=NOW), found, (), 0.0)
    assert late.how_late == (
        "rank 0 waits in all_reduce of 7,240 float32 (collective 13 of group gradients/0) for rank 1, "
        "by the exchanges that each rank counts"
    )
